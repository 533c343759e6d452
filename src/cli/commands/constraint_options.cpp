#include "cli/commands/constraint_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"

namespace piton::cli {

std::string ConstraintOptions::flag() const {
  std::vector<std::string> given;
  if (!json_schema.empty()) given.emplace_back("--json-schema");
  if (!regex.empty()) given.emplace_back("--regex");
  if (!choices.empty()) given.emplace_back("--choices");
  if (given.size() > 1)
    throw Error(Fault::kUsage, "{}: a text has one of these constraints; leave the others out",
                fmt::join(given, ", "));
  return given.empty() ? "" : given.front();
}

ConstraintText ConstraintOptions::text() const {
  if (!json_schema.empty()) return {ConstraintKind::kJsonSchema, read_text_file(json_schema)};
  if (!regex.empty()) return {ConstraintKind::kRegex, regex};
  if (choices.empty()) return {};
  nlohmann::json words = nlohmann::json::array();
  for (const std::string& one : choices) {
    for (std::size_t at = 0; at <= one.size();) {
      const std::size_t end = std::min(one.find(',', at), one.size());
      words.push_back(one.substr(at, end - at));
      at = end + 1;
    }
  }
  return {ConstraintKind::kChoices,
          words.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace piton::cli
