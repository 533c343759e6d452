// The window of attention in the keys of a GGUF file: attention.sliding_window, which counts keys,
// and attention.sliding_window_pattern, which says which layers have it: a number N, if each N-th
// layer has none (0: all have it), or a list of a flag for each layer.
#pragma once

#include "gguf/gguf_keys.h"
#include "model/config.h"

namespace piton {

// 0 in a file: none.
void read_gguf_window(const GgufKeys& keys, ModelConfig& model);
void write_gguf_window(const ModelConfig& model, GgufDescription& out);
// The same for architectures that always have a key: a window of the longest sequence changes
// nothing.
void write_required_gguf_window(const ModelConfig& model, GgufDescription& out);

// `usual`: N where the key is missing. Of a model with a window; a list in which no layer has it
// leaves the model without one.
void read_gguf_pattern(const GgufKeys& keys, std::int64_t usual, ModelConfig& model);
void write_gguf_pattern(const ModelConfig& model, std::int64_t usual, GgufDescription& out);

}  // namespace piton
