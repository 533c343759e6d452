#include "huggingface/families/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/canonical_tensors.h"

namespace piton {

HfNames llama_names(std::vector<HfPart> other) {
  HfNames names;
  names.parts = std::move(other);
  const auto given = static_cast<std::ptrdiff_t>(names.parts.size());
  for (HfPart& part : std::vector<HfPart>{{"attention_norm.", "input_layernorm."},
                                          {"attention.query.", "self_attn.q_proj."},
                                          {"attention.key.", "self_attn.k_proj."},
                                          {"attention.value.", "self_attn.v_proj."},
                                          {"attention.output.", "self_attn.o_proj."},
                                          {"attention.query_norm.", "self_attn.q_norm."},
                                          {"attention.key_norm.", "self_attn.k_norm."},
                                          {"token_norm.", "enorm."},
                                          {"hidden_norm.", "hnorm."},
                                          {"projection.", "eh_proj."},
                                          {"final_norm.", "shared_head.norm."},
                                          {"mlp_norm.", "post_attention_layernorm."},
                                          {"mlp.gate.", "mlp.gate_proj."},
                                          {"mlp.up.", "mlp.up_proj."},
                                          {"mlp.down.", "mlp.down_proj."},
                                          {"mlp.router.weight", "mlp.gate."},
                                          {"mlp.router.bias", "mlp.gate.e_score_correction_"},
                                          {"mlp.shared_gate.", "mlp.shared_expert_gate."},
                                          {"mlp.shared.gate.", "mlp.shared_expert.gate_proj."},
                                          {"mlp.shared.up.", "mlp.shared_expert.up_proj."},
                                          {"mlp.shared.down.", "mlp.shared_expert.down_proj."},
                                          {"mlp.experts.E.gate.", "mlp.experts.E.gate_proj."},
                                          {"mlp.experts.E.up.", "mlp.experts.E.up_proj."},
                                          {"mlp.experts.E.down.", "mlp.experts.E.down_proj."}}) {
    const auto begin = names.parts.begin();
    const bool named = std::any_of(begin, begin + given, [&](const HfPart& one) {
      return one.canonical.starts_with(part.canonical);
    });
    if (!named) names.parts.push_back(std::move(part));
  }
  return names;
}

namespace {

// `part`: a whole name, or what is before its last word: "mlp.up.".
bool is_of_part(const std::string& canonical, const std::string& part) {
  return part.ends_with('.') ? canonical.starts_with(part) : canonical == part;
}

}  // namespace

// The rows of the projection are gate, values, keys, queries and steps; the convolution has the
// three in the middle. A filter is a matrix [1, w] of each channel.
std::vector<HfPart> state_space_parts(const StateSpaceFacts& facts, const std::string& module) {
  const std::int64_t values = facts.values();
  const std::int64_t keys = facts.keys();
  const std::string input = module + "in_proj.";
  std::vector<HfPart> parts{
      {"mamba.gate.", input},
      {"mamba.value.", input, values},
      {"mamba.key.", input, 2 * values},
      {"mamba.query.", input, 2 * values + keys},
      {"mamba.step.", input, 2 * values + 2 * keys},
      {.canonical = "mamba.rate", .name = module + "A_log", .complete = true},
      {.canonical = "mamba.step_bias", .name = module + "dt_bias", .complete = true},
      {.canonical = "mamba.skip", .name = module + "D", .complete = true},
      {"mamba.norm.", module + "norm."},
      {"mamba.output.", module + "out_proj."}};
  std::int64_t first = 0;
  for (const auto& [canonical, channels] : {std::pair{"mamba.value_filter", values},
                                            {"mamba.key_filter", keys},
                                            {"mamba.query_filter", keys}}) {
    parts.push_back({.canonical = canonical,
                     .name = module + "conv1d.weight",
                     .first = first,
                     .stacks = facts.convolved(),
                     .complete = true});
    parts.push_back({.canonical = std::string(canonical) + "_bias",
                     .name = module + "conv1d.bias",
                     .first = first,
                     .complete = true});
    first += channels;
  }
  return parts;
}

std::vector<HfPart> packed_attention(const ModelConfig& model, const std::string& name) {
  const std::int64_t queries = model.heads * model.head_size;
  const std::int64_t keys = model.groups * model.head_size;
  return {{"attention.query.", name},
          {"attention.key.", name, queries},
          {"attention.value.", name, queries + keys}};
}

std::vector<HfPart> grouped_attention(const ModelConfig& model, const std::string& name) {
  const std::int64_t d = model.head_size;
  const std::int64_t queries = model.heads / model.groups * d;  // of a group
  const std::int64_t group = queries + 2 * d;
  return {{"attention.query.", name, 0, queries, group},
          {"attention.key.", name, queries, d, group},
          {"attention.value.", name, queries + d, d, group}};
}

namespace {

// "mlp.experts.E.up.weight" and "12" of "mlp.experts.12.up.weight"; other names as they are.
std::pair<std::string, std::string> without_expert(const std::string& name) {
  constexpr std::string_view kExperts = "mlp.experts.";
  if (!name.starts_with(kExperts)) return {name, ""};
  const std::size_t end = name.find('.', kExperts.size());
  return {std::string(kExperts) + "E" + name.substr(end),
          name.substr(kExperts.size(), end - kExperts.size())};
}

std::string with_expert(std::string name, const std::string& expert) {
  const std::size_t at = expert.empty() ? std::string::npos : name.find(".E.");
  return at == std::string::npos ? name : name.replace(at + 1, 1, expert);
}

constexpr std::string_view kLater = "mtp.layers.";
constexpr std::string_view kLayer = "layers.";

// "layers.N.up.weight" of "mtp.layers.0.up.weight", for the first of N layers that predict later
// tokens, which are after the N of the model; other names as they are.
std::string among_layers(const std::string& name, std::int64_t layers) {
  if (!name.starts_with(kLater)) return name;
  const std::size_t end = name.find('.', kLater.size());
  const std::int64_t later = std::stoll(name.substr(kLater.size(), end - kLater.size()));
  return fmt::format("{}{}{}", kLayer, layers + later, name.substr(end));
}

}  // namespace

std::vector<HfPlace> named_places(const ModelConfig& model, const HfNames& names) {
  ModelConfig with_head = model;
  with_head.tied = false;
  std::vector<HfPlace> places;
  const auto add = [&](const std::string& canonical, const HfPart& part, const std::string& before,
                       std::int64_t matrix = 0) {
    const std::string last = canonical.substr(canonical.rfind('.') + 1);
    places.push_back({.canonical = canonical,
                      .name = before + part.name + (part.complete ? "" : last),
                      .first = part.first,
                      .chunk = part.chunk,
                      .stride = part.stride,
                      .transposed = part.transposed,
                      .stacks = part.stacks,
                      .matrix = matrix});
  };
  const std::pair<std::string_view, std::string> ends[] = {{"embedding.token.", names.table},
                                                           {"embedding.position.", names.positions},
                                                           {"embedding.norm.", names.table_norm},
                                                           {"final_norm.", names.final_norm},
                                                           {"head.", names.head}};
  for (const CanonicalShape& one : canonical_tensors(with_head)) {
    const std::string& canonical = one.name;
    const bool later = canonical.starts_with(kLater) && !names.later_layers.empty();
    const std::string name = later ? canonical.substr(kLater.size() - kLayer.size())
                                   : among_layers(canonical, model.layers);
    const bool of_layer = name.starts_with(kLayer);
    const std::size_t part = of_layer ? name.find('.', 7) + 1 : 0;  // after "layers.N."
    const auto [of_part, expert] = without_expert(name.substr(part));
    bool found = false;
    for (const auto& [ours, theirs] : ends) {
      if (!canonical.starts_with(ours)) continue;
      add(canonical, {"", theirs}, "");
      found = true;
    }
    for (const auto& [ours, theirs] : names.later_ends) {
      if (!later || !of_part.starts_with(ours)) continue;
      add(canonical, {"", theirs}, "");
      found = true;
    }
    if (later && found) continue;
    for (const HfPart& other : names.parts) {
      if (!of_layer || !is_of_part(of_part, other.canonical)) continue;
      HfPart one = other;
      one.name = with_expert(one.name, expert);
      if (one.expert_rows > 0) one.first += std::stoll(expert) * one.expert_rows;
      const bool turned = one.transposed && one.stacks > 0;
      add(canonical, one, (later ? names.later_layers : names.layers) + name.substr(7, part - 7),
          turned ? std::stoll(expert) : 0);
      found = true;
    }
    PITON_ASSERT(found, "{} has no name in this family", canonical);
  }
  return places;
}

}  // namespace piton
