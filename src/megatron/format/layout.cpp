#include "megatron/format/layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "nn/expert_mlp.h"

namespace piton {
namespace {

// Each row of padding is a separate part.
constexpr std::int64_t kMostPadding = std::int64_t{1} << 20;

void must_divide(const char* what, std::int64_t size, const char* flag, std::int64_t parts) {
  if (size % parts == 0) return;
  throw Error(Fault::kUsage, "{}: got {}, wanted a divisor of the {} {}", flag, parts, size, what);
}

// Collects the tensors of one rank's chunk, in the order of the model.
class RankTensors {
 public:
  RankTensors(const ModelConfig& model, const MegatronLayout& layout, int t)
      : model_(model), layout_(layout), t_(t) {}

  std::vector<MegatronTensor> take() { return std::move(tensors_); }

  // A whole canonical tensor.
  void whole(const std::string& key, const std::string& name, const Shape& shape) {
    add(key, Assembly::of(name, shape));
  }

  void norm(const std::string& key, const std::string& name) {
    whole(key + ".weight", name + ".weight", {model_.hidden});
    if (model_.norm == NormKind::kLayer) whole(key + ".bias", name + ".bias", {model_.hidden});
  }

  // Rows of the table; the last ones are padding.
  void table(const std::string& key, const std::string& name) {
    const std::int64_t rows = layout_.padded_vocabulary / layout_.tensor;
    const std::int64_t first = t_ * rows;
    const std::int64_t own = std::clamp<std::int64_t>(model_.vocabulary - first, 0, rows);
    Assembly table{.shape = {rows, model_.hidden}};
    if (own > 0)
      table.parts.push_back(box(
          name,
          {.first = first, .rows = own, .first_column = 0, .columns = model_.hidden, .row = 0}));
    for (std::int64_t row = own; row < rows; ++row)
      table.parts.push_back(box(name, {.first = model_.vocabulary - 1,
                                       .rows = 1,
                                       .first_column = 0,
                                       .columns = model_.hidden,
                                       .row = row}));
    add(key, std::move(table));
  }

  // A number for each row of the table; those of padding are 0.
  void row_biases(const std::string& key, const std::string& name) {
    const std::int64_t rows = layout_.padded_vocabulary / layout_.tensor;
    const std::int64_t first = t_ * rows;
    const std::int64_t own = std::clamp<std::int64_t>(model_.vocabulary - first, 0, rows);
    Assembly biases{.shape = {rows}};
    if (own > 0) biases.parts.push_back(box(name, {.first = first, .rows = own}));
    if (own < rows) biases.parts.push_back(box("", {.first = 0, .rows = rows - own, .row = own}));
    add(key, std::move(biases));
  }

  // Keys and values of attention to an encoder, head by head.
  void cross_kv(const std::string& key, const std::string& at, bool bias) {
    const std::int64_t d = model_.head_size;
    const std::int64_t heads = model_.heads / layout_.tensor;
    const std::int64_t columns = bias ? 0 : model_.hidden;
    const std::string end = bias ? ".bias" : ".weight";
    Assembly packed{.shape = shape(2 * heads * d, columns)};
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t first = (t_ * heads + head) * d;
      for (const auto& [which, row] :
           {std::pair{"key", 2 * head * d}, {"value", (2 * head + 1) * d}}) {
        packed.parts.push_back(
            box(at + which + end, {.first = first, .rows = d, .columns = columns, .row = row}));
      }
    }
    add(key + end, std::move(packed));
  }

  void qkv(const std::string& key, const std::string& at, bool bias) {
    const std::int64_t d = model_.head_size;
    const std::int64_t groups = model_.groups / layout_.tensor;
    const std::int64_t share = model_.heads / model_.groups;
    const std::int64_t columns = bias ? 0 : model_.hidden;
    const std::string end = bias ? ".bias" : ".weight";
    const std::string names[] = {at + "query" + end, at + "key" + end, at + "value" + end};
    Assembly packed{.shape = shape(groups * (share + 2) * d, columns)};
    const auto part = [&](int which, std::int64_t first, std::int64_t rows, std::int64_t row) {
      packed.parts.push_back(
          box(names[which],
              {.first = first, .rows = rows, .first_column = 0, .columns = columns, .row = row}));
    };
    if (layout_.version >= 2) {
      for (std::int64_t group = 0; group < groups; ++group) {
        const std::int64_t whole = t_ * groups + group;
        const std::int64_t row = group * (share + 2) * d;
        part(0, whole * share * d, share * d, row);
        part(1, whole * d, d, row + share * d);
        part(2, whole * d, d, row + (share + 1) * d);
      }
    } else {
      const std::int64_t rows = groups * d;
      for (int which = 0; which < 3; ++which) {
        if (layout_.version < 1) {
          part(which, t_ * rows, rows, which * rows);
        } else {
          for (std::int64_t i = 0; i < rows; ++i) part(which, t_ * rows + i, 1, 3 * i + which);
        }
      }
    }
    add(key + end, std::move(packed));
  }

  // Which of so many parts a rank has of a matrix.
  struct Share {
    std::int64_t rank = 0;
    std::int64_t ranks = 1;
  };
  Share of_tensor_rank() const { return {t_, layout_.tensor}; }
  Share of_expert() const {
    const int ranks = layout_.expert_tensor == 0 ? layout_.tensor : layout_.expert_tensor;
    return {t_ % ranks, ranks};
  }

  // Rows of one or more matrices, concatenated.
  void rows_of(const std::string& key, const std::vector<std::string>& names, std::int64_t rows,
               bool bias) {
    rows_of(key, names, rows, bias, of_tensor_rank());
  }
  void rows_of(const std::string& key, const std::vector<std::string>& names, std::int64_t rows,
               bool bias, const Share& share) {
    const std::string end = bias ? ".bias" : ".weight";
    const std::int64_t columns = bias ? 0 : model_.hidden;
    const std::int64_t own = rows / share.ranks;
    Assembly packed{.shape = shape(own * std::ssize(names), columns)};
    for (std::int64_t i = 0; i < std::ssize(names); ++i) {
      packed.parts.push_back(
          box(names[static_cast<std::size_t>(i)] + end, {.first = share.rank * own,
                                                         .rows = own,
                                                         .first_column = 0,
                                                         .columns = columns,
                                                         .row = i * own}));
    }
    add(key + end, std::move(packed));
  }

  // Columns of a matrix; its bias is whole.
  void columns_of(const std::string& key, const std::string& name, std::int64_t columns,
                  bool bias) {
    columns_of(key, name, columns, bias, of_tensor_rank());
  }
  void columns_of(const std::string& key, const std::string& name, std::int64_t columns, bool bias,
                  const Share& share) {
    const std::int64_t own = columns / share.ranks;
    add(key + ".weight", {.shape = {model_.hidden, own},
                          .parts = {box(name + ".weight", {.first = 0,
                                                           .rows = model_.hidden,
                                                           .first_column = share.rank * own,
                                                           .columns = own,
                                                           .row = 0})}});
    if (bias) whole(key + ".bias", name + ".bias", {model_.hidden});
  }

 private:
  static Shape shape(std::int64_t rows, std::int64_t columns) {
    return columns > 0 ? Shape{rows, columns} : Shape{rows};
  }
  // A part of a canonical tensor.
  struct Box {
    std::int64_t first = 0;  // row
    std::int64_t rows = 0;
    std::int64_t first_column = 0;
    std::int64_t columns = 0;  // 0: the tensor has one dim
    std::int64_t row = 0;      // of the assembled tensor: where the rows begin
  };
  static AssemblyPart box(const std::string& name, const Box& box) {
    AssemblyPart part{.name = name, .start = {box.first}, .extent = {box.rows}, .row = box.row};
    if (box.columns > 0) {
      part.start.append(box.first_column);
      part.extent.append(box.columns);
    }
    return part;
  }
  void add(const std::string& key, Assembly assembly) {
    tensors_.push_back({key, std::move(assembly)});
  }

  const ModelConfig& model_;
  const MegatronLayout& layout_;
  std::int64_t t_;
  std::vector<MegatronTensor> tensors_;
};

// Of a layer with experts, in place of its MLP.
void add_experts(RankTensors& rank, const ModelConfig& model, const std::string& key,
                 const std::string& at) {
  const ExpertFacts& facts = *model.experts;
  const auto mlp = [&](const std::string& fc, const std::string& name, std::int64_t width,
                       const RankTensors::Share& share) {
    std::vector<std::string> up{name + ".up"};
    if (model.gated) up.insert(up.begin(), name + ".gate");
    rank.rows_of(fc + "fc1", up, width, false, share);
    rank.columns_of(fc + "fc2", name + ".down", width, false, share);
  };
  rank.whole(key + "router.weight", at + "router.weight", {facts.experts, model.hidden});
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

// `stack`: of the keys and names of its layers, "" or "encoder.".
void add_layer(RankTensors& rank, const ModelConfig& model, const MegatronLayout& layout,
               const PlacedLayer& place, std::string_view stack) {
  const std::string key = fmt::format("{}layers.{}.", stack, place.local);
  const std::string at = fmt::format("{}layers.{}.", stack, place.layer);
  rank.norm(key + "input_norm", at + "attention_norm");
  rank.qkv(key + "qkv", at + "attention.", false);
  if (model.qkv_biases) rank.qkv(key + "qkv", at + "attention.", true);
  if (model.head_norms) {
    const Shape head{model.head_size};
    rank.whole(key + "q_norm.weight", at + "attention.query_norm.weight", head);
    rank.whole(key + "k_norm.weight", at + "attention.key_norm.weight", head);
  }
  rank.columns_of(key + "dense", at + "attention.output", model.heads * model.head_size,
                  model.output_bias);
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
  rank.norm(key + "post_norm", at + "mlp_norm");
  if (model.has_experts(place.layer)) {
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
  const std::int64_t places = model.layers + std::ssize(empty_layers);
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

std::vector<PlacedLayer> megatron_layers(const ModelConfig& model, const MegatronLayout& layout,
                                         int p, int chunk) {
  const std::int64_t places = model.layers + std::ssize(layout.empty_layers);
  std::int64_t count = places / (std::int64_t{layout.pipeline} * layout.chunks);
  std::int64_t begin = (std::int64_t{chunk} * layout.pipeline + p) * count;
  if (!layout.stage_layers.empty()) {
    const auto stage = layout.stage_layers.begin() + p;
    count = *stage;
    begin = std::accumulate(layout.stage_layers.begin(), stage, std::int64_t{0});
  }
  std::vector<PlacedLayer> layers;
  for (std::int64_t local = 0; local < count; ++local) {
    const auto empty = std::ranges::lower_bound(layout.empty_layers, begin + local);
    if (empty != layout.empty_layers.end() && *empty == begin + local) continue;
    layers.push_back({local, begin + local - (empty - layout.empty_layers.begin())});
  }
  return layers;
}

std::vector<MegatronTensor> megatron_tensors(const ModelConfig& model, const MegatronLayout& layout,
                                             int t, int p, int chunk) {
  RankTensors rank(model, layout, t);
  const bool first = p == 0 && chunk == 0;
  const bool last = p == layout.pipeline - 1 && chunk == layout.chunks - 1;
  if (first) {
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
    if (model.encoder) add_encoder_heads(rank, model);
    if (model.encoder || (model.encoder_decoder && model.encoder_decoder->head_bias))
      rank.row_biases("output.bias", "head.bias");
    if (!model.tied) rank.table("output.weight", "head.weight");
    if (model.tied && !first && layout.head_copy)
      rank.table("head_copy.weight", "embedding.token.weight");
  }
  return rank.take();
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
  if (!tensor.parts.empty() && is_choice_bias(tensor.parts.front().name)) return DType::kF32;
  return chosen.value_or(dtype_of(tensor, stored));
}

std::int64_t megatron_padded_vocabulary(std::int64_t vocabulary, std::int64_t multiple,
                                        int tensor) {
  const std::int64_t step = multiple * tensor;
  return (vocabulary + step - 1) / step * step;
}

}  // namespace piton
