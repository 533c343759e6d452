#include "model/layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace piton {

LayerRange LayerDivision::of_chunk(int chunk) const {
  if (!given.empty()) {
    const auto at = given.begin() + chunk;
    const std::int64_t begin = std::accumulate(given.begin(), at, std::int64_t{0});
    return {begin, begin + *at};
  }
  const std::int64_t share = layers / chunks;
  const std::int64_t larger = layers % chunks;
  const std::int64_t begin = chunk * share + std::min<std::int64_t>(chunk, larger);
  return {begin, begin + share + (chunk < larger ? 1 : 0)};
}

std::vector<std::int64_t> LayerDivision::counts() const {
  std::vector<std::int64_t> counts;
  for (int chunk = 0; chunk < chunks; ++chunk) counts.push_back(of_chunk(chunk).size());
  return counts;
}

std::int64_t LayerDivision::most() const { return std::ranges::max(counts()); }

std::vector<std::int64_t> LayerDivision::most_of_stages(
    const std::vector<int>& stage_of_chunk) const {
  std::vector<std::int64_t> most(static_cast<std::size_t>(std::ranges::max(stage_of_chunk)) + 1);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    std::int64_t& one = most[static_cast<std::size_t>(stage_of_chunk[chunk])];
    one = std::max(one, of_chunk(chunk).size());
  }
  return most;
}

LayerDivision LayerDivision::of(const ModelConfig& config, const LayoutOptions& options,
                                int chunks) {
  if (!config.encoder_decoder || chunks == 1)
    return {config.layers, chunks, options.layers_of_chunks};
  const std::int64_t of_encoder = config.encoder_decoder->encoder_layers;
  LayerDivision both{of_encoder + config.layers, chunks, options.layers_of_chunks};
  if (!both.given.empty()) return both;
  both.given = LayerDivision{of_encoder, options.split_stage}.counts();
  for (const std::int64_t count :
       LayerDivision{config.layers, chunks - options.split_stage}.counts())
    both.given.push_back(count);
  return both;
}

int first_decoder_stage(const ModelConfig& config, int stages) {
  if (!config.encoder_decoder || stages == 1) return 0;
  const std::int64_t of_encoder = config.encoder_decoder->encoder_layers;
  const double share =
      static_cast<double>(of_encoder) / static_cast<double>(of_encoder + config.layers);
  const auto near = static_cast<int>(std::lround(share * stages));
  const auto fewest = static_cast<int>(std::max<std::int64_t>(stages - config.layers, 1));
  const auto most = static_cast<int>(std::min<std::int64_t>(of_encoder, stages - 1));
  return std::max(fewest, std::min(near, most));
}

std::int64_t ModelLayout::padded_vocabulary(std::int64_t vocabulary) const {
  if (options.vocabulary_rows > 0) return options.vocabulary_rows;
  const std::int64_t multiple = options.vocabulary_multiple * mesh->size(Axis::kTensor);
  return (vocabulary + multiple - 1) / multiple * multiple;
}

ContextGroup ModelLayout::context_group(ContextExchange exchange) const {
  Communicator& all = mesh->group(Axis::kContext);
  ContextGroup group{.group = &all,
                     .gathers = exchange == ContextExchange::kGather,
                     .slices = options.context.slices};
  const int c = all.size();
  if (c == 1) return {.group = &all};
  const int heads = options.context.heads_of(exchange, c);
  const int runs = c / heads;
  if (heads == c) {
    group.heads = &all;
  } else if (heads == 1) {
    group.keys = &all;
  } else {
    group.heads = &mesh->part_of_group(axes(Axis::kContext), {runs}, "heads");
    group.keys = &mesh->part_of_group(axes(Axis::kContext), {runs, /*across=*/true}, "keys");
  }
  return group;
}

void ModelLayout::check_context(const ModelConfig& config) const {
  if (mesh->size(Axis::kContext) == 1) return;
  if (config.encoder || config.encoder_decoder) {
    throw Error(Fault::kUsage,
                "layout: --context-parallel-size divides the rows of decoders, and the model is an "
                "encoder{}; leave it out",
                config.encoder ? " (bert)" : " with a decoder (t5)");
  }
  const auto refuse = [](bool given, const char* flag) {
    if (!given) return;
    throw Error(Fault::kUsage,
                "layout: --context-parallel-size divides rows of causal masks and slopes of "
                "distances, not with {}; leave one of them out",
                flag);
  };
  refuse(config.prefix, "--sparse-mode 5 or 6");
  refuse(config.alibi_table(), "--alibi-fusion-attn-type 3");
  for (const ContextExchange exchange : {ContextExchange::kHeads, ContextExchange::kHeadsAndRing})
    check_context_heads(config, exchange);
  const int t = mesh->size(Axis::kTensor), c = mesh->size(Axis::kContext);
  if (config.state_space) {
    const StateSpaceFacts& facts = *config.state_space;
    // One group goes to all ranks.
    if (facts.heads / t % c == 0 && (facts.groups == 1 || facts.groups / t % c == 0)) return;
    throw Error(Fault::kUsage,
                "layout: {} heads of Mamba-2 in {} groups cannot be split over tensor {} x context "
                "{} ranks; change --mamba-num-groups or --context-parallel-size",
                facts.heads, facts.groups, t, c);
  }
  if (config.short_convolution && config.hidden / t % c != 0) {
    throw Error(
        Fault::kUsage,
        "layout: {} channels of short convolutions cannot be split over tensor {} x context "
        "{} ranks; change --hidden-size or --context-parallel-size",
        config.hidden, t, c);
  }
  if (!config.delta || config.delta->key_heads / t % c == 0) return;
  throw Error(Fault::kUsage,
              "layout: {} heads of keys of the gated delta rule cannot be split over tensor {} x "
              "context {} ranks; change --linear-num-key-heads or --context-parallel-size",
              config.delta->key_heads, t, c);
}

ContextExchange ModelLayout::exchange_of(const ModelConfig& config, std::int64_t layer) const {
  if (mesh->size(Axis::kContext) == 1) return ContextExchange::kRing;
  return config.has_states(layer) ? ContextExchange::kHeads : options.context.of_layer(layer);
}

std::vector<ContextExchange> ModelLayout::exchanges_of(const ModelConfig& config) const {
  std::set<ContextExchange> exchanges;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    exchanges.insert(exchange_of(config, layer));
  return {exchanges.begin(), exchanges.end()};
}

void ModelLayout::check_context_heads(const ModelConfig& config, ContextExchange exchange) const {
  if (!options.context.has(exchange)) return;
  const int t = mesh->size(Axis::kTensor);
  const int ranks = options.context.heads_of(exchange, mesh->size(Axis::kContext));
  const bool all = exchange == ContextExchange::kHeads;
  for (const auto& [value, what] :
       {std::pair{config.heads, "attention heads"}, {config.groups, "query groups"}}) {
    if (value / t % ranks == 0) continue;
    throw Error(Fault::kUsage,
                "layout: --cp-comm-type {}: {} {} cannot be split over tensor {} x context {} "
                "ranks; change {}, or use --cp-comm-type p2p",
                all ? "a2a" : "a2a+p2p", value, what, t, ranks,
                all ? "--context-parallel-size" : "--hierarchical-context-parallel-sizes");
  }
}

void ModelLayout::check_experts(const ModelConfig& config) const {
  const int e = mesh->size(Axis::kExpert);
  if (e == 1) return;
  if (!config.experts) {
    throw Error(Fault::kUsage,
                "layout: --expert-model-parallel-size divides the experts of a mixture, and the "
                "model has none; give --num-experts too, or leave it out");
  }
  if (config.experts->experts % e == 0) return;
  throw Error(Fault::kUsage,
              "layout: {} experts cannot be divided over {} ranks; change --num-experts or "
              "--expert-model-parallel-size",
              config.experts->experts, e);
}

void ModelLayout::check_layers(const ModelConfig& config, int chunks) const {
  const bool both = config.encoder_decoder && chunks > 1;
  const auto fill = [&](std::int64_t layers, int count, const char* what, const char* flags) {
    if (layers >= count) return;
    throw Error(Fault::kUsage, "layout: {} layers cannot fill {} {}; change {}", layers, count,
                what, flags);
  };
  if (both) {
    PITON_ASSERT(options.split_stage > 0 && options.split_stage < chunks,
                 "a decoder from stage {} of {} on", options.split_stage, chunks);
    fill(config.encoder_decoder->encoder_layers, options.split_stage,
         "pipeline stages of the encoder",
         "--encoder-num-layers or --pipeline-model-parallel-split-rank");
    fill(config.layers, chunks - options.split_stage, "pipeline stages of the decoder",
         "--decoder-num-layers or --pipeline-model-parallel-split-rank");
  } else {
    fill(
        config.layers, chunks,
        chunks == mesh->size(Axis::kPipeline) ? "pipeline stages" : "chunks of the pipeline stages",
        "--num-layers or --pipeline-model-parallel-size");
  }
  const std::int64_t all =
      config.layers + (both ? config.encoder_decoder->encoder_layers : std::int64_t{0});
  const std::vector<std::int64_t>& given = options.layers_of_chunks;
  PITON_ASSERT(
      given.empty() || (static_cast<int>(given.size()) == chunks &&
                        std::accumulate(given.begin(), given.end(), std::int64_t{0}) == all),
      "layers of {} chunks, wanted {}", given.size(), chunks);
}

void ModelLayout::check(const ModelConfig& config, int chunks) const {
  const int t = mesh->size(Axis::kTensor);
  const auto divides = [&](std::int64_t value, const char* what, const char* flag) {
    if (value % t != 0) {
      throw Error(Fault::kUsage,
                  "layout: {} {} cannot be split over {} tensor ranks; change {} or "
                  "--tensor-model-parallel-size",
                  value, what, t, flag);
    }
  };
  if (config.state_layers() < config.layers) {
    divides(config.heads, "attention heads", "--num-attention-heads");
    divides(config.groups, "query groups", "--num-query-groups");
  }
  if (std::ssize(config.bare_layers) < config.layers)
    divides(config.ffn_hidden, "columns of the MLP", "--ffn-hidden-size");
  if (config.experts) {
    divides(config.expert_ffn_hidden(), "columns of an expert", "--moe-ffn-hidden-size");
    divides(config.experts->shared_ffn_hidden, "columns of the MLP that all tokens share",
            "--moe-shared-expert-intermediate-size");
  }
  if (config.delta) {
    divides(config.delta->key_heads, "heads of keys of the gated delta rule",
            "--linear-num-key-heads");
  }
  if (config.state_space) {
    divides(config.state_space->heads, "heads of Mamba-2", "--mamba-num-heads");
    // One group is on all ranks.
    if (config.state_space->groups > 1)
      divides(config.state_space->groups, "groups of Mamba-2", "--mamba-num-groups");
  }
  if (config.short_convolution)
    divides(config.hidden, "channels of short convolutions", "--hidden-size");
  check_context(config);
  check_experts(config);
  check_layers(config, chunks);
}

}  // namespace piton
