#include "train/rollback.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "checkpoint/collective.h"
#include "checkpoint/store.h"
#include "train/loss_watchdog.h"

namespace piton {
namespace {

// Fact of TrainState: how often the run went back. Absent: never.
constexpr const char* kRollbacksFact = "train.rollbacks";

}  // namespace

void Rollback::undo(const Error& diverged, std::int64_t bad_steps, TrainState& state) {
  const auto fact = state.facts.find(kRollbacksFact);
  const std::int64_t before = fact == state.facts.end() ? 0 : std::atoll(fact->second.c_str());
  if (before >= loop_.rollback_on_divergence) {
    throw Error(Fault::kDiverged, "{} (--rollback-on-divergence {}: the run went back {} times)",
                diverged.what(), loop_.rollback_on_divergence, before);
  }
  const std::string folder = found_by_first(everyone_, [&] {
    return older_checkpoint(loop_.save, state.iteration - bad_steps + 1)
        .value_or(std::filesystem::path())
        .string();
  });
  if (folder.empty()) {
    throw Error(Fault::kDiverged,
                "{} (--rollback-on-divergence: {} has no checkpoint from before that)",
                diverged.what(), loop_.save);
  }
  log_.warning(diverged.what());
  const TrainState old = checkpoints_.reload(folder);
  const std::int64_t left_out = state.consumed_samples - old.consumed_samples;
  state.consumed_tokens = old.consumed_tokens;
  state.optimizer_steps = old.optimizer_steps;
  state.scheduled_samples = old.scheduled_samples;
  state.learning_rate = old.learning_rate;
  state.lm_loss = old.lm_loss;
  state.facts[kRollbacksFact] = std::to_string(before + 1);
  LossWatchdog::restart(state);
  log_.warning(fmt::format(
      "back to the weights of {}; the {} samples of iterations {} to {} are passed over "
      "(rollback {} of --rollback-on-divergence {})",
      folder, left_out, old.iteration + 1, state.iteration, before + 1,
      loop_.rollback_on_divergence));
}

}  // namespace piton
