#include "train/run_saves.h"

#include <algorithm>

#include "base/seconds.h"
#include "checkpoint/collective.h"
#include "comm/gathered_values.h"
#include "session/run_sections.h"
#include "train/run/best_validation.h"

namespace piton {

void RunSaves::prepare() {
  const LoopOptions& loop = rules_.loop;
  if (loop.save.empty()) {
    run_.sinks.warning("no --save is given: nothing of this run will be kept");
    return;
  }
  if (!at_end()) run_.writer.check_room();
  const bool between_steps = loop.save_interval > 0 || loop.save_interval_minutes;
  if (!at_end() && between_steps && rules_.in_background) prepare_copies();
  if (loop.no_save_optim) {
    run_.sinks.info(
        "--no-save-optim: checkpoints hold the weights alone; to continue from one, give "
        "--no-load-optim");
  }
  last_begin_ = std::chrono::steady_clock::now();
}

void RunSaves::prepare_copies() {
  if (!run_.writer.prepare_copy()) return go_on_without_copies();
  run_.sinks.info(fmt::format(
      "saves continue in the background, from a copy of the state ({:.1f} MB on rank 0)",
      static_cast<double>(run_.writer.copy_bytes()) * 1e-6));
}

void RunSaves::go_on_without_copies() {
  rules_.in_background = false;
  run_.sinks.warning(
      "there is no memory for a copy of the state: training waits while it is saved, as with "
      "--no-async-save");
}

void RunSaves::save() {
  begin();
  write();
}

void RunSaves::save_if_possible() {
  begin();
  if (rules_.in_background && write_in_background()) return;
  try {
    write();
  } catch (const Error& error) {
    if (error.fault() != Fault::kData) throw;
    warn_of_failure(run_.state.iteration, error);
  }
}

// A lost folder or a changed corpus ends a run, whatever the reason for the save.
void RunSaves::begin() {
  if (rules_.loop.save.empty()) {
    throw Error(Fault::kUsage, "save: this run has no folder to save to; give --save DIR");
  }
  phase(run_.everyone, 0, [&] {
    if (run_.folder != nullptr) run_.folder->check_ours();
  });
  phase(run_.everyone, 0, [&] { run_.writer.check_data(); });
  settle(/*wait=*/true);
  // Also if it fails: the next one is as far away.
  last_begin_ = std::chrono::steady_clock::now();
  interval_is_over_ = false;
}

void RunSaves::write() {
  const auto begin = std::chrono::steady_clock::now();
  std::filesystem::path folder;
  {
    const Section save(run_.sections, kSaveSection, run_.state.iteration);
    folder = run_.writer.save(run_.state);
  }
  saved_iteration_ = run_.state.iteration;
  const double seconds = seconds_since(begin);
  run_.sinks.on_save({.iteration = run_.state.iteration,
                      .folder = folder,
                      .seconds = seconds,
                      .blocked_seconds = seconds,
                      .timers = save_times()});
}

// Returns false if there is no memory for a copy of the state.
bool RunSaves::write_in_background() {
  bool begun = false;
  {
    const Section copy(run_.sections, kSaveSection, run_.state.iteration);
    begun = run_.writer.start_save(run_.state);
  }
  if (!begun) {
    go_on_without_copies();
    return false;
  }
  saving_iteration_ = run_.state.iteration;
  return true;
}

void RunSaves::finish() { settle(/*wait=*/true); }

void RunSaves::before_step() { settle(/*wait=*/false); }

// The first rank's clock counts, so that all ranks save after the same step.
void RunSaves::after_step() {
  const std::optional<double>& minutes = rules_.loop.save_interval_minutes;
  if (!minutes) return;
  const double since = seconds_since(last_begin_);
  interval_is_over_ = gathered_values(run_.everyone, since)[0] > 60 * *minutes;
}

// Reports the save in the background if it is over on all ranks; `wait`: when it is.
void RunSaves::settle(bool wait) {
  constexpr double kLong = 1;  // seconds
  std::optional<FinishedSave> finished;
  if (wait && run_.writer.in_background()) {
    const Section save(run_.sections, kSaveSection);
    finished = run_.writer.take_finished(wait, run_.everyone);
  } else {
    finished = run_.writer.take_finished(wait, run_.everyone);
  }
  if (!finished) return;
  if (finished->waited_seconds > kLong) {
    run_.sinks.info(fmt::format("training waited {:.1f} s for the end of the save of iteration {}",
                                finished->waited_seconds, finished->iteration));
  }
  report(*finished, save_times());
}

void RunSaves::end_after_failure() noexcept {
  try {
    const auto finished = run_.writer.take_finished(/*wait=*/true, run_.everyone);
    if (finished) report(*finished, {});
  } catch (const std::exception&) {
    // A rank is lost. What is reported is why.
  }
}

std::vector<TimerTimes> RunSaves::save_times() const {
  return run_.timers != nullptr ? run_.timers->take_saves(run_.everyone)
                                : std::vector<TimerTimes>();
}

void RunSaves::report(const FinishedSave& finished, std::vector<TimerTimes> timers) {
  saving_iteration_.reset();
  if (finished.error) return warn_of_failure(finished.iteration, *finished.error);
  saved_iteration_ = finished.iteration;
  // On a busy machine training continues later than the save ends.
  const double blocked = finished.copy_seconds + finished.waited_seconds;
  run_.sinks.on_save({.iteration = finished.iteration,
                      .folder = finished.folder,
                      .in_background = true,
                      .seconds = finished.seconds,
                      .blocked_seconds = std::min(blocked, finished.seconds),
                      .timers = std::move(timers)});
}

void RunSaves::warn_of_failure(std::int64_t iteration, const Error& error) const {
  const LoopOptions& loop = rules_.loop;
  const std::int64_t next = std::min(iteration + loop.save_interval, rules_.train_iters);
  std::string then;
  if (next > iteration &&
      next >= run_.state.iteration) {  // a save in the background may end as the next begins
    then = fmt::format("; the run continues and saves again at iteration {}", next);
  } else if (loop.save_interval_minutes && !at_end()) {
    then = fmt::format("; the run continues and saves again in {} minutes",
                       *loop.save_interval_minutes);
  }
  run_.sinks.warning(fmt::format("iteration {} is not saved: {}{}", iteration, error.what(), then));
}

void RunSaves::warn_if_rare(double seconds_per_step, double seconds_since_start) const {
  const LoopOptions& loop = rules_.loop;
  if (loop.save.empty() || loop.save_interval_minutes) return;  // the first is reported earlier
  std::int64_t left = rules_.train_iters - run_.state.iteration;
  if (loop.exit_interval) {
    left = std::min(left, *loop.exit_interval - run_.state.iteration % *loop.exit_interval);
  }
  double seconds = seconds_per_step * static_cast<double>(left);
  if (loop.exit_duration_minutes) {
    seconds = std::min(seconds, 60 * *loop.exit_duration_minutes - seconds_since_start);
  }
  const std::string warning = warning_of_rare_saves(seconds, loop.save, loop.save_interval);
  if (!warning.empty()) run_.sinks.warning(warning);
}

bool RunSaves::due() const {
  const LoopOptions& loop = rules_.loop;
  const std::int64_t iteration = run_.state.iteration;
  if (loop.save.empty() || is_saved() || saving_iteration_ == iteration) return false;
  if (loop.keep_best && iteration > 0 &&
      BestValidation::of(run_.state.facts).iteration == iteration)
    return true;
  return at_end() || interval_is_over_ ||
         (loop.save_interval > 0 && iteration % loop.save_interval == 0);
}

}  // namespace piton
