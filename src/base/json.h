// JSON values: nlohmann's library, compiled once. Every source that reads or writes JSON includes
// this header and not the library's own, so that the library's code is compiled in json.cpp alone.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace piton {

// The value of `text`; `Value` is nlohmann::json (keys sorted) or nlohmann::ordered_json (keys as
// written). Throws nlohmann::json::parse_error where `text` is not JSON.
template <typename Value>
Value read_json(std::string_view text);

// The same, but a discarded value (`is_discarded()`) where `text` is not JSON.
template <typename Value>
Value read_json_or_discarded(std::string_view text);

extern template nlohmann::json read_json(std::string_view text);
extern template nlohmann::ordered_json read_json(std::string_view text);
extern template nlohmann::json read_json_or_discarded(std::string_view text);
extern template nlohmann::ordered_json read_json_or_discarded(std::string_view text);

}  // namespace piton
