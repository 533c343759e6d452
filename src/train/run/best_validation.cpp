#include "train/run/best_validation.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/options/option_range.h"
#include "train/run/pretrain_options.h"

namespace piton {
namespace {

// Fact of TrainState: "LOSS ITERATION WAITED", LOSS "none" or with all digits of a double.
constexpr const char* kBestFact = "train.best_validation";

}  // namespace

BestValidation BestValidation::of(const std::map<std::string, std::string>& facts) {
  BestValidation best;
  const auto found = facts.find(kBestFact);
  if (found == facts.end()) return best;
  const std::string& text = found->second;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto read = [&](auto& value) {
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc())
      throw Error(Fault::kData, "state.json: {}: got {}, wanted three numbers", kBestFact, text);
    at = stop < end ? stop + 1 : stop;
  };
  if (text.starts_with("none ")) {
    at += 5;
  } else {
    read(best.loss.emplace());
  }
  read(best.iteration);
  read(best.waited);
  return best;
}

void BestValidation::keep_in(std::map<std::string, std::string>& facts) const {
  facts[kBestFact] =
      fmt::format("{} {} {}", loss ? fmt::format("{}", *loss) : "none", iteration, waited);
}

void BestValidation::count(std::int64_t at_iteration, double found, double threshold) {
  const bool lower = !std::isnan(found) && (!loss || found < *loss);
  const bool enough = lower && (!loss || *loss - found > threshold);
  waited = enough ? 0 : waited + 1;
  if (!lower) return;
  loss = found;
  iteration = at_iteration;
}

void check_best_validation(const PretrainOptions& options) {
  const LoopOptions& loop = options.loop;
  if (loop.early_stopping_patience)
    check_range("--early-stopping-patience", *loop.early_stopping_patience, 1);
  check_not_negative("--early-stopping-threshold", loop.early_stopping_threshold);
  if (loop.early_stopping_threshold > 0 && !loop.early_stopping_patience) {
    throw Error(Fault::kUsage,
                "--early-stopping-threshold: needs --early-stopping-patience; add it or leave "
                "this out");
  }
  const bool has_losses = loop.evaluates() && !options.preferences.by_rewards();
  if ((!loop.keep_best && !loop.early_stopping_patience) || has_losses) return;
  throw Error(Fault::kUsage, "--{}: needs validation losses{}",
              loop.keep_best ? "keep-best" : "early-stopping-patience",
              loop.evaluates() ? ", and --stage grpo and ppo have none; leave it out"
                               : "; give --eval-iters or --full-validation");
}

}  // namespace piton
