// The saves of a run: after which steps, at once or in the background, and the messages about them.
// One object is one rank. Every call is collective over `everyone`, but for the queries.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/sections.h"
#include "comm/communicator.h"
#include "train/run/checkpoint_writer.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_folder.h"
#include "train/sinks/run_sink.h"
#include "train/trace/run_timers.h"

namespace piton {

struct SaveRules {
  LoopOptions loop;              // --save, --save-interval and others, settled
  std::int64_t train_iters = 0;  // after which the run ends
  bool in_background = false;    // saves between steps, as PretrainOptions::saves_in_background()
};

// What a save concerns. All of it must outlive the saves.
struct SavedRun {
  CheckpointWriter& writer;
  TrainState& state;
  RunFolder* folder = nullptr;  // of the first rank; null: it has none, as on other ranks
  Communicator& everyone;
  RunSinks& sinks;
  SectionObserver* sections = nullptr;
  RunTimers* timers = nullptr;
};

class RunSaves {
 public:
  // `saved_iteration`: of the checkpoint in --save that the run resumed.
  RunSaves(SaveRules rules, const SavedRun& run, std::optional<std::int64_t> saved_iteration = {})
      : rules_(std::move(rules)), run_(run), saved_iteration_(saved_iteration) {}

  // Before the first step: checks that there is room, takes memory for the copies of saves in the
  // background, and warns of what the rules lose. Throws Error(kData) if there is no room.
  void prepare();

  // As of Trainer. Throws Error(kUsage) without --save.
  void save();
  void save_if_possible();
  // Waits until no save is in the background.
  void finish();

  // Reports a save in the background that is over.
  void before_step();
  // Looks at the clock, for --save-interval-in-mins.
  void after_step();
  // Not collective. Warns if a crash would lose hours. `seconds_since_start`: of this start.
  void warn_if_rare(double seconds_per_step, double seconds_since_start) const;
  // After a failure: completes the save in the background, whose state is from before it.
  void end_after_failure() noexcept;

  // By --save-interval, --save-interval-in-mins, --keep-best, or the end of the run.
  bool due() const;
  // Whether the state is in --save, on the disk.
  bool is_saved() const { return saved_iteration_ == run_.state.iteration; }

 private:
  bool at_end() const { return run_.state.iteration >= rules_.train_iters; }
  void begin();
  void write();
  bool write_in_background();
  void prepare_copies();
  void go_on_without_copies();
  void settle(bool wait);
  void report(const FinishedSave& finished, std::vector<TimerTimes> timers);
  void warn_of_failure(std::int64_t iteration, const Error& error) const;
  std::vector<TimerTimes> save_times() const;

  SaveRules rules_;
  SavedRun run_;
  std::optional<std::int64_t> saved_iteration_;       // of the newest checkpoint in --save
  std::optional<std::int64_t> saving_iteration_;      // of the save in the background
  bool interval_is_over_ = false;                     // --save-interval-in-mins
  std::chrono::steady_clock::time_point last_begin_;  // of a save, or of the first step
};

}  // namespace piton
