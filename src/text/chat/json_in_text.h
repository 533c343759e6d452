// JSON that a model or a client wrote into a text.
#pragma once

#include <string_view>

#include "base/json.h"

namespace piton {

// The value of `text`; null if it is not JSON, or nested too deeply to be read (base/nesting.h).
nlohmann::ordered_json json_in_text(std::string_view text);

}  // namespace piton
