// piton pretrain: trains a model from a recipe and flags.
#include "train/pretrain.h"

#include "cli/command.h"
#include "cli/launch.h"
#include "cli/megatron_flags.h"

namespace piton::cli {

int run_pretrain(Invocation& invocation) {
  GeneralOptions general;
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  MegatronFlags megatron;
  set.set_foreign(&megatron);
  refuse_more_arguments(invocation.parse(set, general, true));
  megatron.check(options.model);
  Engine engine(engine_options(general), invocation.log);
  if (engine.machine().world.rank() == 0) megatron.report(invocation.log);
  const StopSignals signals;
  const PretrainResult result = pretrain(
      engine.machine(), options, [&] { return signals.requested(); }, invocation.progress);
  return result.stopped_by_signal ? static_cast<int>(Fault::kSaved) : 0;
}

}  // namespace piton::cli
