#include "cli/compatibility/mindspeed_flags.h"

#include <array>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace piton::cli {
namespace {

constexpr const char* kSpec = "spec";
constexpr const char* kType = "moe-router-load-balancing-type";

// A module of layers. `needs`: the flag of what its layers have in any case; null: nothing.
struct LayerModule {
  std::string_view name;
  const char* needs;
  bool (*has)(const ModelOptions& model);
};

bool has_end_norms(const ModelOptions& model) { return model.end_norms; }
bool has_latents(const ModelOptions& model) { return model.attention.latent.latent; }

constexpr std::array<LayerModule, 5> kModules{{
    {"qwen3_spec", nullptr, nullptr},
    {"gemma2_spec", "post-norm", has_end_norms},
    {"grok_spec", "post-norm", has_end_norms},
    {"deepseek_spec", "multi-latent-attention", has_latents},
    {"minicpm_spec", "multi-latent-attention", has_latents},
}};

const LayerModule* find_module(std::string_view text) {
  for (const LayerModule& one : kModules) {
    for (const std::string_view program : {"mindspeed_llm", "modellink"}) {
      if (text == fmt::format("{}.tasks.models.spec.{} layer_spec", program, one.name)) return &one;
    }
  }
  return nullptr;
}

void read_spec(const std::string& text, const ModelOptions& model,
               std::vector<std::string>& notes) {
  const LayerModule* const found = find_module(text);
  if (found == nullptr) {
    throw Error(Fault::kUsage,
                "--{}: got \"{}\", wanted mindspeed_llm.tasks.models.spec.NAME layer_spec, with "
                "qwen3_spec, deepseek_spec, minicpm_spec, gemma2_spec or grok_spec; layers of "
                "other modules are not here",
                kSpec, text);
  }
  const bool described = model.model.empty() && model.layers;
  if (described && found->needs != nullptr && !found->has(model)) {
    throw Error(Fault::kUsage, "--{}: the layers of {} are those of --{}; give it too", kSpec,
                found->name, found->needs);
  }
  notes.push_back(fmt::format("--{}: no meaning here: other flags describe the layers", kSpec));
}

class RouterReader {
 public:
  RouterReader(const MegatronFlags& given, const ReadOptions& options,
               std::vector<std::string>& notes)
      : given_(given), options_(options), notes_(notes), facts_(options.model.mlp) {
    type_ = facts_.balancing.value_or("aux_loss");
    // Files with all options of a run have every flag of Piton's.
    normalizes_ = options.set.origin("no-norm-topk-prob") == "the command line" &&
                  !facts_.router.unnormalized;
    by_samples_ = given.value_of("seq-aux").has_value();
  }

  void read() {
    if (!facts_.experts && !facts_.balancing) return read_names();
    if (type_ == "softmax_topk" || type_ == "pai_megatron_aux_loss") {
      read_plain();
    } else if (type_ == "group_limited_greedy") {
      read_names();
      limit_groups();
    } else {
      read_names();
      if (type_ == "aux_loss" && normalizes_ && facts_.weights_before_choice)
        set("moe-router-pre-softmax", "false");
      set_balance(type_ == "none" || type_ == "noaux_tc");
    }
  }

 private:
  void set(const char* option, const std::string& value) {
    options_.set.parse({fmt::format("--{}={}", option, value)},
                       fmt::format("--{} {}", kType, type_));
  }

  void note(std::string_view flag) {
    notes_.push_back(
        fmt::format("--{}: has no effect with --{} {}, as in MindSpeed-LLM", flag, kType, type_));
  }

  // Sets `option` to the value of the flag of MindSpeed-LLM, if it is given.
  bool read_name(const char* flag, const char* option) {
    const std::optional<std::string> text = given_.value_of(flag);
    if (!text) return false;
    const std::string before = value_of(option);
    options_.set.parse({fmt::format("--{}={}", option, *text)}, fmt::format("--{}", flag));
    if (!before.empty() && before != value_of(option)) {
      throw Error(Fault::kUsage, "--{} and --{}: two names of one option, got {} and {}; give one",
                  option, flag, before, *text);
    }
    return true;
  }

  std::string value_of(const std::string& option) const {
    for (const auto& [name, value] : options_.set.values()) {
      if (name == option) return value;
    }
    return "";
  }

  void read_names() {
    read_name("routed-scaling-factor", "moe-router-topk-scaling-factor");
    const bool divided = given_.value_of("n-group") || facts_.router.groups;
    if (!given_.value_of("topk-group")) {
      if (given_.value_of("n-group")) {
        if (!facts_.router.group_choices) return note("n-group");
        read_name("n-group", "moe-router-num-groups");
      }
      return;
    }
    const bool by_ranks = type_ == "none" || type_ == "noaux_tc" || type_ == "group_limited_greedy";
    if (!divided && !by_ranks) return note("topk-group");
    read_name("topk-group", "moe-router-group-topk");
    if (read_name("n-group", "moe-router-num-groups") || divided) return;
    set("moe-router-num-groups", std::to_string(options_.parallel.expert));
    notes_.push_back(
        fmt::format("--topk-group: of {} groups, as --expert-model-parallel-size says; "
                    "--moe-router-num-groups {} gives other layouts the same model",
                    options_.parallel.expert, options_.parallel.expert));
  }

  // Without groups and a factor.
  void read_plain() {
    RouterOptions& router = facts_.router;
    refuse_sigmoid();
    if (given_.value_of("topk-group") || router.group_choices) note("topk-group");
    if (given_.value_of("routed-scaling-factor") || router.weight_factor)
      note("routed-scaling-factor");
    router.groups.reset();
    router.group_choices.reset();
    router.group_scores.reset();
    router.weight_factor.reset();
    set("moe-router-pre-softmax", "true");
    if (by_samples_) note("seq-aux");
    by_samples_ = false;
    set_balance(type_ == "softmax_topk");
  }

  void limit_groups() {
    RouterOptions& router = facts_.router;
    refuse_sigmoid();
    if (!router.group_choices) {
      throw Error(Fault::kUsage, "--{}: {} needs --moe-router-group-topk (--topk-group)", kType,
                  type_);
    }
    set("moe-router-group-scores", "1");
    const bool shares = normalizes_ && facts_.choices.value_or(ExpertFacts().choices) > 1;
    set("moe-router-pre-softmax", shares ? "false" : "true");
    if (shares && router.weight_factor.value_or(1) != 1) {
      note("routed-scaling-factor with --norm-topk-prob");
      router.weight_factor.reset();
    }
    set_balance(false);
  }

  void refuse_sigmoid() const {
    if (facts_.router.score.value_or("softmax") == "softmax") return;
    throw Error(Fault::kUsage,
                "--moe-router-score-function: got {}, and --{} {} takes the softmax; leave one of "
                "them out",
                *facts_.router.score, kType, type_);
  }

  // `none`: what the type says without --seq-aux.
  void set_balance(bool none) {
    const bool takes_samples =
        type_ == "none" || type_ == "noaux_tc" || type_ == "group_limited_greedy";
    if (by_samples_ && !takes_samples && type_ != "seq_aux_loss") note("seq-aux");
    const bool by_samples = by_samples_ && takes_samples;
    if (none && !by_samples && type_ != "none" && facts_.balance_factor.value_or(0) != 0) {
      note("moe-aux-loss-coeff");
      set("moe-aux-loss-coeff", "0");
    }
    if (type_ == "aux_loss" || type_ == "seq_aux_loss" || (type_ == "none" && !by_samples)) return;
    set(kType, by_samples ? "seq_aux_loss" : none ? "none" : "aux_loss");
  }

  const MegatronFlags& given_;
  const ReadOptions& options_;
  std::vector<std::string>& notes_;
  MlpOptions& facts_;
  std::string type_;
  bool normalizes_ = false;
  bool by_samples_ = false;
};

}  // namespace

void read_mindspeed_flags(const MegatronFlags& given, const ReadOptions& options,
                          std::vector<std::string>& notes) {
  if (const auto text = given.value_of(kSpec)) read_spec(*text, options.model, notes);
  RouterReader(given, options, notes).read();
}

}  // namespace piton::cli
