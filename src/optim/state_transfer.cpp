#include "optim/state_transfer.h"

#include <utility>

namespace piton {

StateTransfer::StateTransfer(Device& device, Arena& arena, OffloadTarget& target)
    : arena_(arena),
      target_(target),
      reads_(target.carrier().make_stream()),
      writes_(target.carrier().make_stream()) {
  PITON_ASSERT(arena.memory().place() == device.place());
}

void StateTransfer::run(const std::vector<Job>& jobs, Stream& stream) {
  if (jobs.empty()) return;
  Here next = read(jobs.front(), stream);
  Event written;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Here here = std::exchange(next, {});
    if (i + 1 < jobs.size()) next = read(jobs[i + 1], stream);
    stream.wait(here.arrived);
    jobs[i].update(here.tensors);
    written = write(jobs[i], here, stream);
  }
  stream.wait(written);
}

StateTransfer::Here StateTransfer::read(const Job& job, Stream& stream) {
  reads_->wait(stream.record());  // the memory may have been that of work on the compute stream
  Here here;
  for (const Tensor& state : job.state) {
    here.tensors.push_back(
        arena_.allocate(state.dtype(), state.shape(), MemoryKind::kWorkspace, *reads_));
    if (job.reads) target_.carrier().copy(here.tensors.back(), state, *reads_);
  }
  here.arrived = reads_->record();
  for (const Tensor& tensor : here.tensors) arena_.hold(tensor, here.arrived.fence());
  return here;
}

Event StateTransfer::write(const Job& job, const Here& here, Stream& stream) {
  writes_->wait(stream.record());
  for (std::size_t i = 0; i < here.tensors.size(); ++i) {
    target_.carrier().copy(job.state[i], here.tensors[i], *writes_);
  }
  Event written = writes_->record();
  for (const Tensor& tensor : here.tensors) arena_.hold(tensor, written.fence());
  return written;
}

}  // namespace piton
