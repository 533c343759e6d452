#include "train/pretrain.h"

#include <csignal>

#include "train/sinks/log_sink.h"
#include "train/sinks/progress_sink.h"
#include "train/trainer.h"

namespace piton {
namespace {

// Who asked a run to end.
std::string why_stopped(int signal) {
  switch (signal) {
    case SIGINT:
      return "stopped by Ctrl-C (SIGINT)";
    case SIGTERM:
      return "stopped by SIGTERM";
    case SIGHUP:
      return "stopped by the end of the terminal (SIGHUP)";
    case SIGUSR1:
      // piton launch sends it to its ranks, whatever it got itself.
      return "stopped on request (SIGUSR1, also of piton launch after Ctrl-C or SIGTERM)";
    default:
      return fmt::format("stopped by signal {}", signal);
  }
}

}  // namespace

PretrainResult pretrain(const Machine& machine, const PretrainOptions& options,
                        const PretrainCaller& caller) {
  const LoopOptions& loop = options.loop;
  LogSink log(machine.log, {.interval = loop.log_interval,
                            .brief = loop.brief_log,
                            .timers = options.timing.timing_log_option});
  ProgressSink shown(caller.progress);
  if (loop.dry_run) {
    Trainer::check(machine, options, {&log}, {.planner = caller.planner, .tasks = caller.tasks});
    return {};
  }
  Trainer trainer(machine, options, {&log, &shown},
                  {.planner = caller.planner, .tasks = caller.tasks});
  PretrainResult result{
      .encoder = trainer.plan().session.model.encoder.has_value(),
      .encoder_decoder = trainer.plan().session.model.encoder_decoder.has_value()};
  if (loop.skip_train) {
    trainer.evaluate();
    trainer.test();
    caller.over();
    return result;
  }
  const bool was_over = trainer.done() || trainer.stops_early();
  std::string why;  // reason to stop before the end
  while (!trainer.done() && !trainer.stops_early()) {
    const StopRequest request = trainer.agreed_stop(caller.stop());
    result.stop_signal = request.signal;
    if (request.out_of_time) why = "stopped by --exit-duration-in-mins";
    if (request.signal != 0) why = why_stopped(request.signal);
    if (!why.empty()) break;
    trainer.step();
    if (trainer.done() || trainer.stops_early()) break;
    if (trainer.exit_due()) {
      why = "stopped by --exit-interval";
      break;
    }
    if (trainer.save_due()) trainer.save_if_possible();
  }
  trainer.finish_saves();
  // Also where nothing was left to do: --save may be another folder than --load.
  const bool has_state = trainer.state().iteration > 0;
  if (!loop.save.empty() && has_state && !trainer.is_saved()) trainer.save();
  if (!was_over && (trainer.done() || trainer.stops_early())) trainer.test();
  trainer.finish();
  caller.over();
  if (trainer.stops_early() && !trainer.done()) {
    why = fmt::format("stopped by --early-stopping-patience {}", *loop.early_stopping_patience);
  }
  if (!why.empty() && machine.world.rank() == 0) {
    machine.log.info(fmt::format("{} at iteration {}", why, trainer.state().iteration));
  }
  result.iteration = trainer.state().iteration;
  result.finished = trainer.done() || trainer.stops_early();
  result.saved = trainer.is_saved();
  return result;
}

}  // namespace piton
