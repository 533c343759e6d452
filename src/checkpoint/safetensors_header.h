// Reads the JSON part of a safetensors file event by event: unlike a document tree, this detects a
// key that occurs twice, and it stores only what the format has.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/safetensors.h"

namespace piton {

// Entries in the order of the text; types, shapes and offsets are not yet compared with each other.
// Throws Error(kData) with `where`.
SafetensorsHeader read_header_json(std::string_view text, const std::string& where);

}  // namespace piton
