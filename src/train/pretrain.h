// The training loop: steps, saves and stops, on a Trainer.
#pragma once

#include <functional>

#include "base/progress.h"
#include "session/machine.h"
#include "train/run/pretrain_options.h"

namespace piton {

class RunPlanner;
class TaskEvaluator;

struct PretrainResult {
  std::int64_t iteration = 0;
  bool finished = false;         // the last iteration is done
  int stop_signal = 0;           // signal that ended the run before its last step; 0: none
  bool saved = false;            // a checkpoint has all steps of this run
  bool encoder = false;          // what was trained continues no text: an encoder,
  bool encoder_decoder = false;  // or a model of an encoder and a decoder
};

// What the caller of pretrain() gives and is asked.
struct PretrainCaller {
  RunPlanner* planner = nullptr;   // as of TrainerInputs
  TaskEvaluator* tasks = nullptr;  // as of TrainerInputs
  // The number of a signal that asks to end, or 0. Called before each step on every rank; if any
  // rank has a signal, all save and end the run.
  std::function<int()> stop;
  // Called on each rank once the run has ended well and everything is on the disk, before anything
  // is destroyed: from then on, requests to end have no effect.
  std::function<void()> over;
  Progress& progress;
};

// Collective over all ranks. Errors are those of Trainer.
PretrainResult pretrain(const Machine& machine, const PretrainOptions& options,
                        const PretrainCaller& caller);

}  // namespace piton
