// Base64 (RFC 4648, with or without padding).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace piton {

// Returns the bytes; std::nullopt if `text` has other characters or ends inside a byte.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace piton
