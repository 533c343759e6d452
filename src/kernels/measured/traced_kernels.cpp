#include "kernels/measured/traced_kernels.h"

#include <fmt/format.h>

#include "kernels/measured/timed_kernels.h"

namespace piton {

int TracedKernels::row_of(const Stream& stream) {
  const auto [found, is_new] = rows_.try_emplace(stream.identity().get(), 0);
  if (is_new) {
    found->second =
        events_->row(rows_.size() == 1 ? "compute stream" : fmt::format("stream {}", rows_.size()));
  }
  return found->second;
}

void TracedKernels::submit(const KernelCall& call, Stream& stream) {
  if (!events_->recording()) return inner_.run(call, stream);
  const auto begin = std::make_shared<TraceEvents::Time>();
  stream.enqueue([begin] { *begin = TraceEvents::Clock::now(); });
  inner_.run(call, stream);
  // Of the call alone: its description is made later.
  const auto end = std::make_shared<TraceEvents::Time>();
  stream.enqueue([end] { *end = TraceEvents::Clock::now(); });
  const std::string_view name = piton::name(call);
  std::string detail = describe(call);
  detail.erase(0, name.size() + std::string_view("  ").size());
  stream.enqueue([begin, end, events = events_, row = row_of(stream), name, detail] {
    events->add(row, {"kernel", name, detail}, *begin, *end);
  });
}

}  // namespace piton
