#include "cli/compatibility/preprocess_flags.h"

#include <fmt/format.h>

#include "base/error.h"

namespace piton::cli {
namespace {

constexpr std::string_view kAdditionalKeys = "dataset-additional-keys";

}  // namespace

std::optional<int> PreprocessFlags::words(std::string_view name) const {
  if (name == kAdditionalKeys) return kAnyWords;
  if (name == "overwrite-cache") return 0;
  if (name == "cache-dir") return 1;
  return std::nullopt;
}

std::vector<std::string> PreprocessFlags::take(const std::string& name,
                                               const std::vector<std::string>&) {
  if (name != kAdditionalKeys) {
    notes_.push_back(fmt::format(
        "--{}: no meaning here: nothing is cached, records are read from their files", name));
    return {};
  }
  throw Error(
      Fault::kUsage,
      "--{}: keeps columns for rewards in token files, which have ids and labels alone; leave "
      "it out: `piton finetune --stage grpo` reads questions from their records, with all "
      "keys (judgments of answers are kto_tag or label, pairs are chosen and rejected)",
      name);
}

void PreprocessFlags::report(Log& log) const {
  for (const std::string& note : notes_) log.info(note);
}

}  // namespace piton::cli
