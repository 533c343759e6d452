#include "base/json.h"

template class nlohmann::basic_json<>;
template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace piton {

template <typename Value>
Value read_json(std::string_view text) {
  return Value::parse(text.begin(), text.end());
}

template <typename Value>
Value read_json_or_discarded(std::string_view text) {
  return Value::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

template nlohmann::json read_json(std::string_view text);
template nlohmann::ordered_json read_json(std::string_view text);
template nlohmann::json read_json_or_discarded(std::string_view text);
template nlohmann::ordered_json read_json_or_discarded(std::string_view text);

}  // namespace piton
