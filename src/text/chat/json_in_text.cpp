#include "text/chat/json_in_text.h"

#include "base/error.h"
#include "base/nesting.h"

namespace piton {

nlohmann::ordered_json json_in_text(std::string_view text) {
  try {
    check_json_depth(text, "text");
  } catch (const Error&) {
    return nullptr;
  }
  auto json = read_json_or_discarded<nlohmann::ordered_json>(text);
  return json.is_discarded() ? nlohmann::ordered_json() : json;
}

}  // namespace piton
