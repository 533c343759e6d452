// The JSON part of a safetensors file, read event by event: unlike a document tree this sees a key
// that occurs twice, and it holds nothing that the format does not have.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/safetensors.h"

namespace piton {

// Entries as they are written, in the order of the text; types, shapes and offsets are not yet
// checked against each other. Throws Error(kData) naming `where`.
SafetensorsHeader read_header_json(std::string_view text, const std::string& where);

}  // namespace piton
