// The blocks of one chunk of a model, and what of them is computed again in backward.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "model/block.h"
#include "model/config.h"
#include "model/layout.h"
#include "nn/adapters.h"
#include "nn/chunk.h"
#include "nn/kv_cache.h"

namespace piton {

// What the layers of a chunk are made of.
struct LayersOfChunk {
  const ModelConfig& config;
  const ModelLayout& layout;
  const ChunkPlace& place;
  const Shard& shard;
  StackKind stack = {};
  std::int64_t blocks_before = 0;  // blocks of the chunk in stacks before this one
  // Of the stack in this chunk; none: the share of a chunk of a model that is one stack.
  std::optional<LayerRange> layers = {};
};

// What all layers of a stack read in addition to the output of the layer before; gradients flow to
// it from each of them.
struct SharedInputs {
  DistanceBias bias;      // of self-attention, or empty
  Value source;           // CrossInput::source, or empty
  Tensor source_lengths;  // CrossInput::lengths
};

class LayerStack {
 public:
  LayerStack(ParameterList& parameters, const LayersOfChunk& of, const Adapters& adapters);

  // The inputs of attention of a layer, by its number in the model; without cache and recompute.
  using InputOf = std::function<AttentionInput(std::int64_t layer)>;
  // x [b*s, h], under sequence parallelism this rank's [b*s/t, h] -> the same shape.
  Value forward(Context& context, const Value& x, const ModelInput& input, const InputOf& input_of,
                const SharedInputs& shared = {}) const;

  void add_layers(KvCache& cache) const;
  // Of a stack with cross: writes the keys and values of the encoder's outputs [n, h], without
  // padding, to the cache.
  void write_source(Context& context, const Tensor& source, KvCache& cache) const;

 private:
  bool is_recomputed(std::size_t index) const;
  std::size_t group_at(std::size_t index) const;
  // Blocks that run one after another, from number `first` on.
  struct Group {
    std::size_t first = 0;
    std::vector<AttentionInput> attention;
    std::vector<CrossInput> cross;
  };
  Value run(Context& context, const Value& x, const Group& group, const SharedInputs& shared) const;

  DType dtype_;
  KvCache::StateShape states_;  // of layers that have them
  std::optional<LatentFacts> latent_;
  std::int64_t groups_;  // of this rank
  std::int64_t head_size_;
  int stage_;
  LayerRange layers_;
  RecomputeRules recompute_;
  Communicator* group_;  // of the tensor axis
  bool crosses_;
  std::int64_t cached_after_;
  std::int64_t first_block_;                // number in the chunk of the first of these blocks
  std::vector<ContextExchange> exchanges_;  // of the blocks
  std::vector<Block> blocks_;
};

// The table of tokens [padded / t, h] of a chunk. If embedding and head share it and are on one
// stage, it is one parameter; on several `stages`, their gradients are summed.
Parameter& token_table(ParameterList& parameters, const LayersOfChunk& of, const std::string& name,
                       const std::vector<int>& stages, const Initialization& initialization);

}  // namespace piton
