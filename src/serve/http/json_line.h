// JSON as it is sent.
#pragma once

#include <string>

#include "base/json.h"

namespace piton {

// On one line; bytes that are no characters as U+FFFD.
inline std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace piton
