// Architectures whose decoder differs from those of architectures.cpp in few facts.
#pragma once

#include <vector>

#include "gguf/architectures.h"

namespace piton {

std::vector<GgufArchitecture> layer_norm_forms();
std::vector<GgufArchitecture> rms_norm_forms();
std::vector<GgufArchitecture> expert_forms();
std::vector<GgufArchitecture> delta_forms();

// GgufArchitecture::read: biases of query, key and value, or of all linears, are those that the
// file has.
void read_qkv_biases(const GgufKeys& keys, ModelConfig& model);
void read_biases(const GgufKeys& keys, ModelConfig& model);

}  // namespace piton
