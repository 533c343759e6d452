#include "cli/compatibility/preprocess_flags.h"

#include "base/error.h"

namespace piton::cli {
namespace {

constexpr std::string_view kAdditionalKeys = "dataset-additional-keys";

}  // namespace

std::optional<int> PreprocessFlags::words(std::string_view name) const {
  return name == kAdditionalKeys ? std::optional(kAnyWords) : std::nullopt;
}

std::vector<std::string> PreprocessFlags::take(const std::string& name,
                                               const std::vector<std::string>&) {
  throw Error(Fault::kUsage,
              "--{}: keeps columns of prompts for the rewards of reinforcement learning, which is "
              "not there, and training reads ids and labels alone; leave it out (judgments of "
              "answers are kto_tag or label, pairs are chosen and rejected)",
              name);
}

}  // namespace piton::cli
