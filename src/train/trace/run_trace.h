// --trace: what the ranks do in a few steps, in one file for chrome://tracing and Perfetto: the
// parts of each step, every kernel call, the communication of each group, and waits.
//
// Ranks record into memory (base/trace_events.h), and write after the last of these steps: each its
// part next to the file, which the first rank joins. So no rank needs memory for the others. Clocks
// are those of the hosts; two hosts differ by the time that a barrier takes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/sections.h"
#include "base/trace_events.h"
#include "comm/communicator.h"
#include "session/machine.h"
#include "train/trace/timing_options.h"

namespace piton {

class RunTrace final : public SectionObserver {
 public:
  // Throws Error(kUsage) for --profile without a file, and for steps or ranks that cannot be.
  // `save`: the run's folder, or "".
  static void check(const TimingOptions& options, const std::string& save, int ranks);
  // Null if the options ask for no trace.
  static std::unique_ptr<RunTrace> make(const TimingOptions& options, const std::string& save,
                                        int rank);
  ~RunTrace() override;

  // `machine`, with its kernels and its world traced if this rank is. Called once.
  Machine traced(const Machine& machine);

  // These are collective over `everyone`. `iteration`: done so far.
  // Throws Error(kData), on all ranks, if the file cannot be written.
  // A range of steps that an earlier start of the run has done is not recorded again.
  void open(std::int64_t iteration, Communicator& everyone, Log& log);
  void before_step(std::int64_t iteration, Communicator& everyone);
  // Writes the file after its last step.
  void after_step(std::int64_t iteration, Communicator& everyone, Log& log);
  // Writes what there is if the run ends before that.
  void finish(Communicator& everyone, Log& log);

  void begin_section(std::string_view name, std::int64_t number) override;
  void end_section(std::string_view name) override;

 private:
  RunTrace(const TimingOptions& options, std::filesystem::path file, int rank)
      : options_(options), file_(std::move(file)), rank_(rank) {}
  bool records(int rank) const;  // is among --profile-ranks
  void write(Communicator& everyone, Log& log);
  void write_files(Communicator& everyone) const;
  std::filesystem::path part_of(int rank) const;

  TimingOptions options_;
  std::filesystem::path file_;
  int rank_;
  std::int64_t first_ = 0;  // iterations done when it begins
  std::int64_t last_ = 0;   // and when it ends
  bool began_ = false;
  bool written_ = false;
  TraceEvents::Time zero_{};
  std::shared_ptr<TraceEvents> events_ = std::make_shared<TraceEvents>();
  std::unique_ptr<World> world_;
  std::unique_ptr<Kernels> kernels_;
  struct OpenSection {
    std::string_view name;
    std::int64_t number;
    TraceEvents::Time begin;
  };
  std::vector<OpenSection> open_;
};

}  // namespace piton
