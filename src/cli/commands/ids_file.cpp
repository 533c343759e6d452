#include "cli/commands/ids_file.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "base/nesting.h"

namespace piton::cli {

std::vector<std::vector<std::int32_t>> ids_of_file(const std::string& path) {
  const std::string text = read_text_file(path);
  check_json_depth(text, path);
  const nlohmann::json lists = read_json_or_discarded<nlohmann::json>(text);
  const auto refuse = [&](const std::string& got) {
    throw Error(Fault::kData, "{}: got {}, wanted a JSON list of lists of token ids", path, got);
  };
  if (!lists.is_array()) refuse(lists.is_discarded() ? "text that is not JSON" : lists.type_name());
  std::vector<std::vector<std::int32_t>> sequences;
  for (const auto& list : lists) {
    if (!list.is_array()) refuse(list.type_name());
    auto& ids = sequences.emplace_back();
    for (const auto& id : list) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
          id.get<std::int64_t>() > INT32_MAX)
        refuse(id.dump());
      ids.push_back(id.get<std::int32_t>());
    }
  }
  return sequences;
}

}  // namespace piton::cli
