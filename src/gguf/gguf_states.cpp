#include "gguf/gguf_states.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gguf/forms.h"
#include "gguf/state_keys.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

constexpr const char* kKeyValueHeads = "attention.head_count_kv";
constexpr std::int64_t kMostHeads = 65536;
constexpr const char* kWidths = "feed_forward_length";

std::vector<std::int64_t> widths_of_layers(const GgufKeys& keys, const ModelConfig& model) {
  const GgufValue* list = keys.find(kWidths);
  const char* wanted = "a number for each layer";
  if (list == nullptr || list->kind != GgufKind::kArray) keys.refuse(kWidths, wanted);
  std::vector<std::int64_t> widths = list->integers();
  if (std::ssize(widths) != model.layers) keys.refuse(kWidths, wanted);
  return widths;
}

// The key-value heads of each layer.
std::vector<std::int64_t> heads_of_layers(const GgufKeys& keys, const ModelConfig& model) {
  const GgufValue* list = keys.find(kKeyValueHeads);
  if (list == nullptr || list->kind != GgufKind::kArray) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(model.layers),
                                     keys.count(kKeyValueHeads, model.heads));
  }
  std::vector<std::int64_t> counts = list->integers();
  if (std::ssize(counts) != model.layers) keys.refuse(kKeyValueHeads, "a number for each layer");
  return counts;
}

// A number that is the same in some layers, and 0 in the others.
struct SomeLayers {
  std::int64_t number = 0;  // 0: in all
  std::vector<std::int64_t> layers;
};

// `what` those layers have, at most so many of it.
SomeLayers layers_with(const char* what, const std::vector<std::int64_t>& numbers,
                       const GgufKeys& keys, const char* key, std::int64_t most) {
  SomeLayers some;
  for (std::int64_t layer = 0; layer < std::ssize(numbers); ++layer) {
    const std::int64_t number = numbers[static_cast<std::size_t>(layer)];
    if (number == 0) continue;
    if (number < 0 || number > most || (some.number != 0 && number != some.number))
      keys.refuse(key, fmt::format("the same number in all layers with {}, 0 in others", what));
    some.number = number;
    some.layers.push_back(layer);
  }
  return some;
}

// Sets the number of key-value heads of these layers; 0 if there are none.
std::vector<std::int64_t> layers_with_attention(const GgufKeys& keys, ModelConfig& model) {
  SomeLayers some =
      layers_with("attention", heads_of_layers(keys, model), keys, kKeyValueHeads, kMostHeads);
  model.groups = some.number;
  return std::move(some.layers);
}

// The letters of blocks; sets the width of MLPs, 0 if there are none.
std::string letters_of_blocks(const GgufKeys& keys, ModelConfig& model) {
  constexpr std::int64_t kWidest = (std::int64_t{1} << 31) - 1;
  std::string letters(static_cast<std::size_t>(model.layers), 'M');
  for (const std::int64_t block : layers_with_attention(keys, model))
    letters[static_cast<std::size_t>(block)] = '*';
  const SomeLayers mlps =
      layers_with("an MLP", widths_of_layers(keys, model), keys, kWidths, kWidest);
  model.ffn_hidden = mlps.number;
  for (const std::int64_t block : mlps.layers) {
    char& letter = letters[static_cast<std::size_t>(block)];
    if (letter == '*') keys.refuse(kWidths, "0 in layers with attention");
    letter = '-';
  }
  return letters;
}

void write_heads_of_layers(const ModelConfig& model, GgufDescription& out) {
  if (!(model.bare_layers.empty() && model.mlp_layers.empty()))
    throw Error(Fault::kData, "llama.cpp has an MLP or experts in each layer there");
  if (model.state_layers() == model.layers)
    throw Error(Fault::kData, "llama.cpp has attention in some layer there");
  std::vector<std::int32_t> counts;
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    counts.push_back(model.has_states(layer) ? 0 : static_cast<std::int32_t>(model.groups));
  out.add(kKeyValueHeads, GgufValue::numbers(std::span<const std::int32_t>(counts)));
  write_gguf_head_size(model, out);
}

}  // namespace

void read_gguf_states(const GgufKeys& keys, ModelConfig& model) {
  StateSpaceFacts facts{.heads = state_size(keys, kStateHeads),
                        .groups = state_size(keys, kStateGroups),
                        .state_size = state_size(keys, kStateSize),
                        .width = keys.size(kFilterWidth)};
  const std::int64_t values = keys.size(kInnerSize);
  if (values % facts.heads != 0)
    keys.refuse(kInnerSize, fmt::format("a multiple of {}, which is {}", kStateHeads, facts.heads));
  facts.head_size = values / facts.heads;
  if (facts.heads % facts.groups != 0)
    keys.refuse(kStateGroups,
                fmt::format("a divisor of {}, which is {}", kStateHeads, facts.heads));
  model.state_space = facts;
}

void write_gguf_states(const ModelConfig& model, GgufDescription& out) {
  const StateSpaceFacts& facts = *model.state_space;
  out.add(kFilterWidth, GgufValue::u32(facts.width));
  out.add(kStateSize, GgufValue::u32(facts.state_size));
  out.add(kStateGroups, GgufValue::u32(facts.groups));
  out.add(kStateHeads, GgufValue::u32(facts.heads));
  out.add(kInnerSize, GgufValue::u32(facts.values()));
}

void read_hybrid_heads(const GgufKeys& keys, ModelConfig& model) {
  read_gguf_states(keys, model);
  std::vector<std::int64_t> attention = layers_with_attention(keys, model);
  model.state_space->attention_layers = attention;
  if (std::ssize(attention) == model.layers) model.state_space.reset();
  if (attention.empty()) return drop_parts_of_no_layer(model);
  read_gguf_head_size(keys, model);
}

void write_hybrid_heads(const ModelConfig& model, GgufDescription& out) {
  const StateSpaceFacts& facts = *model.state_space;
  write_heads_of_layers(model, out);
  if (facts.values() == 2 * model.hidden) return;
  throw Error(Fault::kData,
              "llama.cpp has heads of Mamba-2 that are together twice as wide as the stream there, "
              "and these have {} channels, of a stream of {}",
              facts.values(), model.hidden);
}

void read_convolution_heads(const GgufKeys& keys, ModelConfig& model) {
  ShortConvolutionFacts facts{.attention_layers = layers_with_attention(keys, model),
                              .width = keys.size(kConvolutionWidth)};
  if (facts.attention_layers.empty())
    keys.refuse(kKeyValueHeads, "heads in some layer, as llama.cpp has them there");
  if (facts.width < 2) keys.refuse(kConvolutionWidth, "2 or more rows, as llama.cpp has them");
  if (std::ssize(facts.attention_layers) == model.layers)
    keys.refuse(kKeyValueHeads, "0 in some layer, as llama.cpp has convolutions there");
  model.short_convolution = facts;
  read_gguf_head_size(keys, model);
}

void write_convolution_heads(const ModelConfig& model, GgufDescription& out) {
  const ShortConvolutionFacts& facts = *model.short_convolution;
  if (facts.biases) throw Error(Fault::kData, "llama.cpp has no biases of short convolutions");
  if (facts.width < 2)
    throw Error(Fault::kData, "llama.cpp has short convolutions of 2 or more rows");
  out.add(kConvolutionWidth, GgufValue::u32(facts.width));
  write_heads_of_layers(model, out);
}

void read_gguf_letters(const GgufKeys& keys, ModelConfig& model) {
  model.heads = keys.size("attention.head_count");
  read_gguf_states(keys, model);
  StateSpaceOptions options;
  options.pattern = letters_of_blocks(keys, model);
  options.set_layers(model);
  if (model.groups != 0) read_gguf_head_size(keys, model);
  drop_parts_of_no_layer(model);
}

void write_gguf_letters(const ModelConfig& model, GgufDescription& out) {
  std::vector<std::int32_t> heads;
  std::vector<std::int32_t> widths;
  for (const auto& [layer, mlp] : pattern_letters(model)) {
    if (mlp && model.experts && !model.has_experts(layer))
      throw Error(Fault::kData, "llama.cpp has experts in place of all MLPs there");
    const bool attention = !mlp && !model.has_states(layer);
    const std::int64_t width =
        model.has_experts(layer) ? model.expert_ffn_hidden() : model.ffn_hidden;
    heads.push_back(attention ? static_cast<std::int32_t>(model.groups) : 0);
    widths.push_back(mlp ? static_cast<std::int32_t>(width) : 0);
  }
  out.add(kWidths, GgufValue::numbers(std::span<const std::int32_t>(widths)));
  out.add("attention.head_count", GgufValue::u32(model.heads));
  out.add(kKeyValueHeads, GgufValue::numbers(std::span<const std::int32_t>(heads)));
  write_gguf_head_size(model, out);
  write_gguf_states(model, out);
  // llama.cpp asks for it; the other one counts if both are there.
  out.add(kLayerNormEps, GgufValue::f32(model.norm_eps));
}

void drop_parts_of_no_layer(ModelConfig& model) {
  if (!model.state_space) return;
  const ModelConfig usual;
  if (model.state_space->attention_layers.empty()) {
    model.heads = model.groups = 1;
    model.head_size = model.hidden;
    model.qkv_biases = model.output_bias = false;
    model.score_factor.reset();
    model.query_scalar.reset();
    if (model.positions == PositionKind::kRotary) {
      model.positions = PositionKind::kNone;
      model.rotary_base = usual.rotary_base;
      model.rotary_share = usual.rotary_share;
      model.rotary_scaling = usual.rotary_scaling;
    }
  }
  if (std::ssize(model.bare_layers) == model.layers) model.ffn_hidden = 4 * model.hidden;
  if (!model.experts) return;
  for (const std::int64_t layer : model.experts->dense_layers)
    if (model.has_mlp(layer)) return;
  model.ffn_hidden = model.expert_ffn_hidden();
  model.experts->ffn_hidden = 0;
}

void place_states(const StateSpaceFacts& facts, std::string_view part, GgufPlace& place) {
  if (!part.starts_with("mamba.")) return;
  if (part == "mamba.rate") place.transform = GgufTransform::kRate;
  if (part == "mamba.rate" || part == "mamba.skip") place.columns = 1;
  if (part.starts_with("mamba.norm.")) place.columns = facts.values() / facts.groups;
  const bool filter = part.find("_filter") != std::string_view::npos;
  const std::int64_t value = filter ? 0 : facts.values();  // after the gate
  const std::int64_t key = value + facts.values();
  if (part.starts_with("mamba.value")) place.first = value;
  if (part.starts_with("mamba.key")) place.first = key;
  if (part.starts_with("mamba.query")) place.first = key + facts.keys();
  if (part.starts_with("mamba.step.")) place.first = key + 2 * facts.keys();
}

}  // namespace piton
