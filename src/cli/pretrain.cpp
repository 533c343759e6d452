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
  options.loop.brief_log = invocation.terminal.log_to_stdout(is_launched());
  invocation.together([&] {
    refuse_more_arguments(invocation.parse(set, general, true));
    megatron.check(options.model);
  });
  if (options.loop.brief_log && !set.given("log-interval")) options.loop.log_interval = 10;
  Engine engine(engine_options(general), invocation.log);
  if (engine.machine().world.rank() == 0) megatron.report(invocation.log);
  const StopSignals signals;
  const PretrainResult result = pretrain(
      engine.machine(), options, [&] { return signals.requested(); }, invocation.progress);
  const bool done = result.iteration >= options.loop.train_iters;
  if (done && !options.loop.save.empty() && engine.machine().world.rank() == 0) {
    invocation.log.info(
        fmt::format("next: piton generate --load {} --prompt TEXT, or piton score --load {} FILE",
                    options.loop.save, options.loop.save));
  }
  return result.stopped_by_signal ? static_cast<int>(Fault::kSaved) : 0;
}

}  // namespace piton::cli
