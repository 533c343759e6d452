#include "megatron/format/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "megatron/format/rank_tensors.h"
#include "model/canonical_tensors.h"
#include "nn/expert_mlp.h"

namespace piton {
namespace {

// Each row of padding is a separate part.
constexpr std::int64_t kMostPadding = std::int64_t{1} << 20;

void must_divide(const char* what, std::int64_t size, const char* flag, std::int64_t parts) {
  if (size % parts == 0) return;
  throw Error(Fault::kUsage, "{}: got {}, wanted a divisor of the {} {}", flag, parts, size, what);
}

void check_delta_heads(const DeltaFacts& facts, const char* flag, int tensor) {
  must_divide("heads of keys (--linear-num-key-heads)", facts.key_heads, flag, tensor);
  must_divide("heads of values (--linear-num-value-heads)", facts.value_heads, flag, tensor);
}

void check_state_space_layout(const MegatronLayout& layout, const StateSpaceFacts& facts,
                              const char* flag) {
  must_divide("heads of Mamba-2 (--mamba-num-heads)", facts.heads, flag, layout.tensor);
  must_divide("groups of its heads (--mamba-num-groups)", facts.groups, flag, layout.tensor);
  if (layout.chunks > 1) {
    throw Error(Fault::kUsage,
                "--num-layers-per-virtual-pipeline-stage: Megatron-core's models with Mamba-2 have "
                "no virtual stages; leave it out");
  }
}

// Of a layer with latent attention, in place of its heads.
void add_latent_attention(RankTensors& rank, const ModelConfig& model, const MegatronLayout& layout,
                          const std::string& key, const std::string& at) {
  const LatentFacts& facts = *model.latent;
  const std::int64_t queries = model.heads * facts.head_size();
  const std::int64_t latents = facts.rank + facts.turned;
  const auto norm = [&](const std::string& end, const std::string& name, std::int64_t width) {
    if (model.head_norms) rank.whole(key + end + ".weight", at + name + ".weight", {width});
  };
  const bool small_queries = facts.query_rank != 0;
  if (layout.joined_latents) {
    rank.stacked(key + "qkv.weight",
                 {{at + (small_queries ? "query_down.weight" : "query.weight"), 0,
                   small_queries ? facts.query_rank : queries},
                  {at + "latent.weight", 0, latents}},
                 model.hidden);
  } else if (small_queries) {
    rank.small_rows(key + "q_down", at + "query_down", facts.query_rank);
  } else {
    rank.rows_of(key + "q_proj", {at + "query"}, queries, false);
  }
  if (small_queries) {
    norm("q_up_norm", "query_down_norm", facts.query_rank);
    if (layout.apart_heads) {
      rank.of_heads(key + "q_own.weight", {at + "query.weight", 0, facts.own, facts.turned},
                    facts.query_rank);
      rank.of_heads(key + "q_turned.weight", {at + "query.weight", facts.own, facts.turned, 0},
                    facts.query_rank);
    } else {
      rank.rows_of_width(key + "q_up", at + "query", queries, facts.query_rank);
    }
  }
  if (!layout.joined_latents) rank.small_rows(key + "kv_down", at + "latent", latents);
  norm("kv_up_norm", "latent_norm", facts.rank);
  if (layout.apart_heads) {
    rank.of_heads(key + "k_own.weight", {at + "key_value.weight", 0, facts.own, facts.value},
                  facts.rank);
    rank.of_heads(key + "v_up.weight", {at + "key_value.weight", facts.own, facts.value, 0},
                  facts.rank);
  } else {
    rank.rows_of_width(key + "kv_up", at + "key_value", model.heads * (facts.own + facts.value),
                       facts.rank);
  }
  rank.columns_of(key + "dense", at + "output", model.heads * facts.value, model.output_bias);
}

void add_attention(RankTensors& rank, const ModelConfig& model, const MegatronLayout& layout,
                   const std::string& key, const std::string& at) {
  if (model.latent) return add_latent_attention(rank, model, layout, key, at);
  rank.qkv(key + "qkv", at, false);
  if (model.qkv_biases) rank.qkv(key + "qkv", at, true);
  if (model.head_norms) {
    const Shape head{model.head_size};
    rank.whole(key + "q_norm.weight", at + "query_norm.weight", head);
    rank.whole(key + "k_norm.weight", at + "key_norm.weight", head);
  }
  if (model.softmax == SoftmaxKind::kLearnable)
    rank.shares_of(key + "sinks", {{"", at + "sinks", model.heads}}, 0);
  rank.columns_of(key + "dense", at + "output", model.heads * model.head_size, model.output_bias);
}

// Adds tensors that hold parts of this layer's, or each part by itself.
void add_states(RankTensors& rank, const MegatronLayout& layout, const std::string& key,
                const std::vector<RankTensors::Part>& parts, std::int64_t columns) {
  if (!layout.apart_states) return rank.shares_of(key, parts, columns);
  for (const RankTensors::Part& part : parts)
    rank.shares_of(fmt::format("{}{}", key, part.end), {part}, columns);
}

// In place of attention.
void add_delta(RankTensors& rank, const ModelConfig& model, const MegatronLayout& layout,
               const std::string& key, const std::string& at) {
  const DeltaFacts& facts = *model.delta;
  const std::int64_t keys = facts.key_heads * facts.key_size;
  const std::int64_t values = facts.value_heads * facts.value_size;
  rank.shares_of(key + "delta_rate", {{"", at + "rate", facts.value_heads}}, 0);
  rank.shares_of(key + "delta_bias", {{"", at + "decay_bias", facts.value_heads}}, 0);
  add_states(rank, layout, key + "delta_in.weight",
             {{".query", at + "query.weight", keys},
              {".key", at + "key.weight", keys},
              {".value", at + "value.weight", values},
              {".z", at + "gate.weight", values},
              {".beta", at + "strength.weight", facts.value_heads},
              {".alpha", at + "decay.weight", facts.value_heads}},
             model.hidden);
  add_states(rank, layout, key + "delta_filter.weight",
             {{".query", at + "query_filter", keys},
              {".key", at + "key_filter", keys},
              {".value", at + "value_filter", values}},
             facts.width);
  rank.whole(key + "delta_norm.weight", at + "norm.weight", {facts.value_size});
  rank.columns_of(key + "delta_out", at + "output", values, false);
}

// In place of attention.
void add_mamba(RankTensors& rank, const ModelConfig& model, const MegatronLayout& layout,
               const std::string& key, const std::string& at) {
  const StateSpaceFacts& facts = *model.state_space;
  const std::int64_t keys = facts.keys();
  const std::int64_t values = facts.values();
  for (const auto& [end, name] :
       {std::pair{"mamba_bias", "step_bias"}, {"mamba_rate", "rate"}, {"mamba_skip", "skip"}})
    rank.shares_of(key + end, {{"", at + name, facts.heads}}, 0);
  add_states(rank, layout, key + "mamba_in.weight",
             {{".z", at + "gate.weight", values},
              {".x", at + "value.weight", values},
              {".B", at + "key.weight", keys},
              {".C", at + "query.weight", keys},
              {".dt", at + "step.weight", facts.heads}},
             model.hidden);
  for (const bool bias : {false, true}) {
    const char* end = bias ? "_bias" : "";
    add_states(rank, layout, key + (bias ? "mamba_filter.bias" : "mamba_filter.weight"),
               {{".x", fmt::format("{}value_filter{}", at, end), values},
                {".B", fmt::format("{}key_filter{}", at, end), keys},
                {".C", fmt::format("{}query_filter{}", at, end), keys}},
               bias ? 0 : facts.width);
  }
  rank.shares_of(key + "mamba_norm.weight", {{"", at + "norm.weight", values}}, 0);
  rank.columns_of(key + "mamba_out", at + "output", values, false);
}

// Of a layer with experts, in place of its MLP.
void add_experts(RankTensors& rank, const ModelConfig& model, const std::string& key,
                 const std::string& at) {
  const ExpertFacts& facts = *model.experts;
  const auto mlp = [&](const std::string& fc, const std::string& name, std::int64_t width,
                       const RankTensors::Share& share) {
    std::vector<std::string> up{name + ".up"};
    if (model.gated) up.insert(up.begin(), name + ".gate");
    rank.rows_of(fc + "fc1", up, width, false, share);
    if (model.biases) rank.rows_of(fc + "fc1", up, width, true, share);
    rank.columns_of(fc + "fc2", name + ".down", width, model.biases, share);
  };
  rank.whole(key + "router.weight", at + "router.weight", {facts.experts, model.hidden});
  if (model.biases)
    rank.whole(key + "router.logit_bias", at + "router.logit_bias", {facts.experts});
  if (facts.choice_bias) rank.whole(key + "router.bias", at + "router.bias", {facts.experts});
  for (std::int64_t expert = 0; expert < facts.experts; ++expert) {
    mlp(fmt::format("{}experts.{}.", key, expert), fmt::format("{}experts.{}", at, expert),
        model.expert_ffn_hidden(), rank.of_expert());
  }
  if (facts.shared_gate)
    rank.whole(key + "shared_gate.weight", at + "shared_gate.weight", {1, model.hidden});
  if (facts.shared_ffn_hidden != 0)
    mlp(key + "shared_", at + "shared", facts.shared_ffn_hidden, rank.of_tensor_rank());
}

// What a layer begins with. `stack`: of the keys and names of layers, "", "encoder." or "mtp.".
void add_mixer(RankTensors& rank, const ModelConfig& model, const MegatronLayout& layout,
               const PlacedLayer& place, std::string_view stack) {
  const std::string key = fmt::format("{}layers.{}.", stack, place.local);
  const std::string at = fmt::format("{}layers.{}.", stack, place.layer);
  const bool states = stack.empty() && model.has_states(place.layer);
  const bool mamba = states && model.state_space;
  rank.norm(key + (mamba    ? "mamba_start_norm"
                   : states ? "state_norm"
                            : "input_norm"),
            at + "attention_norm");
  if (mamba) return add_mamba(rank, model, layout, key, at + "mamba.");
  if (states) return add_delta(rank, model, layout, key, at + "delta.");
  add_attention(rank, model, layout, key, at + "attention.");
}

void add_layer(RankTensors& rank, const ModelConfig& model, const MegatronLayout& layout,
               const PlacedLayer& place, std::string_view stack) {
  const std::string key = fmt::format("{}layers.{}.", stack, place.local);
  const std::string at = fmt::format("{}layers.{}.", stack, place.layer);
  if (place.mixer) add_mixer(rank, model, layout, place, stack);
  if (model.encoder_decoder && stack.empty()) {
    const std::int64_t rows = model.heads * model.head_size;
    rank.norm(key + "cross_norm", at + "cross_norm");
    for (const bool bias : {false, true}) {
      if (bias && !model.qkv_biases) continue;
      rank.rows_of(key + "cross_q", {at + "cross.query"}, rows, bias);
      rank.cross_kv(key + "cross_kv", at + "cross.", bias);
    }
    rank.columns_of(key + "cross_dense", at + "cross.output", rows, model.output_bias);
  }
  if (!place.mlp) return;
  rank.norm(key + "post_norm", at + "mlp_norm");
  // Those that predict later tokens are like the last layer.
  if (model.has_experts(stack == kLaterKeys ? model.layers - 1 : place.layer)) {
    add_experts(rank, model, key, at + "mlp.");
    return;
  }
  const auto up = [&](const char* name, const std::vector<std::string>& parts) {
    rank.rows_of(key + name, parts, model.ffn_hidden, false);
    if (model.biases) rank.rows_of(key + name, parts, model.ffn_hidden, true);
  };
  if (!model.gated) {
    up("fc1", {at + "mlp.up"});
  } else if (layout.fused_mlp) {
    up("fc1", {at + "mlp.gate", at + "mlp.up"});
  } else {
    up("gate", {at + "mlp.gate"});
    up("up", {at + "mlp.up"});
  }
  rank.columns_of(key + "fc2", at + "mlp.down", model.ffn_hidden, model.biases);
}

void add_later_layer(RankTensors& rank, const ModelConfig& model, const MegatronLayout& layout,
                     std::int64_t layer) {
  const std::string at = fmt::format("{}layers.{}.", kLaterKeys, layer);
  rank.norm(at + "token_norm", at + "token_norm");
  rank.norm(at + "hidden_norm", at + "hidden_norm");
  rank.rows_of_width(at + "projection", at + "projection", model.hidden, 2 * model.hidden);
  add_layer(rank, model, layout, {layer, layer}, kLaterKeys);
  rank.norm(at + "final_norm", at + "final_norm");
}

void add_encoder_heads(RankTensors& rank, const ModelConfig& model) {
  const auto linear = [&](const std::string& key, const std::string& name, std::int64_t rows) {
    rank.whole(key + ".weight", name + ".weight", {rows, model.hidden});
    rank.whole(key + ".bias", name + ".bias", {rows});
  };
  linear("lm_dense", "head.dense", model.hidden);
  rank.norm("lm_norm", "head.norm");
  if (!model.encoder->pair_head) return;
  linear("pooler", "pooler", model.hidden);
  linear("binary_head", "pair_head", 2);
}

}  // namespace

MegatronStacks megatron_stacks(const ModelConfig& model) {
  if (model.state_space) return MegatronStacks::kHybrid;
  if (model.encoder_decoder) return MegatronStacks::kBoth;
  return model.encoder ? MegatronStacks::kEncoder : MegatronStacks::kDecoder;
}

void MegatronLayout::check(const ModelConfig& model) const {
  const char* tensor_flag = "--target-tensor-parallel-size";
  const char* pipeline_flag = "--target-pipeline-parallel-size";
  if (tensor < 1) throw Error(Fault::kUsage, "{}: got {}, wanted 1 or more", tensor_flag, tensor);
  if (pipeline < 1)
    throw Error(Fault::kUsage, "{}: got {}, wanted 1 or more", pipeline_flag, pipeline);
  if (chunks < 1 || (chunks > 1 && pipeline == 1)) {
    throw Error(
        Fault::kUsage,
        "--num-layers-per-virtual-pipeline-stage: virtual stages need two pipeline ranks or "
        "more");
  }
  if (model.encoder_decoder && pipeline > 1) {
    throw Error(
        Fault::kUsage,
        "{}: got {}, wanted 1: a model of an encoder and a decoder (t5) is not divided into "
        "stages in these files",
        pipeline_flag, pipeline);
  }
  must_divide("heads", model.heads, tensor_flag, tensor);
  must_divide("groups of heads", model.groups, tensor_flag, tensor);
  if (model.latent && split_latents && !joined_latents) {
    must_divide("channels of the small rows (--q-lora-rank)", model.latent->query_rank, tensor_flag,
                tensor);
    must_divide("channels of the latents (--kv-lora-rank, --qk-pos-emb-head-dim)",
                model.latent->rank + model.latent->turned, tensor_flag, tensor);
  }
  if (model.delta) check_delta_heads(*model.delta, tensor_flag, tensor);
  if (model.state_space) check_state_space_layout(*this, *model.state_space, tensor_flag);
  if (model.mtp_layers > 0)
    must_divide("channels (--hidden-size)", model.hidden, tensor_flag, tensor);
  must_divide("columns of the MLP (--ffn-hidden-size)", model.ffn_hidden, tensor_flag, tensor);
  const char* expert_flag = "--target-expert-parallel-size";
  if (expert < 1) throw Error(Fault::kUsage, "{}: got {}, wanted 1 or more", expert_flag, expert);
  if (expert > 1 && !model.experts)
    throw Error(Fault::kUsage, "{}: got {}, wanted 1: the model has no experts", expert_flag,
                expert);
  if (model.experts) {
    must_divide("experts of a layer", model.experts->experts, expert_flag, expert);
    must_divide("columns of an expert (--moe-ffn-hidden-size)", model.expert_ffn_hidden(),
                tensor_flag, expert_tensor == 0 ? tensor : expert_tensor);
    must_divide("columns of the MLP that all tokens share", model.experts->shared_ffn_hidden,
                tensor_flag, tensor);
  }
  must_divide("rows of the table", padded_vocabulary, tensor_flag, tensor);
  if (padded_vocabulary - model.vocabulary > kMostPadding) {
    throw Error(Fault::kUsage,
                "--make-vocab-size-divisible-by, --added-token-num: got a table of {} rows for a "
                "vocabulary of {}, wanted at most {} rows of padding",
                padded_vocabulary, model.vocabulary, kMostPadding);
  }
  const std::int64_t places = megatron_layer_count(model) + std::ssize(empty_layers);
  for (std::size_t i = 0; i < empty_layers.size(); ++i) {
    const std::int64_t place = empty_layers[i];
    if (place < 0 || place >= places || (i > 0 && place <= empty_layers[i - 1])) {
      throw Error(Fault::kUsage, "--noop-layers: got {}, wanted ascending places below {}",
                  fmt::join(empty_layers, ","), places);
    }
  }
  if (stage_layers.empty()) {
    must_divide("layers", places, pipeline_flag, std::int64_t{pipeline} * chunks);
    return;
  }
  const bool fits = std::ranges::all_of(
      stage_layers, [&](std::int64_t layers) { return layers > 0 && layers <= places; });
  if (!fits || std::ssize(stage_layers) != pipeline ||
      std::accumulate(stage_layers.begin(), stage_layers.end(), std::int64_t{0}) != places) {
    throw Error(Fault::kUsage,
                "--num-layer-list: got {}, wanted {} numbers (of {}) with a sum of {}, the layers",
                fmt::join(stage_layers, ","), pipeline, pipeline_flag, places);
  }
  if (chunks > 1) {
    throw Error(Fault::kUsage,
                "--num-layer-list: has no virtual stages; leave out "
                "--num-layers-per-virtual-pipeline-stage");
  }
}

std::int64_t megatron_layer_count(const ModelConfig& model) {
  return model.state_space ? std::ssize(pattern_letters(model)) : model.layers;
}

std::vector<PlacedLayer> megatron_layers(const ModelConfig& model, const MegatronLayout& layout,
                                         int p, int chunk) {
  const std::int64_t places = megatron_layer_count(model) + std::ssize(layout.empty_layers);
  std::int64_t count = places / (std::int64_t{layout.pipeline} * layout.chunks);
  std::int64_t begin = (std::int64_t{chunk} * layout.pipeline + p) * count;
  if (!layout.stage_layers.empty()) {
    const auto stage = layout.stage_layers.begin() + p;
    count = *stage;
    begin = std::accumulate(layout.stage_layers.begin(), stage, std::int64_t{0});
  }
  const std::vector<PatternLetter> letters = pattern_letters(model);
  std::vector<PlacedLayer> layers;
  for (std::int64_t local = 0; local < count; ++local) {
    const auto empty = std::ranges::lower_bound(layout.empty_layers, begin + local);
    if (empty != layout.empty_layers.end() && *empty == begin + local) continue;
    const std::int64_t number = begin + local - (empty - layout.empty_layers.begin());
    if (letters.empty()) {
      layers.push_back({local, number});
    } else {
      const auto [layer, mlp] = letters[static_cast<std::size_t>(number)];
      layers.push_back({.local = local, .layer = layer, .mixer = !mlp, .mlp = mlp});
    }
  }
  return layers;
}

std::vector<MegatronTensor> megatron_tensors(const ModelConfig& model, const MegatronLayout& layout,
                                             int t, int p, int chunk) {
  RankTensors rank(model, layout, t);
  const bool first = p == 0 && chunk == 0;
  const bool last = p == layout.pipeline - 1 && chunk == layout.chunks - 1;
  if (first || (last && model.mtp_layers > 0)) {
    rank.table("word_embeddings.weight", "embedding.token.weight");
    if (model.positions == PositionKind::kLearned) {
      rank.whole("position_embeddings.weight", "embedding.position.weight",
                 {model.max_positions, model.hidden});
    }
  }
  if (first && model.encoder && model.encoder->token_types > 0) {
    rank.whole("token_types.weight", "embedding.type.weight",
               {model.encoder->token_types, model.hidden});
  }
  if (first && model.embedding_norm) rank.norm("embedding_norm", "embedding.norm");
  if (model.encoder_decoder) {
    for (std::int64_t layer = 0; layer < model.encoder_decoder->encoder_layers; ++layer)
      add_layer(rank, model, layout, {layer, layer}, kEncoderKeys);
    rank.norm("encoder.final_norm", "encoder.final_norm");
  }
  for (const PlacedLayer& one : megatron_layers(model, layout, p, chunk))
    add_layer(rank, model, layout, one, "");
  if (last) {
    rank.norm("final_norm", "final_norm");
    for (std::int64_t layer = 0; layer < model.mtp_layers; ++layer)
      add_later_layer(rank, model, layout, layer);
    if (model.encoder) add_encoder_heads(rank, model);
    if (model.encoder || (model.encoder_decoder && model.encoder_decoder->head_bias))
      rank.row_biases("output.bias", "head.bias");
    if (!model.tied) rank.table("output.weight", "head.weight");
    if (model.tied && !first && layout.head_copy)
      rank.table("head_copy.weight", "embedding.token.weight");
  }
  return rank.take();
}

Shape MegatronTensor::shape() const {
  const Shape& own = assembly.shape;
  if (own.ndim() < 2 || key.find("_filter.") == key.npos) return own;
  return {own[0], 1, own[1]};
}

NormsApart::NormsApart(const ModelConfig& model, const std::vector<MegatronTensor>& tensors)
    : latent_(model.latent.has_value()) {
  constexpr std::string_view kRouter = "router.weight";
  for (const MegatronTensor& tensor : tensors) {
    if (tensor.key.ends_with(kRouter))
      with_experts_.insert(tensor.key.substr(0, tensor.key.size() - kRouter.size()));
  }
}

bool NormsApart::contain(std::string_view key) const {
  if (!key.starts_with("layers.") && !key.starts_with(kLaterKeys)) return false;
  if (latent_ && key.find(".input_norm.") != key.npos) return true;
  const std::size_t norm = key.rfind("post_norm.");
  return norm != key.npos && with_experts_.contains(key.substr(0, norm));
}

std::vector<MegatronTensor> tensors_of_expert_rank(std::vector<MegatronTensor> tensors,
                                                   const ModelConfig& model,
                                                   const MegatronLayout& layout, int expert) {
  if (layout.expert == 1) return tensors;
  const std::int64_t own = model.experts->experts / layout.expert;
  std::vector<MegatronTensor> result;
  for (MegatronTensor& tensor : tensors) {
    const std::optional<std::int64_t> number = expert_of_key(tensor.key);
    if (number && *number / own != expert) continue;
    if (number) tensor.key = with_expert(tensor.key, *number % own);
    result.push_back(std::move(tensor));
  }
  return result;
}

DType written_dtype(const Assembly& tensor, std::optional<DType> chosen,
                    const std::map<std::string, DType>& stored) {
  const std::string name = tensor.parts.empty() ? "" : tensor.parts.front().name;
  if (is_choice_bias(name)) return DType::kF32;
  // As its layer, though what it is made of may be wider (norm_gains.h).
  constexpr std::string_view kGain = ".delta.norm.weight";
  if (!chosen && name.ends_with(kGain))
    return stored.at(name.substr(0, name.size() - kGain.size()) + ".delta.output.weight");
  return chosen.value_or(dtype_of(tensor, stored));
}

std::int64_t megatron_padded_vocabulary(std::int64_t vocabulary, std::int64_t multiple,
                                        int tensor) {
  const std::int64_t step = multiple * tensor;
  return (vocabulary + step - 1) / step * step;
}

}  // namespace piton
