#include "train/run/checkpoint_choice.h"

#include <algorithm>
#include <system_error>

#include "base/reported_elsewhere.h"
#include "checkpoint/collective.h"
#include "checkpoint/store.h"
#include "huggingface/files/tensor_files.h"
#include "megatron/deepspeed/deepspeed_files.h"
#include "megatron/megatron_source.h"
#include "model_files/model_format.h"
#include "train/run/run_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr int kMostReplacements = 20;  // a load that is too slow every time has to report it

bool is_resume(const LoopOptions& loop) {
  return !loop.finetune && continues(loop.load, loop.save);
}

void check_fallback(const LoopOptions& loop) {
  if (!loop.allow_fallback) return;
  if (loop.load.empty()) {
    throw Error(Fault::kUsage, "--allow-fallback: needs --load DIR, the run to continue");
  }
  // With --save the same command continues its own run later.
  if (model_format_of(loop.load) != ModelFormat::kPiton && loop.save.empty()) {
    throw Error(Fault::kUsage, "--allow-fallback: {} is another program's; leave the flag out",
                loop.load);
  }
  if (loop.ckpt_step) {
    throw Error(Fault::kUsage,
                "--allow-fallback: --ckpt-step {} names one checkpoint; leave one of them out",
                *loop.ckpt_step);
  }
  const fs::path folder = (fs::path(loop.load) / "").parent_path();
  if (iteration_of(folder.filename().string())) {
    throw Error(Fault::kUsage,
                "--allow-fallback: --load {} names one checkpoint; give the folder of the run",
                loop.load);
  }
}

void check_folders(const LoopOptions& loop) {
  if (!loop.save.empty() && model_format_of(loop.save) == ModelFormat::kMegatron) {
    throw Error(Fault::kUsage,
                "--save: {} holds a checkpoint of Megatron; give another folder (--load {} starts "
                "from that one)",
                loop.save, loop.save);
  }
  if (!loop.save.empty() && model_format_of(loop.save) == ModelFormat::kHuggingFace &&
      has_huggingface_weights(loop.save)) {
    throw Error(Fault::kUsage,
                "--save: {} holds a Hugging Face model; give another folder (--load {} starts from "
                "that one)",
                loop.save, loop.save);
  }
  if (!loop.save.empty() && !is_resume(loop) && latest_iteration(loop.save)) {
    throw Error(Fault::kUsage,
                "--save: {} already holds a run; give --load {}{} to continue it, or another "
                "folder",
                loop.save, loop.save,
                loop.finetune && !loop.starts_from_load ? " without --finetune" : "");
  }
  if (loop.finetune && loop.load.empty()) {
    throw Error(Fault::kUsage, "--finetune: needs --load DIR, the weights to start from");
  }
  check_fallback(loop);
}

// A folder of another program's checkpoints whose tracker is lost is no new run.
void refuse_untracked(const fs::path& load) {
  if (model_format_of(load) != ModelFormat::kPiton || holds_checkpoint(load)) return;
  fs::path theirs;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(load, ignored)) {
    if (fs::exists(entry.path() / kManifestName, ignored)) return;
    if (entry.is_directory(ignored) && is_megatron_folder(entry.path()))
      theirs = std::max(theirs, entry.path());
  }
  if (theirs.empty()) return;
  throw Error(
      Fault::kData, "{}: holds {} of Megatron, and no file {} or {} that names it; load {} itself",
      load.string(), theirs.filename().string(), kTrackerName, kDeepSpeedTracker, theirs.string());
}

fs::path newest(const LoopOptions& loop, Log& notes) {
  if (loop.load.empty()) return {};
  const fs::path load = folder_to_load(loop);
  refuse_untracked(load);
  if (is_resume(loop) && !holds_checkpoint(load)) {
    // The run may have ended between the two steps of its first save.
    const std::optional<fs::path> found = older_checkpoint(load, {});
    if (!found && loop.exit_on_missing_checkpoint) {
      throw Error(Fault::kData,
                  "--load: {}: nothing is saved there; check the path, or leave "
                  "--exit-on-missing-checkpoint out to start from random weights",
                  loop.load);
    }
    notes.info(
        found ? fmt::format("{}: no file {} names the newest checkpoint; continuing from {}",
                            loop.load, kTrackerName, found->filename().string())
              : fmt::format("{}: nothing is saved yet; starting from random weights", loop.load));
    return found.value_or(fs::path());
  }
  return model_format_of(load) != ModelFormat::kPiton ? load : find_checkpoint(load);
}

// Nullopt too if the tracker is damaged.
std::optional<std::int64_t> tracked(const fs::path& dir) {
  try {
    return latest_iteration(dir);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

fs::path folder_to_load(const LoopOptions& loop) {
  if (!loop.ckpt_step) return loop.load;
  if (loop.load.empty()) {
    throw Error(Fault::kUsage, "--ckpt-step: needs --load DIR, the run that has iteration {}",
                *loop.ckpt_step);
  }
  std::vector<std::int64_t> there;
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(loop.load, absent)) {
    const std::optional<std::int64_t> number = iteration_of(entry.path().filename().string());
    if (number == loop.ckpt_step) return entry.path();
    if (number) there.push_back(*number);
  }
  std::ranges::sort(there);
  throw Error(
      Fault::kData, "--ckpt-step: {} has no checkpoint of iteration {}; wanted {}", loop.load,
      *loop.ckpt_step,
      there.empty() ? "the folder of a run" : fmt::format("one of {}", fmt::join(there, ", ")));
}

CheckpointChoice::CheckpointChoice(const LoopOptions& loop, Communicator& ranks, Log& notes)
    : loop_(loop), ranks_(ranks), notes_(notes) {
  phase(ranks_, 0, [&] { check_folders(loop_); });
  try {
    folder_ = found_by_first(ranks_, [&] { return newest(loop_, notes_).string(); });
    newest_ = folder_;
  } catch (const Error& error) {
    if (error.fault() != Fault::kData) throw;
    fall_back(error);
  }
}

// Empty: there is none.
fs::path CheckpointChoice::older() const {
  const std::optional<std::int64_t> number =
      folder_.empty() ? tracked(loop_.load) : iteration_of(folder_.stem().string());
  return older_checkpoint(loop_.load, number).value_or(fs::path());
}

// Empty: there is none. The same rule as read_newest()'s (checkpoint/read_newest.h).
fs::path CheckpointChoice::replacement() const {
  if (newest_.empty() || loop_.ckpt_step || replaced_ == kMostReplacements ||
      model_format_of(loop_.load) != ModelFormat::kPiton)
    return {};
  try {
    const fs::path now = find_checkpoint(loop_.load);
    return now == newest_ ? fs::path() : now;
  } catch (const Error&) {
    return {};  // the tracker is damaged, too
  }
}

void CheckpointChoice::fall_back(const Error& error) {
  const std::string newer = found_by_first(ranks_, [&] { return replacement().string(); });
  if (!newer.empty()) {
    notes_.info(fmt::format("{}: its run has saved {} since; loading that", folder_.string(),
                            fs::path(newer).filename().string()));
    folder_ = newest_ = newer;
    ++replaced_;
    return;
  }
  const bool said = dynamic_cast<const ReportedByAnotherRank*>(&error) != nullptr;
  const fs::path next = found_by_first(ranks_, [&] { return older().string(); });
  if (next.empty() || (said && !loop_.allow_fallback)) throw;
  if (!loop_.allow_fallback) {
    throw Error(error.fault(), "{}; an older checkpoint is there, {}: --allow-fallback takes it",
                error.what(), next.filename().string());
  }
  const std::optional<std::int64_t> number = iteration_of(folder_.stem().string());
  if (number) skipped_.push_back(*number);
  notes_.warning(fmt::format("--allow-fallback: {} is skipped: {}",
                             folder_.empty() ? loop_.load : folder_.string(), error.what()));
  folder_ = next;
}

}  // namespace piton
