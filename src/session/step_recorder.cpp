#include "session/step_recorder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

std::int64_t bytes_in_use(const MemoryCounts& counts) {
  return std::accumulate(counts.in_use_bytes.begin(), counts.in_use_bytes.end(), std::int64_t{0});
}

}  // namespace

Tensor InputPlaces::next(const Machine& machine, DType dtype, const Shape& shape, MemoryKind kind) {
  if (next_ == tensors_.size())
    tensors_.push_back(machine.arena.allocate(dtype, shape, kind, machine.stream));
  const Tensor& tensor = tensors_[next_++];
  PITON_ASSERT(tensor.dtype() == dtype && tensor.shape() == shape, "{} for an input {}",
               to_string(tensor), to_string(shape));
  return tensor;
}

LaunchedShapes launched_shapes(const std::vector<MicroBatch>& batches) {
  LaunchedShapes shapes;
  shapes.reserve(batches.size());
  for (const MicroBatch& batch : batches) {
    shapes.emplace_back(batch.samples, batch.sequence, batch.sample_index, !batch.segments.empty());
  }
  return shapes;
}

bool RecordedPart::run(const Machine& machine) {
  machine.arena.settle(machine.stream);
  if (work_ && !machine.arena.is_free(memory_)) work_.reset();
  if (work_) {
    work_->run();
    return true;
  }
  before_ = machine.arena.counts();
  return false;
}

void RecordedPart::record(const Machine& machine, const std::function<void()>& calls) {
  const MemoryCounts after = machine.arena.counts();
  if (after.system_allocations != before_.system_allocations ||
      bytes_in_use(after) != bytes_in_use(before_))
    return;
  machine.arena.settle(machine.stream);
  memory_ = machine.arena.used_by([&] { work_ = machine.stream.recorded(calls); });
}

RecordedStep* StepRecorder::step(const std::vector<MicroBatch>& batches, std::int64_t layers) {
  if (failed_ || layers * std::ssize(batches) > kMostLayerPasses) return nullptr;
  LaunchedShapes shapes = launched_shapes(batches);
  const auto found = std::ranges::find(steps_, shapes, &RecordedStep::shapes);
  if (found != steps_.end()) {
    steps_.splice(steps_.begin(), steps_, found);
  } else {
    if (last_ != shapes) {
      last_ = std::move(shapes);
      return nullptr;
    }
    if (steps_.size() == kMostRecordings) steps_.pop_back();
    steps_.emplace_front().shapes = std::move(shapes);
  }
  last_ = steps_.front().shapes;
  steps_.front().inputs.begin_step();
  return &steps_.front();
}

void StepRecorder::record(RecordedPart& part, const std::function<void()>& calls) {
  try {
    part.record(machine_, calls);
  } catch (const Error& error) {
    failed_ = true;
    machine_.log.warning(
        fmt::format("steps are not recorded as CUDA graphs from here on: {}", error.what()));
  }
}

}  // namespace piton
