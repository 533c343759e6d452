// Steps of training as recorded work (Stream::recorded): a GPU starts the kernels of a step without
// the host, so it does not wait between them.
//
// A step has two recordings: its passes and the sums of gradients, up to the download of the loss;
// and the update, up to the download of its counts. What changes from step to step is uploaded
// before each of them, to tensors that stay: micro-batches and the scales of the losses
// (InputPlaces), the place in the run, from which masks are drawn, and the rates of the optimizer.
// What launches have in their arguments is in the key of a recording (LaunchedShapes): passes over
// other shapes, or over another number of micro-batches, have another recording.
//
// A recording is made right after a step whose shapes are those of the step before, by the same
// calls once more, if the arena took no new segment for that step: so the recorded calls find the
// same memory free, and need none of the device. Afterwards that memory is free again. Evaluations,
// saves and figures use it between two steps, as they do without recordings, since no activation
// lives from one step to the next; so recordings need no more memory than steps. If a tensor still
// has a part of it when a step begins, the recording is forgotten, and a later step makes another.
//
// Calls that depend on what the host counts or keeps from step to step must not be recorded:
// Session::obstacle_to_recording() lists them.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <tuple>
#include <vector>

#include "data/samples/batch.h"
#include "parallel/pipeline.h"
#include "session/machine.h"

namespace piton {

// Tensors that what a step reads is uploaded to: in each step the same ones, in the order in which
// they are asked for.
class InputPlaces {
 public:
  // The next request is the first of a step.
  void begin_step() { next_ = 0; }
  Tensor next(const Machine& machine, DType dtype, const Shape& shape, MemoryKind kind);

 private:
  std::vector<Tensor> tensors_;
  std::size_t next_ = 0;
};

// Of each micro-batch what the arguments of launches depend on: samples, length, first sample of
// the global batch, and whether it has segments.
using LaunchedShapes = std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>>;
LaunchedShapes launched_shapes(const std::vector<MicroBatch>& batches);

// A part of a step that is always the same calls.
class RecordedPart {
 public:
  // Enqueues the recording. False: there is none, or its memory is in use; then the caller enqueues
  // the calls, and may record() them.
  bool run(const Machine& machine);
  // Records `calls`, which were just enqueued, and whose tensors are gone: as they were before
  // run(). Does nothing if the arena is not as it was then.
  void record(const Machine& machine, const std::function<void()>& calls);

 private:
  std::unique_ptr<RecordedWork> work_;
  std::vector<MemoryRange> memory_;
  MemoryCounts before_;  // of the arena, at run()
};

// The passes of steps of some shapes.
struct RecordedStep {
  LaunchedShapes shapes;
  InputPlaces inputs;
  RecordedPart passes;
  PipelineResult result;  // of the recording
};

class StepRecorder {
 public:
  // Of a run whose batches grow or have a few lengths. Each has about 16 bytes a token.
  static constexpr std::size_t kMostRecordings = 4;
  // Layers times micro-batches: some 50 kernels each. The time and the memory of a graph grow with
  // them; the host is ahead of the device in so long a step in any case.
  static constexpr std::int64_t kMostLayerPasses = 1024;

  // `machine` must outlive it.
  explicit StepRecorder(const Machine& machine) : machine_(machine) {}

  // For a step of passes over `layers` layers. Null: it is not recorded, and no recording is made.
  RecordedStep* step(const std::vector<MicroBatch>& batches, std::int64_t layers);
  // Null: it is not recorded.
  RecordedPart* update() { return failed_ ? nullptr : &update_; }
  // RecordedPart::record(). If the device refuses it, a line is logged: nothing is recorded then.
  void record(RecordedPart& part, const std::function<void()>& calls);
  bool failed() const { return failed_; }

 private:
  const Machine& machine_;
  LaunchedShapes last_;
  std::list<RecordedStep> steps_;  // those used last first
  RecordedPart update_;
  bool failed_ = false;
};

}  // namespace piton
