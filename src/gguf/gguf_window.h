// The window of all layers in the keys of a GGUF file: attention.sliding_window, which counts keys.
#pragma once

#include "gguf/gguf_keys.h"
#include "model/config.h"

namespace piton {

// 0 in a file: none.
void read_gguf_window(const GgufKeys& keys, ModelConfig& model);
void write_gguf_window(const ModelConfig& model, GgufDescription& out);

}  // namespace piton
