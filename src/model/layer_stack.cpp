#include "model/layer_stack.h"

#include <algorithm>

#include "nn/kv_cache.h"
#include "ops/recompute.h"

namespace piton {

LayerStack::LayerStack(ParameterList& parameters, const LayersOfChunk& of, const Adapters& adapters)
    : dtype_(of.config.dtype),
      groups_(of.config.groups / of.shard.size()),
      head_size_(of.config.head_size),
      stage_(of.place.stage()),
      layers_(of.layout.division(of.config.layers, of.place.chunks()).of_chunk(of.place.index)),
      recompute_(of.layout.options.recompute),
      group_(of.shard.group) {
  for (std::int64_t layer = layers_.begin; layer < layers_.end; ++layer) {
    blocks_.emplace_back(parameters, of.shard, of.config, layer, adapters);
  }
}

Value LayerStack::forward(Context& context, const Value& x, const ModelInput& input,
                          const InputOf& input_of) const {
  Context in_blocks = context;
  Value y = x;
  for (std::size_t i = 0; i < blocks_.size();) {
    const std::size_t last = std::min(i + group_at(i), blocks_.size());
    const auto index = static_cast<std::int64_t>(i);
    if (context.tape != nullptr) context.tape->begin_block(index);
    in_blocks.recompute = recompute_.parts_again(stage_, index);
    std::vector<AttentionInput> attention;
    for (std::size_t block = i; block < last; ++block) {
      const std::int64_t layer = layers_.begin + static_cast<std::int64_t>(block);
      attention.push_back(input_of(layer));
      attention.back().recompute = !is_recomputed(i) && recompute_.parts_again().attention;
      if (input.cache != nullptr) attention.back().cache = input.cache->layer(layer);
    }
    y = run(in_blocks, i, y, attention);
    i = last;
  }
  return y;
}

void LayerStack::add_layers(KvCache& cache) const {
  for (std::int64_t layer = layers_.begin; layer < layers_.end; ++layer)
    cache.add_layer(layer, dtype_, groups_, head_size_);
}

// Whether block `index` of this chunk is computed again in backward.
bool LayerStack::is_recomputed(std::size_t index) const {
  return recompute_.granularity == RecomputeGranularity::kFull &&
         (!recompute_.block || static_cast<std::int64_t>(index) < recompute_.layers_on(stage_));
}

// How many blocks from this one on are one segment.
std::size_t LayerStack::group_at(std::size_t index) const {
  return is_recomputed(index) && !recompute_.block ? static_cast<std::size_t>(recompute_.layers)
                                                   : 1;
}

// As many blocks as there are inputs, from `first` on.
Value LayerStack::run(Context& context, std::size_t first, const Value& x,
                      const std::vector<AttentionInput>& attention) const {
  const Segment segment = [this, first, attention](Context& inner,
                                                   const std::vector<Value>& values) {
    Value y = values[0];
    for (std::size_t i = 0; i < attention.size(); ++i) {
      y = blocks_[first + i].forward(inner, y, attention[i]);
    }
    return std::vector<Value>{y};
  };
  if (!is_recomputed(first)) return segment(context, {x})[0];
  return recomputed(context, {x}, segment, recompute_.distributed ? group_ : nullptr)[0];
}

Parameter& token_table(ParameterList& parameters, const LayersOfChunk& of, const std::string& name,
                       bool tied) {
  const ModelConfig& config = of.config;
  Parameter table = vocabulary_parameter(
      of.shard, name, {config.vocabulary, of.layout.padded_vocabulary(config.vocabulary)},
      config.hidden, input_weights(config));
  const std::vector<int> ends = of.place.stages_of_ends();
  if (tied && ends.size() > 1) {
    table.tied_stages = ends;
    table.placement[Axis::kPipeline].gradient_is_partial = true;
  }
  return parameters.find_or_add(std::move(table));
}

}  // namespace piton
