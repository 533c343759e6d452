// What a save writes: the tensors that this rank holds, the parts of them that it writes, and the
// files that they go to.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/collective.h"
#include "checkpoint/file_plan.h"
#include "checkpoint/regions.h"
#include "checkpoint/store.h"

namespace piton {

struct SaveLayout {
  // The sources of holdings in one list: first parameters, then the tensors of optimizer state.
  std::vector<Parameter*> parameters;
  std::vector<Tensor> state;
  std::vector<Holding> holdings;
  WritePlan writes;
  FilePlan plan;

  const Holding& holding(const WriteJob& job) const { return holdings[job.holding]; }
  // The first element of a job in its source.
  std::int64_t place_in_source(const WriteJob& job) const {
    return holding(job).source_offset + job.begin - holding(job).begin;
  }
  std::int64_t bytes(const WriteJob& job) const {
    return (job.end - job.begin) * size_bytes(holding(job).tensor.dtype);
  }
};

// Collective. `file_bytes`: as in SaveOptions.
SaveLayout lay_out(const StoredModel& model, Communicator& ranks, std::int64_t file_bytes);

// Calls visit(source, jobs, device) for each source of which this rank writes something, in the
// order of the jobs. `source` is flat; `device` copies it (that of `context`, or of offloaded
// state).
// Collective where ranks share a value (ZeRO-3): a rank with a fault takes part too, but is not
// visited any more.
template <typename Visit>
void for_each_source(const StoredModel& model, const SaveLayout& layout,
                     const StoreContext& context, FirstFault& fault, Visit&& visit) {
  const std::span<const WriteJob> jobs = layout.writes.jobs;
  std::size_t next = 0;
  const auto pass = [&](std::size_t source, const Tensor& tensor, Device& device) {
    const std::size_t first = next;
    while (next < jobs.size() && layout.holding(jobs[next]).source == source) ++next;
    if (next == first) return;
    fault.run([&] { visit(tensor.flatten(), jobs.subspan(first, next - first), device); });
  };
  for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
    Parameter& parameter = *layout.parameters[i];
    pass(i,
         model.sharded == nullptr ? parameter.value
                                  : model.sharded->whole_value(parameter, context.stream),
         context.device);
  }
  for (std::size_t i = 0; i < layout.state.size(); ++i) {
    pass(layout.parameters.size() + i, layout.state[i], model.optimizer->state_device());
  }
  PITON_ASSERT(next == jobs.size());
}

}  // namespace piton
