#include "model/layer_stack.h"

#include <algorithm>

#include "ops/recompute.h"

namespace piton {
namespace {

// On one of `ranks` tensor ranks; empty if no layer has states.
KvCache::StateShape state_shape(const ModelConfig& config, int ranks) {
  if (config.state_space) {
    const StateSpaceFacts& facts = *config.state_space;
    return {.dtype = config.dtype,
            .rows = facts.width - 1,
            .channels = facts.values() / ranks,
            .heads = facts.heads / ranks,
            .keys = facts.state_size,
            .values = facts.head_size,
            .shared_channels = 2 * groups_of_rank(facts.groups, ranks) * facts.state_size};
  }
  if (config.short_convolution) {
    return {.dtype = config.dtype,
            .rows = config.short_convolution->width - 1,
            .channels = config.hidden / ranks};
  }
  if (!config.delta) return {};
  const DeltaFacts& facts = *config.delta;
  return {.dtype = config.dtype,
          .rows = facts.width - 1,
          .channels = facts.convolved() / ranks,
          .heads = facts.value_heads / ranks,
          .keys = facts.key_size,
          .values = facts.value_size};
}

}  // namespace

LayerStack::LayerStack(ParameterList& parameters, const LayersOfChunk& of, const Adapters& adapters)
    : dtype_(of.config.dtype),
      states_(state_shape(of.config, of.shard.size())),
      latent_(of.config.latent),
      groups_(of.config.groups / of.shard.size()),
      head_size_(of.config.head_size),
      stage_(of.place.stage()),
      layers_(of.layers
                  ? *of.layers
                  : of.layout.division(of.config, of.place.chunks()).of_chunk(of.place.index)),
      recompute_(of.layout.options.recompute),
      group_(of.shard.group),
      crosses_(of.stack.cross),
      cached_after_(of.stack.cached_after),
      first_block_(of.blocks_before) {
  for (std::int64_t layer = layers_.begin; layer < layers_.end; ++layer) {
    Shard shard = of.shard;
    const std::int64_t facts = of.stack.facts_of(layer);
    shard.float8 = of.layout.options.float8.of_layer(facts, of.config.layers);
    exchanges_.push_back(of.layout.exchange_of(of.config, facts));
    shard.context = of.layout.context_group(exchanges_.back());
    blocks_.emplace_back(parameters, shard, of.config, Block::Place{of.stack, layer}, adapters);
  }
}

Value LayerStack::forward(Context& context, const Value& x, const ModelInput& input,
                          const InputOf& input_of, const SharedInputs& shared) const {
  Context in_blocks = context;
  Value y = x;
  for (std::size_t i = 0; i < blocks_.size();) {
    const std::size_t last = std::min(i + group_at(i), blocks_.size());
    const auto index = static_cast<std::int64_t>(i);
    if (context.tape != nullptr) context.tape->begin_block(first_block_ + index);
    in_blocks.recompute = recompute_.parts_again(stage_, index);
    Group group{.first = i};
    for (std::size_t block = i; block < last; ++block) {
      const std::int64_t layer = layers_.begin + static_cast<std::int64_t>(block);
      const bool again = !is_recomputed(i) && recompute_.parts_again().attention;
      group.attention.push_back(input_of(layer));
      group.attention.back().recompute = again;
      group.attention.back().of_ranks = input.of_ranks[static_cast<std::size_t>(exchanges_[block])];
      if (input.cache != nullptr && blocks_[block].has_mixer()) {
        AttentionInput& last = group.attention.back();
        if (input.cache->is_state_layer(cached_after_ + layer)) {
          last.states = input.cache->state_layer(cached_after_ + layer);
        } else {
          last.cache = input.cache->layer(cached_after_ + layer);
        }
      }
      group.cross.push_back({.batch = input.samples, .recompute = again});
      if (crosses_ && input.cache != nullptr)
        group.cross.back().cache = input.cache->source().layer(layer);
    }
    y = run(in_blocks, y, group, shared);
    i = last;
  }
  return y;
}

void LayerStack::add_layers(KvCache& cache) const {
  for (std::int64_t layer = layers_.begin; layer < layers_.end; ++layer) {
    const Block& block = blocks_[static_cast<std::size_t>(layer - layers_.begin)];
    if (!block.has_mixer()) continue;
    if (block.has_states()) {
      cache.add_state_layer(cached_after_ + layer, states_);
      continue;
    }
    if (cache.takes_latents() && block.attends_to_latents()) {
      cache.add_latent_layer(cached_after_ + layer, dtype_, latent_->rank, latent_->turned);
      continue;
    }
    cache.add_layer(cached_after_ + layer, dtype_, groups_, head_size_);
    if (crosses_) cache.source().add_layer(layer, dtype_, groups_, head_size_);
  }
}

void LayerStack::write_source(Context& context, const Tensor& source, KvCache& cache) const {
  for (std::int64_t layer = layers_.begin; layer < layers_.end; ++layer) {
    blocks_[static_cast<std::size_t>(layer - layers_.begin)].cross().write_keys(
        context, source, cache.source().layer(layer), cache.source().slots());
  }
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

// As many blocks as there are inputs.
Value LayerStack::run(Context& context, const Value& x, const Group& group,
                      const SharedInputs& shared) const {
  // What gradients flow to is an input of the segment.
  const bool biased = shared.bias.values.tensor.defined();
  const bool crosses = shared.source.tensor.defined();
  std::vector<Value> inputs{x};
  if (biased) inputs.push_back(shared.bias.values);
  if (crosses) inputs.push_back(shared.source);
  const Segment segment = [this, group, biased, crosses, origin = shared.bias.origin,
                           lengths = shared.source_lengths](Context& inner,
                                                            const std::vector<Value>& values) {
    Value y = values[0];
    for (std::size_t i = 0; i < group.attention.size(); ++i) {
      AttentionInput attention = group.attention[i];
      if (biased) attention.bias = {values[1], origin};
      CrossInput cross = group.cross[i];
      cross.lengths = lengths;
      if (crosses) cross.source = values.back();
      y = blocks_[group.first + i].forward(inner, y, attention, &cross);
    }
    return std::vector<Value>{y};
  };
  if (!is_recomputed(group.first)) return segment(context, inputs)[0];
  return recomputed(context, inputs, segment, recompute_.distributed ? group_ : nullptr)[0];
}

Parameter& token_table(ParameterList& parameters, const LayersOfChunk& of, const std::string& name,
                       const std::vector<int>& stages, const Initialization& initialization) {
  const ModelConfig& config = of.config;
  Parameter table = vocabulary_parameter(
      of.shard, name, {config.vocabulary, of.layout.padded_vocabulary(config.vocabulary)},
      config.hidden, initialization);
  table.rate_group = RateGroup::kVocabulary;
  tie_over_stages(table, stages);
  return parameters.find_or_add(std::move(table));
}

}  // namespace piton
