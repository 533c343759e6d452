#include "cli/compatibility/evaluation_flags.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace piton::cli {
namespace {

enum class FlagEffect {
  kMeans,    // the note is another name of it
  kSize,     // of the model, which has it too
  kIgnored,  // the note says why
};

struct EvaluationFlag {
  std::string_view name;
  int words = 0;
  FlagEffect fate = FlagEffect::kIgnored;
  std::string_view note = "";
};

constexpr std::string_view kInFiles = "read from the model's files";
constexpr std::string_view kGreedy = "answers are greedy, as there";
constexpr std::string_view kPrecision = "the model computes in the precision of its files";
constexpr std::string_view kLoads = "an evaluation loads weights alone";

constexpr EvaluationFlag kEvaluationFlags[] = {
    {"valid-data", 1, FlagEffect::kMeans, "task-data-path"},
    {"micro-batch-size", 1, FlagEffect::kMeans, "batch-size"},
    {"num-layers", 1, FlagEffect::kSize},
    {"hidden-size", 1, FlagEffect::kSize},
    {"ffn-hidden-size", 1, FlagEffect::kSize},
    {"num-attention-heads", 1, FlagEffect::kSize},
    {"num-query-groups", 1, FlagEffect::kSize},
    {"max-position-embeddings", 1, FlagEffect::kIgnored, kInFiles},
    {"group-query-attention", 0, FlagEffect::kIgnored, kInFiles},
    {"make-vocab-size-divisible-by", 1, FlagEffect::kIgnored, kInFiles},
    {"position-embedding-type", 1, FlagEffect::kIgnored, kInFiles},
    {"normalization", 1, FlagEffect::kIgnored, kInFiles},
    {"swiglu", 0, FlagEffect::kIgnored, kInFiles},
    {"disable-bias-linear", 0, FlagEffect::kIgnored, kInFiles},
    {"add-qkv-bias", 0, FlagEffect::kIgnored, kInFiles},
    {"add-dense-bias", 0, FlagEffect::kIgnored, kInFiles},
    {"skip-bias-add", 0, FlagEffect::kIgnored, kInFiles},
    {"mlp-layer-fusion", 0, FlagEffect::kIgnored, kInFiles},
    {"rotary-v3-impl", 0, FlagEffect::kIgnored, kInFiles},
    {"untie-embeddings-and-output-weights", 0, FlagEffect::kIgnored, kInFiles},
    {"rotary-base", 1, FlagEffect::kIgnored, kInFiles},
    {"norm-epsilon", 1, FlagEffect::kIgnored, kInFiles},
    {"rope-scaling-type", 1, FlagEffect::kIgnored, kInFiles},
    {"rope-scaling-factor", 1, FlagEffect::kIgnored, kInFiles},
    {"rope-scaling-beta-fast", 1, FlagEffect::kIgnored, kInFiles},
    {"rope-scaling-beta-slow", 1, FlagEffect::kIgnored, kInFiles},
    {"rope-scaling-mscale", 1, FlagEffect::kIgnored, kInFiles},
    {"rope-scaling-mscale-all-dim", 1, FlagEffect::kIgnored, kInFiles},
    {"rope-scaling-original-max-position-embeddings", 1, FlagEffect::kIgnored, kInFiles},
    {"max-tokens-to-oom", 1, FlagEffect::kIgnored, "a batch has at most --batch-size texts"},
    {"broadcast", 0, FlagEffect::kIgnored, "copies of the model share the questions"},
    {"lora-r", 1, FlagEffect::kIgnored, "read from the files of --lora-load"},
    {"lora-alpha", 1, FlagEffect::kIgnored, "read from the files of --lora-load"},
    {"lora-target-modules", kAnyWords, FlagEffect::kIgnored, "read from the files of --lora-load"},
    {"fp16", 0, FlagEffect::kIgnored, kPrecision},
    {"bf16", 0, FlagEffect::kIgnored, kPrecision},
    {"greedy", 0, FlagEffect::kIgnored, kGreedy},
    {"no-load-optim", 0, FlagEffect::kIgnored, kLoads},
    {"no-load-rng", 0, FlagEffect::kIgnored, kLoads},
    {"exit-on-missing-checkpoint", 0, FlagEffect::kIgnored, "so it is here"},
    {"use-kv-cache", 0, FlagEffect::kIgnored, "so it is here"},
    {"no-chat-template", 0, FlagEffect::kIgnored, "so it is without --apply-chat-template"},
    {"origin-postprocess", 0, FlagEffect::kIgnored,
     "so it is here: no rule looks at the right answer"},
    {"use-flash-attn", 0, FlagEffect::kIgnored, "kernels are chosen by the machine"},
    {"use-fused-rmsnorm", 0, FlagEffect::kIgnored, "kernels are chosen by the machine"},
    {"no-masked-softmax-fusion", 0, FlagEffect::kIgnored, "kernels are chosen by the machine"},
    {"no-gradient-accumulation-fusion", 0, FlagEffect::kIgnored, "there are no gradients"},
    {"attention-softmax-in-fp32", 0, FlagEffect::kIgnored, "so it is here"},
    {"distributed-backend", 1, FlagEffect::kIgnored, "ranks are those of the launcher"},
    {"use-mcore-models", 0, FlagEffect::kIgnored, "there is one model"},
};

const EvaluationFlag* find_evaluation_flag(std::string_view name) {
  const auto* found = std::ranges::find(kEvaluationFlags, name, &EvaluationFlag::name);
  return found == std::end(kEvaluationFlags) ? nullptr : found;
}

std::int64_t size_of(const std::string& flag, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(Fault::kUsage, "--{}: got \"{}\", wanted an integer", flag, text);
  return value;
}

}  // namespace

std::optional<int> EvaluationFlags::words(std::string_view name) const {
  const EvaluationFlag* flag = find_evaluation_flag(name);
  return flag == nullptr ? std::nullopt : std::optional<int>(flag->words);
}

std::vector<std::string> EvaluationFlags::take(const std::string& name,
                                               const std::vector<std::string>& values) {
  const EvaluationFlag* flag = find_evaluation_flag(name);
  PITON_ASSERT(flag != nullptr, "--{} was asked about", name);
  if (flag->words == 1 && values.size() != 1)
    throw Error(Fault::kUsage, "--{}: got no value, wanted one", name);
  switch (flag->fate) {
    case FlagEffect::kMeans: {
      std::vector<std::string> words = {"--" + std::string(flag->note)};
      words.insert(words.end(), values.begin(), values.end());
      return words;
    }
    case FlagEffect::kSize:
      sizes_[name] = size_of(name, values.front());
      return {};
    case FlagEffect::kIgnored:
      notes_.push_back(fmt::format("--{}: no meaning here: {}", name, flag->note));
      return {};
  }
  return {};
}

void EvaluationFlags::report(Log& log) const {
  for (const std::string& note : notes_) log.info(note);
}

void EvaluationFlags::check(const ModelConfig& model, const std::string& load) const {
  const std::map<std::string, std::int64_t> wanted = {{"num-layers", model.layers},
                                                      {"hidden-size", model.hidden},
                                                      {"ffn-hidden-size", model.ffn_hidden},
                                                      {"num-attention-heads", model.heads},
                                                      {"num-query-groups", model.groups}};
  for (const auto& [flag, got] : sizes_) {
    if (got == wanted.at(flag)) continue;
    throw Error(Fault::kUsage, "--{}: got {}, but the model of {} has {}; leave the flag out", flag,
                got, load, wanted.at(flag));
  }
}

}  // namespace piton::cli
