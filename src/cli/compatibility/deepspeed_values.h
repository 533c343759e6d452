// Values of DeepSpeed's configuration.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/json.h"

namespace piton::cli::deepspeed {

inline bool is_auto(const nlohmann::json& value) { return value.is_string() && value == "auto"; }

inline bool is_count(const nlohmann::json& value) {
  return value.is_number() && value.get<double>() >= 0;
}

inline std::string got(const nlohmann::json& value, std::string_view wanted) {
  return fmt::format("got {}, wanted {}", value.dump(), wanted);
}

}  // namespace piton::cli::deepspeed
