// What a start of a run takes over from a run that exists: the model and the tokenizer of --load's
// checkpoint, and the run in --save that the same command has started before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/log.h"
#include "comm/communicator.h"
#include "train/run/pretrain_options.h"

namespace piton {

// Fact of TrainState: the folder of another program whose weights or run this run started from.
inline constexpr const char* kStartFact = "train.start";

// Remembers `folder` as that fact.
void keep_start(const std::filesystem::path& folder, std::map<std::string, std::string>& facts);

// The checkpoint in --save from which the command resumes, where --load names the folder of another
// program from which the run in --save started, or with `starts_from_load` another run. Nullopt: it
// starts a new run, as --finetune without `starts_from_load` always does. Throws Error(kData) for a
// damaged checkpoint.
std::optional<std::filesystem::path> checkpoint_of_started_run(const LoopOptions& loop);

// The same for a run that started from `start`, of any format: what --load is to adapters.
std::optional<std::filesystem::path> checkpoint_of_run_started_from(
    const std::filesystem::path& start, const LoopOptions& loop);

// Of a run that continues from its own folder: what the flags of its command say of the folder that
// it started from is over.
void forget_load_of_start(LoopOptions& loop);

// Throws Error(kUsage) for --moe-use-upcycling without a model to start from, and for its settings
// without it.
void check_upcycling(const LoopOptions& loop);

// Collective. Makes --pretrained-checkpoint the --load of a new run, as long as --load has no
// checkpoint. Throws Error(kUsage) if there is no such folder, or if the run trains adapters.
void start_from_pretrained(PretrainOptions& options, Communicator& ranks, Log& notes);

// Completes `options` for --load of a checkpoint of Piton: the model where the flags do not
// describe one, and the tokenizer where none is named. `same_command`: that which started the run
// from another program's folder; its flags need not describe the whole model, as
// adopt_foreign_model() completed them. Returns a note for the log; "" where nothing was taken.
// Throws Error(kData) if there is no such checkpoint, and Error(kUsage) if it has adapters alone.
std::string adopt_checkpoint(PretrainOptions& options, bool same_command);

// What `piton resume` starts with, before other options: those of the run in `folder`, or of one of
// its checkpoints, without what belongs to an earlier start alone. With `allow_fallback` damaged
// checkpoints are skipped. A run without a checkpoint begins again, as it did. `text`: TOML,
// `name`: the file that it is of. Throws Error(kData) if `folder` holds no run.
struct RunToResume {
  std::string text;
  std::string name;
  std::filesystem::path checkpoint;  // empty: none yet
  std::filesystem::path save;        // the folder of the run
};
RunToResume find_run(const std::filesystem::path& folder, bool allow_fallback);

// Sets `options`, which were read from `run`, to those of a new start.
void prepare_resume(const RunToResume& run, const std::filesystem::path& folder,
                    PretrainOptions& options);

// Whether a start of `run` reads --load again: the base of adapters, or what a run without a
// checkpoint starts from.
bool reads_load(const RunToResume& run, const PretrainOptions& options);

// Throws Error(kData) if another model that a start of `run` reads is not where it was, with the
// flag that gives its new place.
void check_models_are_there(const RunToResume& run, const PretrainOptions& options);

// The options that a run follows: --skip-train writes nothing, loads no optimizer, and has no
// schedule ahead.
PretrainOptions without_training_if_skipped(PretrainOptions options);

}  // namespace piton
