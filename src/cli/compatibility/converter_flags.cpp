#include "cli/compatibility/converter_flags.h"

#include <algorithm>

#include "base/error.h"
#include "base/options/other_names.h"

namespace piton::cli {
namespace {

enum class Fate {
  kMeans,    // the note is another name of it
  kIgnored,  // the note says why
  kOnly,     // of these values alone; the note says what is not there
  kRefused,  // the note says what is not there
};

struct ConverterFlag {
  std::string_view name;
  int words = 0;
  Fate fate = Fate::kIgnored;
  std::string_view note;
  std::string_view value = "";  // of kOnly
};

constexpr std::string_view kFromFiles = "read from the files";
constexpr std::string_view kFromLoad = "the tokenizer is that of --load";
constexpr std::string_view kGroupedExperts = "moe-grouped-gemm";
constexpr std::string_view kAdaptersAlone = "save-lora-to-hf";
constexpr std::string_view kFromAdapters = "the files of --lora-load say it";

constexpr ConverterFlag kFlags[] = {
    {"num-heads", 1, Fate::kMeans, "num-attention-heads"},
    {"num-kv-heads", 1, Fate::kMeans, "num-query-groups"},
    {"orig-vocab-size", 1, Fate::kMeans, "vocab-size"},
    {"bias", 0, Fate::kMeans, "add-dense-bias"},
    {"source-tensor-parallel-size", 1, Fate::kMeans, "src-tensor-model-parallel-size"},
    {"source-pipeline-parallel-size", 1, Fate::kMeans, "src-pipeline-model-parallel-size"},
    {"source-expert-parallel-size", 1, Fate::kMeans, "src-expert-model-parallel-size"},
    {"num-nextn-predict-layers", 1, Fate::kMeans, "mtp-num-layers"},
    {kAdaptersAlone, 0, Fate::kIgnored, ""},
    {"model-type", 1, Fate::kOnly, "there are decoders alone", "GPT"},
    {"model-type-hf", 1, Fate::kIgnored, kFromFiles},
    {"tokenizer-model", 1, Fate::kIgnored, kFromLoad},
    {"loader", 1, Fate::kIgnored, "formats are recognized by the files"},
    {"saver", 1, Fate::kIgnored, "--to names the format, and --use-mcore-models the modules"},
    {"spec", kAnyWords, Fate::kIgnored, kFromFiles},
    {"w-pack", 1, Fate::kIgnored, kFromFiles},
    {"hf-cfg-dir", 1, Fate::kIgnored,
     "config.json is written from what the checkpoint says, and a tokenizer that it does not have "
     "is copied by hand"},
    {kGroupedExperts, 0, Fate::kIgnored, kFromFiles},
    {"expert-tensor-parallel-size", 1, Fate::kOnly, "the matrices of an expert are not divided",
     "1"},
    {"orm", 0, Fate::kRefused,
     "heads of rewards are in folders of Hugging Face and runs of Piton, not in Megatron's files; "
     "leave it out: between those two the head is converted without it"},
    {"load-from-legacy", 0, Fate::kIgnored, kFromFiles},
    {"save-to-legacy", 0, Fate::kIgnored, "so it is without --use-mcore-models"},
    {"pse", 0, Fate::kIgnored, kFromFiles},
    {"use-wpack-rotray", 0, Fate::kIgnored, kFromFiles},
    {"load-weight-map", 0, Fate::kIgnored, kFromFiles},
    {"load-checkpoint-loosely", 0, Fate::kIgnored,
     "a checkpoint that lacks tensors or has others is an error that names them"},
    {"lora-target-modules", kAnyWords, Fate::kIgnored, kFromAdapters},
};

const ConverterFlag* find(std::string_view name) {
  const auto* found = std::ranges::find(kFlags, name, &ConverterFlag::name);
  return found == std::end(kFlags) ? nullptr : found;
}

std::vector<std::string> as_words(std::string name, const std::vector<std::string>& values) {
  std::vector<std::string> words = {"--" + std::move(name)};
  words.insert(words.end(), values.begin(), values.end());
  return words;
}

}  // namespace

std::optional<int> ConverterFlags::words(std::string_view name) const {
  const ConverterFlag* flag = find(with_dashes(name));
  if (flag != nullptr) return flag->words;
  if (name.find('_') != name.npos) return kAnyWords;  // perhaps an option, spelled otherwise
  return std::nullopt;
}

std::vector<std::string> ConverterFlags::take(const std::string& name,
                                              const std::vector<std::string>& values) {
  const std::string hyphened = with_dashes(name);
  const ConverterFlag* flag = find(hyphened);
  if (flag == nullptr) return as_words(hyphened, values);
  switch (flag->fate) {
    case Fate::kMeans:
      return as_words(std::string(flag->note), values);
    case Fate::kOnly:
      if (!values.empty() && values[0] == flag->value) return {};
      throw Error(Fault::kUsage, "--{}: got {}, wanted {}: {}", name,
                  values.empty() ? "nothing" : values[0], flag->value, flag->note);
    case Fate::kRefused:
      throw Error(Fault::kUsage, "--{}: {}", name, flag->note);
    case Fate::kIgnored:
      if (flag->name == kGroupedExperts) has_grouped_experts_ = true;
      if (flag->name == kAdaptersAlone) writes_adapters_ = true;
      if (flag->note.empty()) return {};
      notes_.push_back(fmt::format("--{}: no meaning here: {}", name, flag->note));
      return {};
  }
  return {};
}

void ConverterFlags::check(bool rank_files) const {
  if (!has_grouped_experts_ || !rank_files) return;
  throw Error(Fault::kUsage,
              "--{}: files of ranks have each expert by itself, as a run without this flag loads "
              "them; leave it out, or give --ckpt-format torch_dist, which runs with it and "
              "without it load",
              kGroupedExperts);
}

void ConverterFlags::report(Log& log) const {
  for (const std::string& note : notes_) log.info(note);
}

}  // namespace piton::cli
