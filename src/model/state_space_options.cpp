#include "model/state_space_options.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/options/option_range.h"
#include "model/config.h"
#include "model/families.h"

namespace piton {
namespace {

constexpr const char* kPattern = "--hybrid-override-pattern";
constexpr std::int64_t kWidest = 255;  // rows that a convolution reads

struct LayerLetters {
  char mixer = 0;  // its letter; 0: none
  bool mlp = false;
  bool experts = false;
};

bool has_letter(const std::string& pattern, char letter) {
  return pattern.find(letter) != std::string::npos;
}

std::vector<LayerLetters> read_pattern(const std::string& pattern) {
  std::vector<LayerLetters> layers;
  bool open = false;  // whether an MLP is of the layer before
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char letter = pattern[i];
    const bool mixer = letter == 'M' || letter == 'C' || letter == '*';
    if (!mixer && letter != '-' && letter != 'E') {
      throw Error(Fault::kUsage,
                  "{}: got '{}' as letter {} of {}, wanted M (Mamba-2), C (a short convolution), * "
                  "(attention), - (an MLP) or E (experts)",
                  kPattern, letter, i + 1, pattern);
    }
    if (mixer || !open) layers.push_back({.mixer = mixer ? letter : '\0'});
    if (!mixer) (letter == '-' ? layers.back().mlp : layers.back().experts) = true;
    open = mixer;
  }
  if (layers.empty()) throw Error(Fault::kUsage, "{}: is empty; leave it out", kPattern);
  if (has_letter(pattern, 'M') && has_letter(pattern, 'C')) {
    throw Error(Fault::kUsage,
                "{}: got {}, wanted layers of Mamba-2 (M) or short convolutions (C), not both",
                kPattern, pattern);
  }
  return layers;
}

std::string pattern_of(const ModelConfig& config) {
  std::string pattern;
  const char states = config.state_space ? 'M' : 'C';
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.has_mixer(layer)) pattern += config.has_states(layer) ? states : '*';
    if (config.has_mlp(layer)) pattern += config.has_experts(layer) ? 'E' : '-';
  }
  return pattern;
}

// Makes the model one of short convolutions if the letters have them, else one of Mamba-2, which
// may have none.
void set_kind(const std::string& letters, ModelConfig& config) {
  const bool convolutions = has_letter(letters, 'C');
  if (convolutions) config.state_space.reset();
  if (!convolutions) config.short_convolution.reset();
  if (convolutions && !config.short_convolution) config.short_convolution.emplace();
  if (!convolutions && !config.state_space) config.state_space.emplace();
}

// What neither layers of Mamba-2 nor short convolutions are with; `layers` names them.
void check_letters(const ModelConfig& config, const char* layers) {
  const auto refuse = [](bool given, const char* flag, const std::string& why) {
    if (given) throw Error(Fault::kUsage, "{}: {}", flag, why);
  };
  refuse(config.encoder || config.encoder_decoder, kPattern, "is for decoders; leave it out");
  refuse(config.latent.has_value(), kPattern,
         "is not with --multi-latent-attention; leave one of them out");
  refuse(config.delta.has_value(), kPattern,
         "is not with --linear-attention-freq; leave one of them out");
  refuse(config.prefix, kPattern,
         "reads the tokens of a prompt in order, and --sparse-mode 5 and 6 show later ones; leave "
         "one of them out");
  refuse(config.end_norms, "--post-norm", fmt::format("is not for {}; leave it out", layers));
  refuse(config.parallel_residual && !(config.bare_layers.empty() && config.mlp_layers.empty()),
         "--parallel-residual", "is for layers with attention and an MLP each; leave it out");
  const std::vector<std::int64_t>& attention = *config.letters_with_attention();
  if (attention.empty() || attention.back() < config.layers) return;
  throw Error(Fault::kUsage, "{}: has {} layers, and the model {}; give both alike", kPattern,
              attention.back() + 1, config.layers);
}

}  // namespace

bool StateSpaceFacts::in_layer(std::int64_t layer) const {
  return !std::ranges::binary_search(attention_layers, layer);
}

bool ShortConvolutionFacts::in_layer(std::int64_t layer) const {
  return !std::ranges::binary_search(attention_layers, layer);
}

std::string StateSpaceOptions::letters_of(std::int64_t count, double attention_share,
                                          double mlp_share) {
  const auto rounded = [&](double share) {  // half to even, as Python does
    return std::nearbyint(static_cast<double>(count) * share);
  };
  std::string letters(static_cast<std::size_t>(count), 'M');
  // Of the letters that are M, those behind every `distance` of them become `letter`.
  const auto place = [&](char letter, double distance) {
    double left = distance;
    for (char& one : letters) {
      if (one != 'M') continue;
      if (left < 0.5) {
        one = letter;
        left += distance;
      } else {
        left -= 1;
      }
    }
  };
  const double attention = rounded(attention_share);
  const double others = static_cast<double>(count) - attention;
  if (attention > 0) place('*', others / (attention + 1));
  const double mlps = rounded(mlp_share);
  if (mlps > 0) place('-', (others - mlps) / mlps);
  return letters;
}

std::optional<std::string> StateSpaceOptions::all_letters(std::int64_t layers) const {
  const auto refuse = [](const char* flag, const std::string& why) {
    throw Error(Fault::kUsage, "{}: {}", flag, why);
  };
  const bool shares = attention_share != 0 || mlp_share != 0;
  if (pattern || (!hybrid && !shares)) return pattern;
  if (!hybrid) {
    refuse(attention_share != 0 ? "--hybrid-attention-ratio" : "--hybrid-mlp-ratio",
           "is for --is-hybrid-model; give it too, or leave it out");
  }
  if (!(attention_share >= 0 && mlp_share >= 0 && attention_share + mlp_share <= 1)) {
    refuse(
        "--hybrid-attention-ratio",
        fmt::format("got {}, with --hybrid-mlp-ratio {}; wanted numbers from 0 that add up to at "
                    "most 1",
                    attention_share, mlp_share));
  }
  if (layers == 0)
    refuse("--is-hybrid-model", "the number of letters is --num-layers; give it too");
  return letters_of(layers, attention_share, mlp_share);
}

void StateSpaceOptions::set_layers(ModelConfig& config) const {
  constexpr std::int64_t kMostLayers = std::int64_t{1} << 20;  // each is in a list
  if (pattern || hybrid || config.state_space)
    check_range("--num-layers", config.layers, 0, kMostLayers);
  const std::optional<std::string> letters = all_letters(config.layers);
  if (!letters) {
    // A family of state spaces alone.
    if (!config.state_space || !config.state_space->attention_layers.empty()) return;
    return leave_out_mlps(config);
  }
  const std::vector<LayerLetters> layers = read_pattern(*letters);
  const std::int64_t count = std::ssize(layers);
  // Megatron-core counts letters.
  if (config.layers != 0 && config.layers != count && config.layers != std::ssize(*letters)) {
    throw Error(Fault::kUsage,
                "--num-layers: got {}, but {} has {} layers of {} letters; leave one of them out",
                config.layers, kPattern, count, letters->size());
  }
  config.layers = count;
  set_kind(*letters, config);
  std::vector<std::int64_t> attention;
  config.bare_layers.clear();
  config.mlp_layers.clear();
  for (std::int64_t layer = 0; layer < count; ++layer) {
    const LayerLetters& one = layers[static_cast<std::size_t>(layer)];
    if (one.mixer == '*') attention.push_back(layer);
    if (!one.mlp && !one.experts) config.bare_layers.push_back(layer);
    if (one.mixer == 0) config.mlp_layers.push_back(layer);
  }
  (config.state_space ? config.state_space->attention_layers
                      : config.short_convolution->attention_layers) = std::move(attention);
}

void StateSpaceOptions::set_experts(ModelConfig& config) const {
  if (!pattern) {
    if (!hybrid || !config.experts) return;
    throw Error(Fault::kUsage,
                "--num-experts: of a hybrid model, {} says which layers have experts; give it too",
                kPattern);
  }
  std::vector<std::int64_t> dense;
  const std::vector<LayerLetters> layers = read_pattern(*pattern);
  for (std::int64_t layer = 0; layer < std::ssize(layers); ++layer) {
    if (!layers[static_cast<std::size_t>(layer)].experts) dense.push_back(layer);
  }
  if (!config.experts) {
    if (std::ssize(dense) == config.layers) return;
    throw Error(Fault::kUsage, "{}: {} has experts (E); give --num-experts too", kPattern,
                *pattern);
  }
  std::vector<std::int64_t>& given = config.experts->dense_layers;
  if (!given.empty() && given != dense) {
    throw Error(Fault::kUsage,
                "--moe-layer-freq: has experts in other layers than {} {}; leave it out", kPattern,
                *pattern);
  }
  given = std::move(dense);
}

void StateSpaceOptions::apply(ModelConfig& config) const {
  const std::tuple<const char*, std::optional<std::int64_t>, std::int64_t StateSpaceFacts::*>
      sizes[] = {{"--mamba-num-heads", heads, &StateSpaceFacts::heads},
                 {"--mamba-num-groups", groups, &StateSpaceFacts::groups},
                 {"--mamba-head-dim", head_size, &StateSpaceFacts::head_size},
                 {"--mamba-state-dim", state_size, &StateSpaceFacts::state_size},
                 {"--mamba-d-conv", width, &StateSpaceFacts::width}};
  for (const auto& [flag, given, field] : sizes) {
    if (!given) continue;
    if (!config.state_space) {
      throw Error(Fault::kUsage, "{}: is for layers of Mamba-2; give {} too, or leave it out", flag,
                  kPattern);
    }
    check_range(flag, *given, 1, kLargestSize);
    (*config.state_space).*field = *given;
  }
  apply_short_convolution(config);
  if (!config.state_space) return;
  StateSpaceFacts& facts = *config.state_space;
  if (facts.heads == 0) {
    if (2 * config.hidden % facts.head_size != 0) {
      throw Error(Fault::kUsage,
                  "--mamba-head-dim: got {}, wanted a divisor of twice --hidden-size, which is {} "
                  "(or give --mamba-num-heads)",
                  facts.head_size, config.hidden);
    }
    facts.heads = 2 * config.hidden / facts.head_size;
  }
}

void StateSpaceOptions::apply_short_convolution(ModelConfig& config) const {
  if (!config.short_convolution) {
    if (!short_width && !short_biases) return;
    throw Error(Fault::kUsage,
                "{}: is for short convolutions; give {} with the letter C too, or leave it out",
                short_width ? "--short-conv-kernel-dim" : "--short-conv-bias", kPattern);
  }
  if (short_width) config.short_convolution->width = *short_width;
  if (short_biases) config.short_convolution->biases = true;
}

StateSpaceOptions StateSpaceOptions::of(const ModelConfig& config) {
  StateSpaceOptions options;
  if (!config.state_space && !config.short_convolution) return options;
  options.pattern = pattern_of(config);
  if (config.short_convolution) {
    options.short_width = config.short_convolution->width;
    options.short_biases = config.short_convolution->biases;
    return options;
  }
  const StateSpaceFacts& facts = *config.state_space;
  options.heads = facts.heads;
  options.groups = facts.groups;
  options.head_size = facts.head_size;
  options.state_size = facts.state_size;
  options.width = facts.width;
  return options;
}

void check_state_space(const ModelConfig& config) {
  if (!config.state_space) return;
  const StateSpaceFacts& facts = *config.state_space;
  if (facts.heads % facts.groups != 0) {
    throw Error(Fault::kUsage,
                "--mamba-num-groups: got {}, wanted a divisor of --mamba-num-heads, which is {}",
                facts.groups, facts.heads);
  }
  constexpr std::int64_t kLargestState = 256;  // of the kernels of GPUs
  check_range("--mamba-d-conv", facts.width, 1, kWidest);
  check_range("--mamba-state-dim", facts.state_size, 1, kLargestState);
  check_letters(config, "layers of Mamba-2");
}

void check_short_convolution(const ModelConfig& config) {
  if (!config.short_convolution) return;
  check_range("--short-conv-kernel-dim", config.short_convolution->width, 1, kWidest);
  check_letters(config, "short convolutions");
}

}  // namespace piton
