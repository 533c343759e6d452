#include "gguf/gguf_delta.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "gguf/state_keys.h"

namespace piton {
namespace {

constexpr const char* kAttentionInterval = "full_attention_interval";
constexpr const char* kRecurrentLayers = "attention.recurrent_layers";
constexpr std::int64_t kUsualAttentionInterval = 4;

std::int64_t attention_every(const GgufKeys& keys, std::int64_t layers) {
  const GgufValue* list = keys.find(kRecurrentLayers);
  if (list == nullptr) return keys.size(kAttentionInterval, kUsualAttentionInterval);
  std::vector<bool> flags = list->flags();
  if (std::ssize(flags) < layers) keys.refuse(kRecurrentLayers, "a flag for each layer");
  flags.resize(static_cast<std::size_t>(layers));  // without those that predict later tokens
  const auto first = std::ranges::find(flags, false);
  const std::int64_t every =
      first == flags.end() ? keys.size(kAttentionInterval, layers + 1) : first - flags.begin() + 1;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    if (flags[static_cast<std::size_t>(layer)] != ((layer + 1) % every != 0))
      keys.refuse(kRecurrentLayers, "layers with attention in equal distances");
  }
  return every;
}

// Of queries and keys, which are as wide.
std::int64_t key_channels(const DeltaFacts& facts) { return facts.key_heads * facts.key_size; }

// Rows of several matrices in one tensor, those of a key head of each in turn.
struct OfKeyHead {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t all = 0;
};

void interleave(const char* name, const OfKeyHead& head, GgufPlace& place) {
  place.name = name;
  place.first = head.first;
  place.chunk = head.rows;
  place.stride = head.all;
}

// Where the channels of query, key and value are in one tensor of all three.
std::int64_t first_channel(const DeltaFacts& facts, std::string_view part) {
  if (part.starts_with("delta.key")) return key_channels(facts);
  return part.starts_with("delta.value") ? 2 * key_channels(facts) : 0;
}

// As Qwen3-Next's own files have them: query, key, value and gate of each key head in turn.
void place_joint_input(const DeltaFacts& facts, std::string_view part, GgufPlace& place) {
  const std::int64_t d = facts.key_size;
  const std::int64_t values = facts.value_heads / facts.key_heads * facts.value_size;
  const std::int64_t all = 2 * (d + values);
  if (part.starts_with("delta.query.")) interleave("ssm_in.", {0, d, all}, place);
  if (part.starts_with("delta.key.")) interleave("ssm_in.", {d, d, all}, place);
  if (part.starts_with("delta.value.")) interleave("ssm_in.", {2 * d, values, all}, place);
  if (part.starts_with("delta.gate.")) interleave("ssm_in.", {2 * d + values, values, all}, place);
}

// Rows of decay and strength that belong to a key head.
void place_by_key_heads(const DeltaFacts& facts, std::string_view part, GgufPlace& place) {
  const std::int64_t shared = facts.value_heads / facts.key_heads;
  if (part.starts_with("delta.strength.")) interleave("ssm_ba.", {0, shared, 2 * shared}, place);
  if (part.starts_with("delta.decay.")) interleave("ssm_ba.", {shared, shared, 2 * shared}, place);
}

void tile_heads(const DeltaFacts& facts, std::string_view part, GgufPlace& place) {
  TiledHeads heads{.keys = facts.key_heads,
                   .shared = facts.value_heads / facts.key_heads,
                   .size = facts.value_size};
  if (heads.keys == 1 || heads.shared == 1) return;  // the same order
  const auto is = [&](std::string_view name) { return part.starts_with(name); };
  if (is("delta.output.")) place.tiled_columns = heads;
  if (is("delta.value.") || is("delta.value_filter") || is("delta.gate.")) place.tiled_rows = heads;
  heads.size = 1;
  if (is("delta.strength.") || is("delta.decay.") || is("delta.decay_bias") || is("delta.rate"))
    place.tiled_rows = heads;
}

}  // namespace

void read_gguf_delta(const GgufKeys& keys, ModelConfig& model) {
  DeltaFacts facts{.attention_every = attention_every(keys, model.layers),
                   .key_heads = state_size(keys, kStateGroups),
                   .value_heads = state_size(keys, kStateHeads),
                   .key_size = state_size(keys, kStateSize),
                   .width = keys.size(kFilterWidth)};
  facts.value_size = facts.key_size;
  if (facts.value_heads % facts.key_heads != 0)
    keys.refuse(kStateHeads,
                fmt::format("a multiple of {}, which is {}", kStateGroups, facts.key_heads));
  const std::int64_t inner = facts.value_heads * facts.value_size;
  if (keys.size(kInnerSize) != inner)
    keys.refuse(kInnerSize, fmt::format("{}, {} times {}", inner, kStateHeads, kStateSize));
  model.delta = facts;
  // The first layer with attention has them if all have.
  model.qkv_biases = keys.has_tensor(fmt::format("blk.{}.attn_q.bias", facts.attention_every - 1));
}

void write_gguf_delta(const ModelConfig& model, GgufDescription& out) {
  const DeltaFacts& facts = *model.delta;
  if (facts.value_size != facts.key_size) {
    throw Error(Fault::kData,
                "llama.cpp has values of the gated delta rule as wide as keys, and these have {} "
                "and {} channels",
                facts.value_size, facts.key_size);
  }
  out.add(kFilterWidth, GgufValue::u32(facts.width));
  out.add(kStateSize, GgufValue::u32(facts.key_size));
  out.add(kStateGroups, GgufValue::u32(facts.key_heads));
  out.add(kStateHeads, GgufValue::u32(facts.value_heads));
  out.add(kInnerSize, GgufValue::u32(facts.value_heads * facts.value_size));
  out.add(kAttentionInterval, GgufValue::u32(facts.attention_every));
}

void place_delta(const GgufArchitecture& architecture, const ModelConfig& model,
                 std::string_view part, GgufPlace& place) {
  const std::int64_t d = model.head_size;
  if (part.starts_with("attention.query.")) interleave("attn_q.", {0, d, 2 * d}, place);
  if (part.starts_with("attention.gate.")) interleave("attn_q.", {d, d, 2 * d}, place);
  if (!part.starts_with("delta.")) return;
  const DeltaFacts& facts = *model.delta;
  place.first = first_channel(facts, part);
  if (part == "delta.rate") place.transform = GgufTransform::kRate;
  if (architecture.delta == GgufDelta::kTiled) return tile_heads(facts, part, place);
  place_by_key_heads(facts, part, place);
  if (architecture.joint_delta_input) place_joint_input(facts, part, place);
}

}  // namespace piton
