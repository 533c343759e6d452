#include "train/trace/run_trace.h"

#include <algorithm>
#include <utility>

#include "base/files/files.h"
#include "base/files/host_name.h"
#include "checkpoint/collective.h"
#include "comm/gathered_values.h"
#include "comm/traced_world.h"
#include "kernels/measured/traced_kernels.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStepsBefore = 2;  // the first ones also ask for memory
constexpr std::int64_t kSteps = 2;

}  // namespace

void RunTrace::check(const TimingOptions& options, const std::string& save, int ranks) {
  if (options.profile && options.trace.empty() && save.empty()) {
    throw Error(Fault::kUsage, "--profile: no file to write to; give --trace FILE or --save DIR");
  }
  const std::int64_t start = options.profile_step_start.value_or(0);
  const std::int64_t end = options.profile_step_end.value_or(start + 1);
  if (start < 0 || end <= start) {
    throw Error(Fault::kUsage,
                "--profile-step-start, --profile-step-end: got {} and {}, wanted 0 or more, and "
                "an end after the start",
                start, end);
  }
  for (const int rank : options.profile_ranks) {
    if (rank >= 0 && rank < ranks) continue;
    throw Error(Fault::kUsage, "--profile-ranks: got {}, wanted ranks from 0 to {}", rank,
                ranks - 1);
  }
}

std::unique_ptr<RunTrace> RunTrace::make(const TimingOptions& options, const std::string& save,
                                         int rank) {
  if (options.trace.empty() && !options.profile) return nullptr;
  const fs::path file =
      options.trace.empty() ? fs::path(save) / "trace.json" : fs::path(options.trace);
  return std::unique_ptr<RunTrace>(new RunTrace(options, file, rank));
}

bool RunTrace::records(int rank) const {
  const std::vector<int>& ranks = options_.profile_ranks;
  return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

RunTrace::~RunTrace() { events_->set_recording(false); }

Machine RunTrace::traced(const Machine& machine) {
  if (!records(rank_)) return machine;
  events_->row_of_this_thread();  // the first one
  world_ = make_traced_world(machine.world, events_);
  kernels_ = std::make_unique<TracedKernels>(machine.kernels, events_);
  return machine.with(*world_, *kernels_);
}

fs::path RunTrace::part_of(int rank) const {
  fs::path part = file_;
  part += fmt::format(".rank{}", rank);
  return part;
}

void RunTrace::open(std::int64_t iteration, Communicator& everyone, Log& log) {
  first_ = options_.profile_step_start.value_or(iteration + kStepsBefore);
  last_ = options_.profile_step_end.value_or(first_ + kSteps);
  if (last_ <= iteration) {
    written_ = true;
    if (everyone.rank() == 0) {
      log.info(
          fmt::format("--trace: iterations {} to {} are before this start, which continues "
                      "after iteration {}; it records nothing",
                      first_ + 1, last_, iteration));
    }
    return;
  }
  // Not after hours: the file has to be possible now.
  phase(everyone, 0, [&] { AtomicFile trial(file_); });
}

void RunTrace::before_step(std::int64_t iteration, Communicator& everyone) {
  if (began_ || written_ || iteration < first_ || iteration >= last_) return;
  began_ = true;
  everyone.barrier();
  const TraceEvents::Time now = TraceEvents::Clock::now();
  // Ranks of one host have one clock: its first rank says when the trace begins.
  const std::string host = host_name();
  const std::vector<std::string> all =
      everyone.gather_bytes(fmt::format("{} {}", now.time_since_epoch().count(), host));
  for (const std::string& one : all) {
    const std::size_t space = one.find(' ');
    if (one.substr(space + 1) != host) continue;
    zero_ = TraceEvents::Time(TraceEvents::Clock::duration(std::stoll(one.substr(0, space))));
    break;
  }
  events_->set_recording(records(rank_));
}

void RunTrace::after_step(std::int64_t iteration, Communicator& everyone, Log& log) {
  if (began_ && !written_ && iteration >= last_) write(everyone, log);
}

void RunTrace::finish(Communicator& everyone, Log& log) {
  if (written_) return;
  if (began_) return write(everyone, log);
  log.warning(
      fmt::format("--trace: the run ended before iteration {}, so there is no trace", first_ + 1));
}

void RunTrace::write(Communicator& everyone, Log& log) {
  events_->set_recording(false);
  written_ = true;
  try {
    write_files(everyone);
  } catch (const Error& error) {  // the same one on all ranks
    if (error.fault() != Fault::kData) throw;
    log.warning(fmt::format("--trace: there is no trace: {}; the run continues", error.what()));
    return;
  }
  std::int64_t dropped = 0;
  for (const std::int64_t one : gathered_values<std::int64_t>(everyone, events_->dropped())) {
    dropped += one;
  }
  log.info(fmt::format("trace: {}", file_.string()));
  if (dropped > 0) {
    log.warning(fmt::format("--trace: {} events had no room; fewer steps (--profile-step-end) have",
                            dropped));
  }
}

void RunTrace::write_files(Communicator& everyone) const {
  phase(everyone, std::nullopt, [&] {
    if (!records(rank_)) return;
    AtomicFile part(part_of(rank_));
    events_->write_json(rank_, fmt::format("rank {} ({})", rank_, host_name()), zero_,
                        [&](std::string_view text) { part.write(text); });
    part.commit();
  });
  phase(everyone, 0, [&] {
    AtomicFile whole(file_);
    // An event to begin with: each of the others has a comma before it.
    whole.write(
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        "{\"name\":\"trace\",\"ph\":\"i\",\"s\":\"g\",\"ts\":0,\"pid\":0,\"tid\":0}");
    for (int rank = 0; rank < everyone.size(); ++rank) {
      if (!records(rank)) continue;
      whole.write(read_text_file(part_of(rank), std::int64_t{1} << 40));
      fs::remove(part_of(rank));
    }
    whole.write("\n]}\n");
    whole.commit();
  });
}

void RunTrace::begin_section(std::string_view name, std::int64_t number) {
  if (events_->recording()) open_.push_back({name, number, TraceEvents::Clock::now()});
}

void RunTrace::end_section(std::string_view name) {
  if (open_.empty() || open_.back().name != name) return;  // began before the trace
  const OpenSection section = open_.back();
  open_.pop_back();
  if (!events_->recording()) return;
  events_->add(
      events_->row_of_this_thread(),
      {"part of a step", name, section.number < 0 ? "" : fmt::format("number {}", section.number)},
      section.begin, TraceEvents::Clock::now());
}

}  // namespace piton
