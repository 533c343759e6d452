// How a run saves: at once or in the background, and what it says of it.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/seconds.h"
#include "checkpoint/collective.h"
#include "train/trainer.h"

namespace piton {

void Trainer::save() {
  guarded([&] {
    if (settled_.loop.save.empty()) {
      throw Error(Fault::kUsage, "save: this run has no folder to save to; give --save DIR");
    }
    begin_save();
    write_checkpoint();
  });
}

void Trainer::save_if_possible() {
  guarded([&] {
    begin_save();
    if (saves_in_background_ && write_in_background()) return;
    try {
      write_checkpoint();
    } catch (const Error& error) {
      if (error.fault() != Fault::kData) throw;
      warn_of_failed_save(state_.iteration, error);
    }
  });
}

void Trainer::begin_save() {
  phase(*everyone_, 0, [&] { folder_->check_ours(); });
  check_corpora();
  settle_background_save(/*wait=*/true);
  // Also if it fails: the next one is as far away.
  last_save_ = std::chrono::steady_clock::now();
  time_to_save_ = false;
}

// The first rank's clock counts, so that all ranks save after the same step.
void Trainer::check_save_time() {
  const std::optional<double>& minutes = settled_.loop.save_interval_minutes;
  if (!minutes) return;
  const bool due = seconds_since(last_save_) > 60 * *minutes;
  time_to_save_ = everyone_->gather_bytes(due ? "y" : "n")[0] == "y";
}

void Trainer::finish_saves() {
  guarded([&] { settle_background_save(/*wait=*/true); });
}

void Trainer::warn_of_failed_save(std::int64_t iteration, const Error& error) {
  const LoopOptions& loop = settled_.loop;
  const std::int64_t next = std::min(iteration + loop.save_interval, plan_.train_iters);
  std::string then;
  if (next > iteration &&
      next >= state_.iteration) {  // a save in the background may end as the next begins
    then = fmt::format("; the run goes on and saves again at iteration {}", next);
  } else if (loop.save_interval_minutes && !done()) {
    then =
        fmt::format("; the run goes on and saves again in {} minutes", *loop.save_interval_minutes);
  }
  sinks_.warning(fmt::format("iteration {} is not saved: {}{}", iteration, error.what(), then));
}

void Trainer::prepare_background_saves() {
  if (checkpoints_->prepare_copy()) {
    say(fmt::format("saves go on in the background, from a copy of the state ({:.1f} MB on rank 0)",
                    static_cast<double>(checkpoints_->copy_bytes()) * 1e-6));
  } else {
    no_copy();
  }
}

void Trainer::no_copy() {
  saves_in_background_ = false;
  sinks_.warning(
      "there is no memory for a copy of the state: training waits while it is saved, as with "
      "--no-async-save");
}

// Returns false if there is no memory for a copy of the state.
bool Trainer::write_in_background() {
  bool begun = false;
  {
    const Section copy(machine_.sections, kSaveSection, state_.iteration);
    begun = checkpoints_->start_save(state_, *data_);
  }
  if (!begun) {
    no_copy();
    return false;
  }
  saving_iteration_ = state_.iteration;
  return true;
}

// Reports the save in the background if it is over on all ranks; `wait`: when it is.
void Trainer::settle_background_save(bool wait) {
  constexpr double kLong = 1;  // seconds
  std::optional<FinishedSave> finished;
  if (wait && checkpoints_->in_background()) {
    const Section save(machine_.sections, kSaveSection);
    finished = checkpoints_->take_finished(wait, *everyone_);
  } else {
    finished = checkpoints_->take_finished(wait, *everyone_);
  }
  if (!finished) return;
  if (finished->waited_seconds > kLong) {
    say(fmt::format("training waited {:.1f} s for the end of the save of iteration {}",
                    finished->waited_seconds, finished->iteration));
  }
  report_outcome(*finished, save_times());
}

std::vector<TimerTimes> Trainer::save_times() {
  return timers_ ? timers_->take_saves(*everyone_) : std::vector<TimerTimes>();
}

void Trainer::report_outcome(const FinishedSave& finished, std::vector<TimerTimes> timers) {
  saving_iteration_.reset();
  if (finished.error) return warn_of_failed_save(finished.iteration, *finished.error);
  saved_iteration_ = finished.iteration;
  // On a busy machine training continues later than the save ends.
  const double blocked = finished.copy_seconds + finished.waited_seconds;
  sinks_.on_save({.iteration = finished.iteration,
                  .folder = finished.folder,
                  .in_background = true,
                  .seconds = finished.seconds,
                  .blocked_seconds = std::min(blocked, finished.seconds),
                  .timers = std::move(timers)});
}

// A changed corpus ends a run, whatever the reason for the save.
void Trainer::check_corpora() {
  phase(*everyone_, 0, [&] { data_->check_unchanged(); });
}

void Trainer::write_checkpoint() {
  const auto begin = std::chrono::steady_clock::now();
  std::filesystem::path folder;
  {
    const Section save(machine_.sections, kSaveSection, state_.iteration);
    folder = checkpoints_->save(state_, *data_);
  }
  saved_iteration_ = state_.iteration;
  const double seconds = seconds_since(begin);
  sinks_.on_save({.iteration = state_.iteration,
                  .folder = folder,
                  .seconds = seconds,
                  .blocked_seconds = seconds,
                  .timers = save_times()});
}

}  // namespace piton
