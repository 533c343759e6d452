#include "gguf/gguf_places.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "gguf/gguf_delta.h"
#include "gguf/gguf_states.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

// Canonical and GGUF beginnings of names; in kLayer, those after "layers.N." and "blk.N.". One
// without a dot at its end is a whole name.
constexpr std::pair<std::string_view, std::string_view> kEnds[] = {
    {"embedding.token.", "token_embd."},
    {"embedding.position.", "position_embd."},
    {"embedding.norm.", "token_embd_norm."},
    {"final_norm.", "output_norm."},
    {"head.", "output."},
};
constexpr std::string_view kExperts = "mlp.experts.";
constexpr std::pair<std::string_view, std::string_view> kLayer[] = {
    {"attention_norm.", "attn_norm."},
    {"attention.query.", "attn_q."},
    {"attention.key.", "attn_k."},
    {"attention.value.", "attn_v."},
    {"attention.output.", "attn_output."},
    {"attention.query_down.", "attn_q_a."},
    {"attention.query_down_norm.", "attn_q_a_norm."},
    {"attention.latent.", "attn_kv_a_mqa."},
    {"attention.latent_norm.", "attn_kv_a_norm."},
    {"attention.key_value.", "attn_kv_b."},
    {"attention.sinks", "attn_sinks.weight"},
    {"attention.query_norm.", "attn_q_norm."},
    {"attention.key_norm.", "attn_k_norm."},
    {"attention.end_norm.", "post_attention_norm."},
    {"mlp_norm.", "ffn_norm."},
    {"mlp.router.", "ffn_gate_inp."},
    {"mlp.router.bias", "exp_probs_b."},
    {"mlp.shared_gate.", "ffn_gate_inp_shexp."},
    {"mlp.shared.gate.", "ffn_gate_shexp."},
    {"mlp.shared.up.", "ffn_up_shexp."},
    {"mlp.shared.down.", "ffn_down_shexp."},
    {"mlp.gate.", "ffn_gate."},
    {"mlp.up.", "ffn_up."},
    {"mlp.down.", "ffn_down."},
    {"mlp.end_norm.", "post_ffw_norm."},
    {"attention.gate.", "attn_q."},
    {"delta.query.", "attn_qkv."},
    {"delta.key.", "attn_qkv."},
    {"delta.value.", "attn_qkv."},
    {"delta.gate.", "attn_gate."},
    {"delta.strength.", "ssm_beta."},
    {"delta.decay.", "ssm_alpha."},
    {"delta.query_filter", "ssm_conv1d.weight"},
    {"delta.key_filter", "ssm_conv1d.weight"},
    {"delta.value_filter", "ssm_conv1d.weight"},
    {"delta.rate", "ssm_a"},
    {"delta.decay_bias", "ssm_dt.bias"},
    {"delta.norm.", "ssm_norm."},
    {"delta.output.", "ssm_out."},
    {"mamba.gate.", "ssm_in."},
    {"mamba.value.", "ssm_in."},
    {"mamba.key.", "ssm_in."},
    {"mamba.query.", "ssm_in."},
    {"mamba.step.", "ssm_in."},
    {"mamba.value_filter", "ssm_conv1d.weight"},
    {"mamba.key_filter", "ssm_conv1d.weight"},
    {"mamba.query_filter", "ssm_conv1d.weight"},
    {"mamba.value_filter_bias", "ssm_conv1d.bias"},
    {"mamba.key_filter_bias", "ssm_conv1d.bias"},
    {"mamba.query_filter_bias", "ssm_conv1d.bias"},
    {"mamba.rate", "ssm_a"},
    {"mamba.skip", "ssm_d"},
    {"mamba.step_bias", "ssm_dt.bias"},
    {"mamba.norm.", "ssm_norm."},
    {"mamba.output.", "ssm_out."},
    {"short_conv.input_gate.", "shortconv.in_proj."},
    {"short_conv.output_gate.", "shortconv.in_proj."},
    {"short_conv.value.", "shortconv.in_proj."},
    {"short_conv.filter", "shortconv.conv.weight"},
    {"short_conv.output.", "shortconv.out_proj."},
};

// Of an expert; `part` is its name after "layers.N.", `rows` are those of each.
GgufPlace expert_place(std::string_view part, std::int64_t rows) {
  const std::string_view own = part.substr(kExperts.size());
  std::int64_t expert = 0;
  const auto parsed = std::from_chars(own.data(), own.data() + own.size(), expert);
  PITON_ASSERT(parsed.ec == std::errc(), "{} is of no expert", part);
  const std::string_view matrix = own.substr(own.find('.') + 1);  // "up.weight"
  return {.name = fmt::format("ffn_{}_exps.", matrix.substr(0, matrix.find('.'))),
          .first = expert * rows,
          .stacked = true};
}

// Names of keys and values, and of queries, of latent attention.
void place_latents(const GgufArchitecture& architecture, const LatentFacts& latent,
                   std::string_view part, GgufPlace& place) {
  if (part.starts_with("attention.query.") && latent.query_rank != 0) place.name = "attn_q_b.";
  if (!part.starts_with("attention.key_value.") || architecture.joint_key_value) return;
  place.name = "attn_k_b.";
  place.values = "attn_v_b.";
  place.own = latent.own;
  place.head = latent.own + latent.value;
}

// The place of a tensor of a layer; `part` is its name after "layers.N.".
GgufPlace layer_place(const GgufArchitecture& architecture, const ModelConfig& model,
                      std::string_view part) {
  GgufPlace place;
  for (const auto& [ours, theirs] : kLayer) {
    if (part.starts_with(ours)) place.name = theirs;
  }
  PITON_ASSERT(!place.name.empty(), "{} has no name in a GGUF file", part);
  if (model.latent) place_latents(architecture, *model.latent, part, place);
  const std::int64_t queries = model.heads * model.head_size;
  const std::int64_t keys = model.groups * model.head_size;
  const bool query = part.starts_with("attention.query.");
  const bool key = part.starts_with("attention.key.");
  const bool rotates = model.positions == PositionKind::kRotary ||
                       (architecture.always_pairs && model.head_size % 2 == 0);
  if ((query || key) && architecture.pairs && !model.latent && rotates) {
    place.head = model.head_size;
    place.turned = model.rotary_channels();
  }
  if (architecture.packed_attention && (query || key || part.starts_with("attention.value."))) {
    place.name = "attn_qkv.";
    place.first = query ? 0 : key ? queries : queries + keys;
  }
  if (architecture.norm_after_attention && part.starts_with("mlp_norm."))
    place.name = "post_attention_norm.";
  if (architecture.norms_in_turn && !model.single_norm) {
    if (part.starts_with("attention_norm.")) place.name = "attn_norm_2.";
    if (part.starts_with("mlp_norm.")) place.name = "attn_norm.";
  }
  if (architecture.packed_mlp && part.starts_with("mlp.gate.")) place.name = "ffn_up.";
  if (architecture.packed_mlp && part.starts_with("mlp.up.")) place.first = model.ffn_hidden;
  if (architecture.delta != GgufDelta::kNone) place_delta(architecture, model, part, place);
  if (model.state_space) place_states(*model.state_space, part, place);
  if (part.starts_with("short_conv.output_gate.")) place.first = model.hidden;
  if (part.starts_with("short_conv.value.")) place.first = 2 * model.hidden;
  return place;
}

// The last word of a tensor's name.
std::string_view end_of(std::string_view canonical) {
  if (canonical.ends_with(".logit_bias")) return "bias";
  return canonical.substr(canonical.rfind('.') + 1);
}

// The norm of the gated delta rule has its gains as they are.
bool is_gain_from_one(const ModelConfig& model, const CanonicalShape& tensor) {
  return model.gains_from_one && tensor.shape.ndim() == 1 && end_of(tensor.name) == "weight" &&
         !tensor.name.ends_with(".delta.norm.weight");
}

}  // namespace

std::int64_t stored_row(const GgufPlace& place, std::int64_t row) {
  if (place.tiled_rows) return place.first + place.tiled_rows->stored(row);
  if (place.chunk != 0) return place.first + row / place.chunk * place.stride + row % place.chunk;
  if (place.turned == 0) return place.first + row;
  const std::int64_t inside = row % place.head;
  const std::int64_t half = place.turned / 2;
  const std::int64_t begin = place.first + row - inside;
  if (inside >= place.turned) return begin + inside;
  return begin + (inside < half ? 2 * inside : 2 * (inside - half) + 1);
}

std::int64_t rows_in_order(const GgufPlace& place, std::int64_t rows) {
  if (place.tiled_rows) return place.tiled_rows->size;
  if (place.chunk != 0) return place.chunk;
  return place.turned == 0 ? rows : 1;
}

bool can_be_placed(const GgufArchitecture& architecture, const ModelConfig& model) {
  // stored_row() moves rows from halves (i and i + d/2 rotate together) to pairs.
  return model.rotary_pairs == architecture.keeps_pairs &&
         model.latent.has_value() == architecture.latent &&
         model.delta.has_value() == (architecture.delta != GgufDelta::kNone) &&
         model.state_space.has_value() == (architecture.states != GgufStates::kNone) &&
         model.short_convolution.has_value() == architecture.convolutions &&
         model.output_gate == model.delta.has_value() && !(architecture.packed_mlp && !model.gated);
}

std::vector<GgufPlace> gguf_places(const GgufArchitecture& architecture, const ModelConfig& model) {
  ModelConfig with_head = model;
  with_head.tied = false;
  std::vector<PatternLetter> letters;  // that are blocks
  if (architecture.states == GgufStates::kLetters) letters = pattern_letters(model);
  std::vector<GgufPlace> places;
  for (const CanonicalShape& one : canonical_tensors(with_head)) {
    const std::string_view canonical = one.name;
    const std::string_view end = end_of(canonical);
    GgufPlace place;
    if (canonical.starts_with("layers.")) {
      const std::size_t begin = canonical.find('.', 7) + 1;
      const std::string_view part = canonical.substr(begin);
      place = part.starts_with(kExperts) ? expert_place(part, one.shape[0])
                                         : layer_place(architecture, model, part);
      const std::int64_t layer = std::stoll(std::string(canonical.substr(7, begin - 8)));
      const std::int64_t block = letters.empty() ? layer : letter_number(letters, layer, part);
      if (!letters.empty() && part.starts_with("mlp_norm.")) place.name = "attn_norm.";
      place.name = fmt::format("blk.{}.{}", block, place.name);
      if (!place.values.empty())
        place.values = fmt::format("blk.{}.{}{}", block, place.values, end);
      place.vector = part.starts_with("mlp.shared_gate.");
    }
    for (const auto& [ours, theirs] : kEnds) {
      if (canonical.starts_with(ours)) place.name = theirs;
    }
    if (architecture.convolutions && canonical.starts_with("final_norm."))
      place.name = "token_embd_norm.";
    if (place.name.ends_with('.')) place.name += end;
    place.canonical = one.name;
    if (is_gain_from_one(model, one)) place.transform = GgufTransform::kGain;
    places.push_back(std::move(place));
  }
  return places;
}

std::map<std::string, std::vector<std::int64_t>> gguf_shapes(const GgufArchitecture& architecture,
                                                             const ModelConfig& model) {
  std::map<std::string, Shape> canonical;
  for (const CanonicalShape& one : canonical_tensors(model)) canonical[one.name] = one.shape;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const GgufPlace& place : gguf_places(architecture, model)) {
    const auto found = canonical.find(place.canonical);
    if (found == canonical.end()) continue;  // a tied head
    const auto sizes = found->second.sizes();
    if (!place.values.empty()) {
      const std::int64_t heads = sizes[0] / place.head;
      shapes[place.name] = {heads, sizes[1], place.own};
      shapes[place.values] = {heads, place.head - place.own, sizes[1]};
      continue;
    }
    std::vector<std::int64_t>& shape = shapes[place.name];
    if (shape.empty()) {
      shape.assign(sizes.begin() + (place.vector ? 1 : 0), sizes.end());
      if (place.stacked) shape.insert(shape.begin(), 1);
      if (place.columns != 0) shape = {sizes[0] / place.columns, place.columns};
    } else if (place.stacked) {
      ++shape[0];
    } else {
      shape[0] += sizes[0];
    }
  }
  return shapes;
}

}  // namespace piton
