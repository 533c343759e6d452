#include "adapters/peft_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "huggingface/files/config_file.h"

namespace piton {
namespace {

constexpr const char* kAlphas = "a number from 1e-30 to 1e30";
bool is_alpha(double value) { return value >= 1e-30 && value <= 1e30; }

// Whether a key of rank_pattern names this module. PEFT reads it as a regular expression for the
// end of the name, from a dot on, or from the start after "^"; names have no other signs of one
// than dots.
bool names(const std::string& pattern, const std::string& module) {
  const std::string path = "base_model.model." + module;
  if (pattern.starts_with("^")) return pattern.substr(1) == module;
  return path == pattern || path.ends_with("." + pattern);
}

template <typename T>
T exception_or(const std::vector<std::pair<std::string, T>>& exceptions, const PeftConfig& config,
               const std::string& module, T otherwise) {
  const std::string weight = module + ".weight";
  const std::string& target = config.targets_parameter(weight) ? weight : module;
  for (const auto& [pattern, value] : exceptions) {
    if (names(pattern, target)) return value;
  }
  return otherwise;
}

void refuse_variants(const HfConfig& config) {
  for (const char* key : {"lora_bias", "use_bdlora", "use_qalora"}) {
    if (config.lists(key) && config.has(key) && config.flag(key, false))
      config.refuse(key, "false");
  }
  for (const char* key : {"layer_replication", "trainable_token_indices", "alora_invocation_tokens",
                          "arrow_config", "velora_config", "monteclora_config", "kasa_config"}) {
    if (config.has(key)) config.refuse(key, "null");
  }
  if (config.word("bias", "none") != "none") config.refuse("bias", "\"none\"");
  if (config.word("peft_type") != "LORA") config.refuse("peft_type", "\"LORA\"");
}

// Kinds that change the weights of the model when the adapter is made, which its files do not hold.
void check_start(const nlohmann::ordered_json& document, const HfConfig& config) {
  const auto start = document.find("init_lora_weights");
  if (start == document.end() || !start->is_string()) return;
  const std::string kind = start->get<std::string>();
  for (const char* known : {"gaussian", "orthogonal", "eva", "lora_ga"}) {
    if (kind == known) return;
  }
  config.refuse("init_lora_weights", "true, \"gaussian\", \"orthogonal\" or \"eva\"");
}

// The end of a name that a pattern means. PEFT writes ".*\\." before one where it has put the
// modules of experts together.
std::string checked_pattern(const std::string& key, const std::string& pattern,
                            const std::string& where) {
  constexpr std::string_view kAny = ".*\\.";
  const std::string end = pattern.starts_with(kAny) ? pattern.substr(kAny.size()) : pattern;
  if (end.find_first_of("*+?()[]{}|\\$") == std::string::npos) return end;
  throw Error(Fault::kData,
              "{}: {}: got the pattern {}, wanted names of modules, without signs of regular "
              "expressions",
              where, key, pattern);
}

}  // namespace

std::int64_t PeftConfig::rank_of(const std::string& module) const {
  return exception_or(ranks, *this, module, rank);
}

double PeftConfig::scale_of(const std::string& module) const {
  const auto r = static_cast<double>(rank_of(module));
  return exception_or(alphas, *this, module, alpha) / (rank_stabilized ? std::sqrt(r) : r);
}

bool PeftConfig::targets_parameter(const std::string& name) const {
  return std::ranges::any_of(parameters, [&](const std::string& end) { return names(end, name); });
}

PeftConfig parse_peft_config(const std::string& text, const std::string& where) {
  const HfConfig config(text, where);
  const auto document = read_json<nlohmann::ordered_json>(text);
  refuse_variants(config);
  check_start(document, config);
  PeftConfig peft{.rank = config.size("r", 8),
                  .alpha = config.number("lora_alpha", 8.0),
                  .dropout = config.number("lora_dropout", 0.0),
                  .rank_stabilized = config.flag("use_rslora", false),
                  .magnitudes = config.flag("use_dora", false),
                  .ties_trained_weights = config.flag("ensure_weight_tying", false)};
  if (config.has("target_parameters")) peft.parameters = config.words("target_parameters");
  if (!is_alpha(peft.alpha)) config.refuse("lora_alpha", kAlphas);
  if (!(peft.dropout >= 0 && peft.dropout < 1))
    config.refuse("lora_dropout", "0 or more and less than 1");
  const auto exceptions = [&](const char* key, auto&& add) {
    if (!config.has(key)) return;
    const HfConfig inner = config.object(key);
    for (const auto& [pattern, value] : document.at(key).items())
      add(inner, pattern, checked_pattern(key, pattern, where));
  };
  using Text = const std::string&;
  exceptions("rank_pattern", [&](const HfConfig& inner, Text pattern, Text end) {
    peft.ranks.emplace_back(end, inner.size(pattern));
  });
  exceptions("alpha_pattern", [&](const HfConfig& inner, Text pattern, Text end) {
    peft.alphas.emplace_back(end, inner.number(pattern));
    if (!is_alpha(peft.alphas.back().second)) inner.refuse(pattern, kAlphas);
  });
  return peft;
}

}  // namespace piton
