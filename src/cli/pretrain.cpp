// piton pretrain: trains a model from a recipe and flags.
#include "train/pretrain.h"

#include "cli/command.h"
#include "cli/launch.h"
#include "cli/launchers.h"
#include "cli/stop_signals.h"

namespace piton::cli {

int run_pretrain(Invocation& invocation) {
  StopSignals signals(invocation.log);
  GeneralOptions general;
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  refuse_more_arguments(invocation.parse(set, general, true));
  // What is stored beside the checkpoint is the experiment, not how this process was started.
  OptionSet experiment;
  options.add_to(experiment);
  const bool saves = !options.loop.save.empty();
  signals.promise(saves ? "stopping after this step, which is then saved"
                        : "stopping after this step; nothing is saved, since no --save is given");
  Engine engine(engine_options(general), invocation.log);
  if (engine.world().rank() != 0) signals.be_silent();
  refuse_unjoined_processes(engine.world().size());
  const PretrainResult result = pretrain(
      engine.machine(), options, experiment, [&] { return signals.first(); }, invocation.progress);
  if (result.stop_signal == 0) return 0;
  return result.saved ? static_cast<int>(Fault::kSaved) : 128 + result.stop_signal;
}

}  // namespace piton::cli
