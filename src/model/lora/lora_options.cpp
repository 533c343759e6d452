#include "model/lora/lora_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/options/option_range.h"
#include "model/canonical_tensors.h"
#include "model/label_head.h"
#include "model/lora/lora_targets.h"

namespace piton {
namespace {

using Names = std::vector<std::string>;

// From the name of a module to the beginnings of canonical names, in a layer or outside of one.
const std::map<std::string, Names>& modules() {
  static const std::map<std::string, Names> kModules = [] {
    std::map<std::string, Names> list;
    const auto add = [&](std::initializer_list<const char*> names, const Names& tensors) {
      for (const char* name : names) list[name] = tensors;
    };
    add({"word_embeddings", "embed_tokens", "wte"}, {"embedding.token."});
    add({"position_embeddings", "wpe"}, {"embedding.position."});
    add({"word_embeddings_layernorm"}, {"embedding.norm."});
    add({"input_layernorm", "ln_1", "operator_norm"}, {"attention_norm."});
    add({"post_attention_layernorm", "pre_mlp_layernorm", "ln_2", "ffn_norm"}, {"mlp_norm."});
    add({"final_layernorm", "norm", "ln_f", "embedding_norm"}, {"final_norm."});
    add({"lm_head", "output_layer"}, {"head."});
    add({"score"}, {kRewardTensor, "label."});
    add({"classifier"}, {"label."});
    add({kPoolerAdapter}, {"pooler."});
    add({"token_type_embeddings"}, {"embedding.type."});
    add({"norms", "LayerNorm"},
        {"embedding.norm.", "attention_norm.", "mlp_norm.", "final_norm.", "attention.end_norm.",
         "mlp.end_norm.", "attention.query_norm.", "attention.key_norm.",
         "attention.query_down_norm.", "attention.latent_norm.", "delta.norm."});
    return list;
  }();
  return kModules;
}

template <typename Value>
Names names_of(const std::map<std::string, Value>& map) {
  Names names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

// "layers.3.mlp_norm.weight" without the layer.
std::string in_layer(const std::string& canonical) {
  if (!canonical.starts_with("layers.")) return canonical;
  return canonical.substr(canonical.find('.', 7) + 1);
}

// The canonical tensors of a module that is trained in full.
Names tensors_of_module(const ModelConfig& config, const std::string& module) {
  // ModelLink writes "lm_head.lm_head".
  const std::string name = module.substr(module.rfind('.') + 1);
  const auto found = modules().find(name);
  Names tensors;
  if (found != modules().end()) {
    for (const CanonicalShape& one : canonical_tensors(config)) {
      const std::string part = in_layer(one.name);
      if (std::ranges::any_of(found->second,
                              [&](const std::string& begin) { return part.starts_with(begin); }))
        tensors.push_back(one.name);
    }
  }
  if (tensors.empty() && config.tied && config.labels == 0 && found != modules().end() &&
      found->second.front() == "head.")
    throw Error(Fault::kUsage,
                "--lora-modules-to-save: the head of this model is its embedding, got {}; give "
                "word_embeddings, which trains both",
                module);
  if (tensors.empty()) {
    throw Error(Fault::kUsage, "--lora-modules-to-save: got {}, wanted some of {}", module,
                fmt::join(names_of(modules()), ", "));
  }
  return tensors;
}

std::string list_of_targets(const ModelConfig& config) {
  return fmt::format(
      "{}{}", fmt::join(lora_target_names(config), ", "),
      config.experts ? "; experts.NAME, shared_experts.NAME or mlp.NAME for one kind of MLPs" : "");
}

// The linears of a layer that get an adapter.
std::set<std::string> linears_of(const ModelConfig& config, const Names& target_modules) {
  std::set<std::string> linears;
  for (const std::string& target : target_modules) {
    const Names found = lora_target(config, target);
    if (found.empty() && target.find(',') != std::string::npos) {
      throw Error(Fault::kUsage,
                  "--lora-target-modules: got {}, wanted names with spaces between them: q_proj "
                  "v_proj",
                  target);
    }
    if (found.empty()) {
      throw Error(Fault::kUsage, "--lora-target-modules: this model has no {}; wanted some of {}",
                  target, list_of_targets(config));
    }
    linears.insert(found.begin(), found.end());
  }
  std::set<std::string> adapted;
  for (const std::string& linear : linears) {
    for (const std::string& matrix : matrices_of(linear)) {
      if (adapted.insert(matrix).second) continue;
      throw Error(Fault::kUsage,
                  "--lora-target-modules: got {}, which gives {} two adapters; leave one of the "
                  "names out",
                  fmt::join(target_modules, " "), matrix);
    }
  }
  return linears;
}

}  // namespace

double LoraOptions::scale(std::int64_t of_rank, double of_alpha) const {
  const auto r = static_cast<double>(of_rank);
  return of_alpha / (rank_stabilized ? std::sqrt(r) : r);
}

namespace {

// An entry of --lora-rank-pattern or --lora-alpha-pattern: the adapters that it names, and its
// number.
template <typename Number>
struct PatternEntry {
  std::string text;
  std::optional<std::int64_t> layer;  // unset: all
  Names linears;                      // of a layer
  Number value{};

  bool names(std::int64_t of_layer, const std::string& linear) const {
    return (!layer || *layer == of_layer) && std::ranges::count(linears, linear) > 0;
  }
};

template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename Number>
PatternEntry<Number> pattern_entry(const char* flag, const std::string& text,
                                   const ModelConfig& config) {
  const auto refuse = [&](const std::string& wanted) -> PatternEntry<Number> {
    throw Error(Fault::kUsage, "{}: got {}, wanted {}", flag, text, wanted);
  };
  const std::size_t equal = text.find('=');
  const std::string form = "MODULE=NUMBER, as in q_proj=8 or layers.3.q_proj=8";
  if (equal == std::string::npos) return refuse(form);
  PatternEntry<Number> entry{.text = text};
  std::string_view name = std::string_view(text).substr(0, equal);
  constexpr std::string_view kLayers = "layers.";
  if (name.starts_with(kLayers)) {
    name.remove_prefix(kLayers.size());
    entry.layer = whole_number<std::int64_t>(name.substr(0, name.find('.')));
    if (!entry.layer || name.find('.') == std::string_view::npos) return refuse(form);
    name.remove_prefix(name.find('.') + 1);
  }
  entry.linears = lora_target(config, std::string(name));
  if (entry.linears.empty())
    return refuse(fmt::format("some of {} before the \"=\"", list_of_targets(config)));
  const std::optional<Number> value =
      whole_number<Number>(std::string_view(text).substr(equal + 1));
  if (!value) return refuse(form);
  entry.value = *value;
  return entry;
}

template <typename Number>
std::vector<PatternEntry<Number>> pattern_of(const char* flag, const Names& texts,
                                             const ModelConfig& config) {
  std::vector<PatternEntry<Number>> entries;
  for (const std::string& text : texts)
    entries.push_back(pattern_entry<Number>(flag, text, config));
  return entries;
}

// The number of the first entry that names the adapter; else the usual one.
template <typename Number>
Number number_of(const std::vector<PatternEntry<Number>>& entries, std::int64_t layer,
                 const std::string& linear, Number usual) {
  const auto found = std::ranges::find_if(
      entries, [&](const PatternEntry<Number>& one) { return one.names(layer, linear); });
  return found == entries.end() ? usual : found->value;
}

// The layer (outside of layers -1) and the linear of an adapter.
using LayerLinears = std::set<std::pair<std::int64_t, std::string>>;

// Refuses an entry that names no adapter: it would be ignored.
template <typename Number>
void check_names(const char* flag, const std::vector<PatternEntry<Number>>& entries,
                 const LayerLinears& adapted) {
  for (const PatternEntry<Number>& entry : entries) {
    if (std::ranges::any_of(adapted,
                            [&](const auto& one) { return entry.names(one.first, one.second); }))
      continue;
    throw Error(Fault::kUsage,
                "{}: got {}, which names no adapter of this run; --lora-target-modules and "
                "--lora-layers-to-transform say which there are",
                flag, entry.text);
  }
}

void check_rank(const char* flag, std::int64_t rank) {
  constexpr std::int64_t kMostRank = 1 << 20;
  if (rank < 1 || rank > kMostRank)
    throw Error(Fault::kUsage, "{}: got {}, wanted 1 to {}", flag, rank, kMostRank);
}

// The layers whose linears have adapters.
std::set<std::int64_t> layers_of(const LoraOptions& options, const ModelConfig& config) {
  std::set<std::int64_t> layers(options.layers.begin(), options.layers.end());
  for (const std::int64_t layer : layers)
    check_range("--lora-layers-to-transform", layer, 0, config.layers - 1);
  for (std::int64_t layer = 0; options.layers.empty() && layer < config.layers; ++layer)
    layers.insert(layer);
  return layers;
}

// Throws for a name of linears that only other layers have: it would be ignored.
LayerLinears adapted_by(const LoraOptions& options, const ModelConfig& config) {
  const std::set<std::string> linears = linears_of(config, options.target_modules);
  const std::set<std::int64_t> layers = layers_of(options, config);
  LayerLinears adapted;
  for (const std::int64_t layer : layers) {
    for (const std::string& linear : linears) {
      if (layer_has_adapter(config, layer, linear)) adapted.emplace(layer, linear);
    }
  }
  // As in PEFT, a module outside of layers has none if some layers are named.
  if (linears.contains(kPoolerAdapter) && options.layers.empty())
    adapted.emplace(-1, kPoolerAdapter);
  for (const std::string& target : options.target_modules) {
    const Names of_target = lora_target(config, target);
    if (std::ranges::any_of(adapted, [&](const auto& one) {
          return std::ranges::count(of_target, one.second) > 0;
        }))
      continue;
    throw Error(Fault::kUsage,
                "--lora-target-modules: got {}, which none of the layers {} has; leave it out, or "
                "name other layers with --lora-layers-to-transform",
                target, fmt::join(layers, ", "));
  }
  return adapted;
}

// Adapters of experts have none.
void check_magnitudes_of_experts(const LoraOptions& options, const LayerLinears& adapted) {
  if (!options.use_dora) return;
  if (std::ranges::none_of(adapted, [](const auto& one) { return is_of_experts(one.second); }))
    return;
  throw Error(
      Fault::kUsage,
      "--use-dora: not for adapters of experts, which --lora-target-modules {} gives; leave "
      "it out, or name modules without experts: q_proj v_proj ..., shared_experts.up_proj, "
      "mlp.up_proj",
      fmt::join(options.target_modules, " "));
}

std::map<std::string, AdapterShape> shapes_of(const LoraOptions& options,
                                              const ModelConfig& config) {
  constexpr const char* kRanks = "--lora-rank-pattern";
  constexpr const char* kAlphas = "--lora-alpha-pattern";
  const LayerLinears adapted = adapted_by(options, config);
  check_magnitudes_of_experts(options, adapted);
  const auto ranks = pattern_of<std::int64_t>(kRanks, options.rank_pattern, config);
  const auto alphas = pattern_of<double>(kAlphas, options.alpha_pattern, config);
  check_names(kRanks, ranks, adapted);
  check_names(kAlphas, alphas, adapted);
  for (const auto& entry : ranks) check_rank(kRanks, entry.value);
  for (const auto& entry : alphas) check_positive(kAlphas, entry.value);
  std::map<std::string, AdapterShape> shapes;
  for (const auto& [layer, linear] : adapted) {
    const std::int64_t rank = number_of(ranks, layer, linear, options.rank);
    const double alpha = number_of(alphas, layer, linear, options.alpha);
    const std::string name = layer < 0 ? linear : fmt::format("layers.{}.{}", layer, linear);
    const AdapterShape shape{
        .rank = rank, .scale = options.scale(rank, alpha), .magnitude = options.use_dora};
    const std::int64_t experts = is_of_experts(linear) ? config.experts->experts : 0;
    if (experts == 0) shapes[name] = shape;
    for (std::int64_t expert = 0; expert < experts; ++expert)
      shapes[adapter_of_expert(name, expert)] = shape;
  }
  return shapes;
}

}  // namespace

Adapters LoraOptions::resolve(const ModelConfig& config) const {
  Adapters adapters;
  if (!given()) {
    if (use_dora) {
      throw Error(Fault::kUsage,
                  "--use-dora: needs --lora-target-modules, which is not given; give both");
    }
    if (modules_to_save.empty()) return adapters;
    throw Error(Fault::kUsage,
                "--lora-modules-to-save: needs --lora-target-modules, which is not given; give "
                "both");
  }
  check_rank("--lora-r", rank);
  check_positive("--lora-alpha", alpha);
  if (!(dropout >= 0 && dropout < 1))
    throw Error(Fault::kUsage, "--lora-dropout: got {}, wanted 0 or more and less than 1", dropout);
  if (adapter_name.empty() || adapter_name.find_first_of("./\\") != std::string::npos) {
    throw Error(Fault::kUsage,
                "--lora-adapter-name: got \"{}\", wanted a name without dots and slashes, which a "
                "folder can have",
                adapter_name);
  }
  adapters.shapes = shapes_of(*this, config);
  adapters.dropout = dropout;
  for (const std::string& module : modules_to_save) {
    for (const std::string& tensor : tensors_of_module(config, module))
      adapters.trained.insert(tensor);
  }
  for (const std::string& tensor : label_tensors(config)) adapters.trained.insert(tensor);
  if (adapters.trained.contains("pooler.weight")) adapters.shapes.erase(kPoolerAdapter);
  return adapters;
}

namespace {

// The layer and the rest of the name of an adapter in one.
std::pair<std::int64_t, std::string> layer_of(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  PITON_ASSERT(name.starts_with(kLayers), "{}", name);
  const std::size_t end = name.find('.', kLayers.size());
  std::int64_t layer = 0;
  std::from_chars(name.data() + kLayers.size(), name.data() + end, layer);
  return {layer, name.substr(end + 1)};
}

// One computation has the adapters of all experts of a layer.
bool fit_together(const ModelConfig& config, const Adapters& adapters, const std::string& name) {
  const AdapterShape& first = adapters.shapes.at(name);
  const std::string all = adapter_of_experts(name);
  for (std::int64_t expert = 0; expert < config.experts->experts; ++expert) {
    const AdapterShape* const one = adapters.find(adapter_of_expert(all, expert));
    if (one == nullptr || *one != first || one->magnitude) return false;
  }
  return true;
}

}  // namespace

void check_computed(const ModelConfig& config, const Adapters& adapters, const std::string& where) {
  std::set<std::string> fitting;  // of experts
  for (const auto& [name, shape] : adapters.shapes) {
    if (name == kPoolerAdapter) continue;
    const auto [layer, linear] = layer_of(name);
    if (layer_has_adapter(config, layer, linear)) {
      if (!is_of_experts(linear) || fitting.contains(adapter_of_experts(name))) continue;
      if (fit_together(config, adapters, name)) {
        fitting.insert(adapter_of_experts(name));
        continue;
      }
      throw Error(Fault::kData,
                  "{}: has an adapter of {}, and not of every expert of the layer with the same "
                  "rank and scale, and without lengths (DoRA), so it can only be merged into the "
                  "model; give what piton convert --load BASE --lora-load {} --to hf writes",
                  where, name, where);
    }
    throw Error(Fault::kData,
                "{}: has an adapter of {}, which can only be merged into the model; give what "
                "piton convert --load BASE --lora-load {} --to hf writes",
                where, name, where);
  }
}

void check_can_be_chosen(const Adapters& adapters, const std::string& where) {
  if (!adapters.trained.empty()) {
    throw Error(Fault::kUsage,
                "{}: trains {} in full, and adapters to choose from share all of the model's "
                "tensors; load it alone, with --lora-load",
                where, *adapters.trained.begin());
  }
  for (const auto& [name, shape] : adapters.shapes) {
    if (!is_expert_adapter(name)) continue;
    throw Error(Fault::kUsage,
                "{}: has an adapter of {}, and adapters of experts are not chosen by request; load "
                "it alone, with --lora-load",
                where, name);
  }
}

}  // namespace piton
