// Architectures whose decoder differs from those of architectures.cpp in few facts.
#pragma once

#include <vector>

#include "gguf/architectures.h"

namespace piton {

std::vector<GgufArchitecture> layer_norm_forms();
std::vector<GgufArchitecture> rms_norm_forms();
std::vector<GgufArchitecture> expert_forms();
std::vector<GgufArchitecture> delta_forms();
std::vector<GgufArchitecture> state_forms();

// GgufArchitecture::read: biases of query, key and value, or of all linears, are those that the
// file has.
void read_qkv_biases(const GgufKeys& keys, ModelConfig& model);
void read_biases(const GgufKeys& keys, ModelConfig& model);

// Sizes of a head of grouped queries, of a model whose width and heads are set.
void read_gguf_head_size(const GgufKeys& keys, ModelConfig& model);
void write_gguf_head_size(const ModelConfig& model, GgufDescription& out);

// Granite's factors, and whether it has positions.
void read_granite(const GgufKeys& keys, ModelConfig& model);
void write_granite(const ModelConfig& model, GgufDescription& out);
inline constexpr GgufExperts kExpertsOfGranite{
    .have = GgufPart::kMaybe, .shared = GgufPart::kMaybe, .shared_width = true};

}  // namespace piton
