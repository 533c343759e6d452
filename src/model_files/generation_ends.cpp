#include "model_files/generation_ends.h"

#include <limits>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"

namespace piton {

std::vector<std::int32_t> generation_ends(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (folder.empty() || !std::filesystem::is_regular_file(path)) return {};
  const auto said = read_json_or_discarded<nlohmann::json>(read_text_file(path));
  if (!said.is_object())
    throw Error(Fault::kData, "{}: not a JSON object, wanted generation settings", path.string());
  const auto found = said.find("eos_token_id");
  if (found == said.end() || found->is_null()) return {};
  const nlohmann::json all = found->is_array() ? *found : nlohmann::json::array({*found});
  std::vector<std::int32_t> ends;
  for (const nlohmann::json& id : all) {
    constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > kLargest) {
      throw Error(Fault::kData, "{}: eos_token_id is {}, wanted an id or a list of ids",
                  path.string(), found->dump());
    }
    ends.push_back(id.get<std::int32_t>());
  }
  return ends;
}

}  // namespace piton
