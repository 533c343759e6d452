// How far a run of Megatron is, and by what it was trained, as one of its checkpoints says:
// iteration, args, opt_param_scheduler and the optimizer's counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "megatron/format/megatron_files.h"
#include "pickle/pickle_value.h"
#include "pickle/torch_file.h"

namespace piton {

// OptimizerParamScheduler.state_dict(), whose steps are samples.
struct MegatronSchedule {
  double max_rate = 0;
  double min_rate = 0;
  std::string decay_style;
  double warmup = 0;
  double decay = 0;
  bool has_weight_decay = false;  // versions before 2022 do not
  double start_weight_decay = 0;
  double end_weight_decay = 0;
  std::string weight_decay_increase;
  double weight_decay_samples = 0;
  std::int64_t position = 0;  // samples of successful updates
};

struct MegatronRun {
  std::int64_t iteration = 0;
  std::int64_t consumed_samples = 0;
  std::optional<MegatronSchedule> schedule;
  // Options by which it was trained, under Piton's names of flags, as TOML values.
  std::map<std::string, std::string> options;
  // Of its optimizer, where that is read: successful updates, and fp16's loss scale.
  std::int64_t steps = 0;
  std::optional<StoredLossScale> loss_scale;
};

// What `facts` has under opt_param_scheduler, if anything. Throws Error(kData) with `where` and the
// name of a value that has the wrong kind.
std::optional<MegatronSchedule> read_megatron_schedule(const PickleValue& facts,
                                                       const std::string& where);

// `facts`: as MegatronFiles::facts(). Steps and loss scale are left open. Throws Error(kData) with
// `where` and the name of a value that has the wrong kind.
MegatronRun read_megatron_run(const PickleValue& facts, const std::string& where);

// The files of two ranks. Throws Error(kData) where they are of different iterations or versions.
void check_same_save(const TorchFile& first, const TorchFile& other);

}  // namespace piton
