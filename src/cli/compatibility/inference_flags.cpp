#include "cli/compatibility/inference_flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "base/nesting.h"
#include "base/options/other_names.h"
#include "cli/compatibility/megatron_flags.h"

namespace piton::cli {
namespace {

enum class FlagEffect {
  kMeans,    // the note is another name of it
  kSize,     // of the model, which has it too
  kIgnored,  // the note says why
  kRefused,  // the note says what to do
  kTask,     // what inference.py does
  kEmpty,    // layers that do nothing
  kShards,   // a file of DeepSpeed, which may say stage 3
};

constexpr int kEval = static_cast<int>(InferenceCommand::kEval);
constexpr int kGenerate = static_cast<int>(InferenceCommand::kGenerate);
constexpr int kChat = static_cast<int>(InferenceCommand::kChat);
constexpr int kServe = static_cast<int>(InferenceCommand::kServe);
constexpr int kTexts = kGenerate | kChat;
constexpr int kAllCommands = kEval | kTexts | kServe;

struct InferenceFlag {
  std::string_view name;
  int words = 0;
  FlagEffect fate = FlagEffect::kIgnored;
  std::string_view note = "";
  int commands = kAllCommands;
};

constexpr std::string_view kInFiles = "read from the model's files";
constexpr std::string_view kGreedy = "answers are greedy, as there";
constexpr std::string_view kPrecision = "the model computes in the precision of its files";
constexpr std::string_view kLoads = "weights alone are loaded";
constexpr std::string_view kAdapters = "read from the files of --lora-load";
constexpr std::string_view kSoHere = "so it is here";
constexpr std::string_view kKernels = "kernels are chosen by the machine";
constexpr std::string_view kShards = "--zero-stage 3 shards the weights";
constexpr std::string_view kInRequests = "requests say it";
constexpr std::string_view kOfTraining = "of training, or read from the model's files";
constexpr std::string_view kAsk = "piton chat asks by a chat template (--chat-template)";

constexpr InferenceFlag kInferenceFlags[] = {
    {"num-layers", 1, FlagEffect::kSize},
    {"hidden-size", 1, FlagEffect::kSize},
    {"ffn-hidden-size", 1, FlagEffect::kSize},
    {"num-attention-heads", 1, FlagEffect::kSize},
    {"num-query-groups", 1, FlagEffect::kSize},
    {"num-experts", 1, FlagEffect::kSize},
    {"noop-layers", 1, FlagEffect::kEmpty},
    {"valid-data", 1, FlagEffect::kMeans, "task-data-path", kEval},
    {"micro-batch-size", 1, FlagEffect::kMeans, "batch-size", kEval},
    {"max-tokens-to-oom", 1, FlagEffect::kIgnored, "a batch has at most --batch-size texts", kEval},
    {"broadcast", 0, FlagEffect::kIgnored, "copies of the model share the questions", kEval},
    {"greedy", 0, FlagEffect::kIgnored, kGreedy, kEval},
    {"no-chat-template", 0, FlagEffect::kIgnored, "so it is without --apply-chat-template", kEval},
    {"origin-postprocess", 0, FlagEffect::kIgnored,
     "so it is here: no rule looks at the right answer", kEval},
    {"hf-chat-template", 0, FlagEffect::kMeans, "apply-chat-template", kEval},
    {"add-eos-token", kAnyWords, FlagEffect::kMeans, "stop", kEval},
    {"task", kAnyWords, FlagEffect::kTask, "", kTexts},
    {"max-length", 1, FlagEffect::kIgnored, "--max-new-tokens bounds an answer", kChat},
    {"micro-batch-size", 1, FlagEffect::kIgnored, "--prompts-at-once sets it for --prompts",
     kGenerate},
    {"micro-batch-size", 1, FlagEffect::kIgnored, "a conversation is one text", kChat},
    {"add-eos-token", kAnyWords, FlagEffect::kMeans, "stop", kTexts},
    {"max-tokens-to-oom", 1, FlagEffect::kIgnored, "memory is that of --max-new-tokens", kTexts},
    {"broadcast", 0, FlagEffect::kIgnored, "all ranks of the model draw the same tokens", kTexts},
    {"no-chat-template", 0, FlagEffect::kIgnored, kSoHere, kGenerate},
    {"hf-chat-template", 0, FlagEffect::kRefused, kAsk, kGenerate},
    {"inference-prompt-type", 1, FlagEffect::kRefused, kAsk, kGenerate},
    {"prompt-type", 1, FlagEffect::kRefused, kAsk, kGenerate},
    {"history-turns", 1, FlagEffect::kIgnored, "a prompt has no earlier questions", kGenerate},
    {"hf-chat-template", 0, FlagEffect::kIgnored, kSoHere, kChat},
    {"inference-prompt-type", 1, FlagEffect::kMeans, "chat-template", kChat},
    {"prompt-type", 1, FlagEffect::kMeans, "chat-template", kChat},
    {"max-batch-size", 1, FlagEffect::kMeans, "max-concurrent-requests", kServe},
    {"out-seq-length", 1, FlagEffect::kMeans, "max-new-tokens", kServe},
    {"hf-chat-template", 0, FlagEffect::kIgnored, kSoHere, kServe},
    {"inference-prompt-type", 1, FlagEffect::kMeans, "chat-template", kServe},
    {"prompt-type", 1, FlagEffect::kMeans, "chat-template", kServe},
    {"temperature", 1, FlagEffect::kIgnored, kInRequests, kServe},
    {"greedy", 0, FlagEffect::kIgnored, kInRequests, kServe},
    {"top-p", 1, FlagEffect::kIgnored, kInRequests, kServe},
    {"top-k", 1, FlagEffect::kIgnored, kInRequests, kServe},
    {"seed", 1, FlagEffect::kIgnored, kInRequests, kServe},
    {"micro-batch-size", 1, FlagEffect::kIgnored, "--max-concurrent-requests bounds a batch",
     kServe},
    {"max-tokens-to-oom", 1, FlagEffect::kIgnored, "--max-new-tokens bounds a text", kServe},
    {"seq-length", 1, FlagEffect::kIgnored, "--max-new-tokens bounds a text", kServe},
    {"log-interval", 1, FlagEffect::kIgnored, "there are no iterations"},
    {"deepspeed", 0, FlagEffect::kIgnored, kShards},
    {"deepspeed-config", 1, FlagEffect::kShards, kShards},
    {"expert-model-parallel-size", 1, FlagEffect::kIgnored,
     "each rank has all experts of its layers, or its part of each (tensor ranks)"},
    {"context-parallel-size", 1, FlagEffect::kIgnored, "each rank has all tokens of a text"},
    {"seq-length", 1, FlagEffect::kIgnored, "--max-new-tokens bounds a text", kTexts},
    {"spec", kAnyWords, FlagEffect::kIgnored, kInFiles},
    {"n-group", 1, FlagEffect::kIgnored, kInFiles},
    {"topk-group", 1, FlagEffect::kIgnored, kInFiles},
    {"routed-scaling-factor", 1, FlagEffect::kIgnored, kInFiles},
    {"norm-topk-prob", 0, FlagEffect::kIgnored, kInFiles},
    {"seq-aux", 0, FlagEffect::kIgnored, kInFiles},
    {"moe-tp-extend-ep", 0, FlagEffect::kIgnored, kInFiles},
    {"moe-revert-type-after-topk", 0, FlagEffect::kIgnored, kInFiles},
    {"input-layernorm-in-fp32", 0, FlagEffect::kIgnored, kInFiles},
    {"interleave-sliding-window", 1, FlagEffect::kIgnored, kInFiles},
    {"use-glm-rope", 0, FlagEffect::kIgnored, kInFiles},
    {"partial-rotary-factor", 1, FlagEffect::kIgnored, kInFiles},
    {"moe-alltoall-overlap-comm", 0, FlagEffect::kIgnored, kKernels},
    {"enable-mla-absorb", 0, FlagEffect::kIgnored, kKernels},
    {"mla-mm-split", 0, FlagEffect::kIgnored, kKernels},
    {"mla-fa-divide-qk", 0, FlagEffect::kIgnored, kKernels},
    {"use-fused-mlp", 0, FlagEffect::kIgnored, kKernels},
    {"skip-bias-add", 0, FlagEffect::kIgnored, kInFiles},
    {"rotary-v3-impl", 0, FlagEffect::kIgnored, kInFiles},
    {"group-query-attention", 0, FlagEffect::kIgnored, kInFiles},
    {"untie-embeddings-and-output-weights", 0, FlagEffect::kIgnored, kInFiles},
    {"use-rotary-position-embeddings", 0, FlagEffect::kIgnored, kInFiles},
    {"rope-scaling-type", 1, FlagEffect::kIgnored, kInFiles},
    {"lora-r", 1, FlagEffect::kIgnored, kAdapters},
    {"lora-alpha", 1, FlagEffect::kIgnored, kAdapters},
    {"lora-target-modules", kAnyWords, FlagEffect::kIgnored, kAdapters},
    {"fp16", 0, FlagEffect::kIgnored, kPrecision},
    {"bf16", 0, FlagEffect::kIgnored, kPrecision},
    {"no-load-optim", 0, FlagEffect::kIgnored, kLoads},
    {"no-load-rng", 0, FlagEffect::kIgnored, kLoads},
    {"exit-on-missing-checkpoint", 0, FlagEffect::kIgnored, kSoHere},
    {"use-kv-cache", 0, FlagEffect::kIgnored, kSoHere},
    {"attention-softmax-in-fp32", 0, FlagEffect::kIgnored, kSoHere},
    {"use-flash-attn", 0, FlagEffect::kIgnored, kKernels},
    {"no-gradient-accumulation-fusion", 0, FlagEffect::kIgnored, "there are no gradients"},
    {"distributed-backend", 1, FlagEffect::kIgnored, "ranks are those of the launcher"},
    {"use-mcore-models", 0, FlagEffect::kIgnored, "there is one model"},
};

const InferenceFlag* find_inference_flag(std::string_view name, InferenceCommand command) {
  const std::string wanted = with_dashes(name);
  const auto* found = std::ranges::find_if(kInferenceFlags, [&](const InferenceFlag& flag) {
    return flag.name == wanted && (flag.commands & static_cast<int>(command)) != 0;
  });
  return found == std::end(kInferenceFlags) ? nullptr : found;
}

template <typename Value>
int words_of_type() {
  using T = std::remove_cvref_t<Value>;
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>) {
    return 0;
  } else if constexpr (requires(T list) { list.push_back(list[0]); } &&
                       !std::is_same_v<T, std::string>) {
    return kAnyWords;
  }
  return 1;
}

// Of an option that describes a model; nullopt for others, and for --model, which names a family.
std::optional<int> words_of_model_option(std::string_view name) {
  const std::string wanted = with_dashes(name);
  std::optional<int> words;
  ModelOptions options;
  options.visit([&]<typename Value>(const Option& option, Value&&) {
    if (option.name == "model") return;
    if (option.name == wanted || std::ranges::count(option.rules.aliases, wanted) > 0)
      words = words_of_type<Value>();
  });
  return words;
}

// Of `piton pretrain`, which refuses others.
std::optional<MegatronFlag> training_flag(std::string_view name) {
  std::optional<MegatronFlag> flag = megatron_flag(name);
  if (flag && flag->kind == MegatronKind::kNotYet) flag.reset();
  return flag;
}

std::int64_t size_of(const std::string& flag, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(Fault::kUsage, "--{}: got \"{}\", wanted an integer", flag, text);
  return value;
}

// zero_optimization.stage of a configuration of DeepSpeed; 0 where it says none.
std::int64_t deepspeed_stage(const std::string& file) {
  const std::string text = read_text_file(file, 1 << 24);
  check_json_depth(text, file);
  const auto json = read_json_or_discarded<nlohmann::json>(text);
  if (!json.is_object()) throw Error(Fault::kData, "{}: got no JSON object", file);
  const auto zero = json.find("zero_optimization");
  if (zero == json.end() || !zero->is_object() || !zero->contains("stage")) return 0;
  const nlohmann::json& stage = (*zero)["stage"];
  return stage.is_number_integer() ? stage.get<std::int64_t>() : 0;
}

}  // namespace

std::optional<int> InferenceFlags::words(std::string_view name) const {
  if (const InferenceFlag* flag = find_inference_flag(name, command_)) return flag->words;
  if (const std::optional<int> words = words_of_model_option(name)) return words;
  if (const auto flag = training_flag(name)) return flag->words;
  return std::nullopt;
}

void InferenceFlags::ignore(const std::string& name, std::string_view why) {
  auto at = std::ranges::find(ignored_, why, [](const auto& one) { return one.first; });
  if (at == ignored_.end()) at = ignored_.insert(at, {why, {}});
  const std::string flag = "--" + name;
  if (std::ranges::count(at->second, flag) == 0) at->second.push_back(flag);
}

std::vector<std::string> InferenceFlags::task(const std::vector<std::string>& values) const {
  const std::string asked = fmt::format("{}", fmt::join(values, " "));
  if (command_ == InferenceCommand::kChat) {
    if (asked == "chat" || asked == "3") return {};
    throw Error(Fault::kUsage, "--task: got \"{}\", wanted chat; piton generate continues texts",
                asked);
  }
  // Numbers are AscendSpeed's.
  if (asked == "greedy" || asked == "1") return {"--greedy"};
  if (asked == "do_sample" || asked == "2") return {};
  if (asked == "beam_search")
    throw Error(Fault::kUsage, "--task: got beam_search; give --num-beams N in its place");
  if (asked == "beam_search_with_sampling")
    throw Error(Fault::kUsage,
                "--task: got {}; beams here draw nothing: give --num-beams N, or --num-samples N, "
                "in its place",
                asked);
  throw Error(Fault::kUsage,
              "--task: got \"{}\", wanted greedy or 1, or do_sample or 2; --num-beams N follows "
              "several texts, --logprobs N shows probabilities, and chat or 3 is piton chat",
              asked);
}

std::vector<std::string> InferenceFlags::take(const std::string& name,
                                              const std::vector<std::string>& values) {
  const InferenceFlag* flag = find_inference_flag(name, command_);
  const std::optional<int> count = words(name);
  PITON_ASSERT(count.has_value(), "--{} was asked about", name);
  if (*count == 1 && values.size() != 1)
    throw Error(Fault::kUsage, "--{}: got no value, wanted one", name);
  if (flag == nullptr) {
    const std::optional<MegatronFlag> known = training_flag(name);
    const bool has_reason = known && known->kind == MegatronKind::kIgnored;
    ignore(name, words_of_model_option(name) ? kInFiles : has_reason ? known->note : kOfTraining);
    return {};
  }
  switch (flag->fate) {
    case FlagEffect::kMeans: {
      std::vector<std::string> words = {"--" + std::string(flag->note)};
      words.insert(words.end(), values.begin(), values.end());
      return words;
    }
    case FlagEffect::kSize:
      sizes_[with_dashes(name)] = size_of(name, values.front());
      return {};
    case FlagEffect::kEmpty:
      empty_layers_ = 1 + std::ranges::count(values.front(), ',');
      return {};
    case FlagEffect::kTask:
      return task(values);
    case FlagEffect::kShards:
      if (deepspeed_stage(values.front()) == 3) return {"--zero-stage", "3"};
      ignore(name, flag->note);
      return {};
    case FlagEffect::kRefused:
      throw Error(Fault::kUsage, "--{}: {}; leave it out", name, flag->note);
    case FlagEffect::kIgnored:
      ignore(name, flag->note);
      return {};
  }
  return {};
}

void InferenceFlags::check(const ModelConfig& model, const std::string& load, Log& log) const {
  const std::map<std::string, std::int64_t> wanted = {
      {"num-layers", model.layers + empty_layers_},
      {"hidden-size", model.hidden},
      {"ffn-hidden-size", model.ffn_hidden},
      {"num-attention-heads", model.heads},
      {"num-query-groups", model.groups},
      {"num-experts", model.experts ? model.experts->experts : 0}};
  // Where all layers have experts, scripts say the width of layers that there are none of.
  const bool is_of_experts = model.experts && model.expert_layers() == model.layers;
  for (const auto& [flag, got] : sizes_) {
    if (got == wanted.at(flag) || (is_of_experts && flag == "ffn-hidden-size")) continue;
    throw Error(Fault::kUsage, "--{}: got {}, but the model of {} has {}; leave the flag out", flag,
                got, load, wanted.at(flag));
  }
  for (const auto& [why, flags] : ignored_)
    log.info(fmt::format("{}: no meaning here: {}", fmt::join(flags, ", "), why));
}

}  // namespace piton::cli
