// A run that trains adapters (--lora-target-modules). --load is their base: a model of any format,
// whose weights do not change and are not saved. --lora-load, or --save of a run that was
// interrupted, has the adapters and the state of the run.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "model_files/opened_model.h"
#include "nn/adapters.h"
#include "train/run/pretrain_options.h"

namespace piton {

// Throws Error(kUsage) for --lora-load without adapters, and for adapters without a base.
void check_adapter_options(const PretrainOptions& options);

// The checkpoint in --save from which the same command resumes. Nullopt: it starts a new run, as
// --finetune always does. Throws Error(kData) for a damaged checkpoint.
std::optional<std::filesystem::path> checkpoint_of_started_adapters(const LoopOptions& loop);

// `loop` with the folder of the adapters as --load, "" for new ones: by this the checkpoint is
// chosen, and where the run saves is checked.
LoopOptions loop_of_adapters(LoopOptions loop);

// Opens the base, and completes `options` as adopt_foreign_model() and adopt_checkpoint() do: a new
// run from its weights. Throws as these.
OpenedModel adopt_base(PretrainOptions& options);

// Folder of a checkpoint with its adapters as PEFT reads them.
inline constexpr const char* kAdapterFolder = "adapter";

// Writes kAdapterFolder into the folder of a checkpoint of adapters, with the chat template that
// the run keeps, if that is not the base's. Throws Error(kUsage, kData) if PEFT has no such model
// or adapters.
std::function<void(const std::filesystem::path& checkpoint)> writer_of_adapter(
    const OpenedModel& base, const Adapters& adapters);

}  // namespace piton
