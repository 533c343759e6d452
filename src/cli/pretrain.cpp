// piton pretrain: trains a model from a recipe and flags.
#include "train/pretrain.h"

#include "cli/command.h"
#include "cli/launch.h"
#include "cli/launchers.h"

namespace piton::cli {

int run_pretrain(Invocation& invocation) {
  GeneralOptions general;
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  refuse_more_arguments(invocation.parse(set, general, true));
  // What is stored beside the checkpoint is the experiment, not how this process was started.
  OptionSet experiment;
  options.add_to(experiment);
  Engine engine(engine_options(general), invocation.log);
  refuse_unjoined_processes(engine.machine().world.size());
  const StopSignals signals;
  const PretrainResult result = pretrain(
      engine.machine(), options, experiment, [&] { return signals.requested(); },
      invocation.progress);
  return result.stopped_by_signal ? static_cast<int>(Fault::kSaved) : 0;
}

}  // namespace piton::cli
