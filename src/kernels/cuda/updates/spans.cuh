// One launch for many spans. What each of them needs is a table in the arguments of the kernel, so
// no table is uploaded, and a launch can be recorded. Internal to this folder.
#pragma once

#include <vector>

#include "kernels/cuda/bisection.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/span_calls.h"

namespace piton::cuda {

// body.run_block(i), for i below `blocks`, is the work of one block.
template <typename Body>
struct Span {
  Body body;
  std::int64_t blocks;
};

template <typename Body>
struct SpanTable {
  static constexpr std::size_t kBytes = 4096;  // that all GPUs take as arguments
  static constexpr int kMost = static_cast<int>((kBytes - 8) / (sizeof(Body) + 4));
  Body bodies[kMost];
  std::uint32_t ends[kMost];  // blocks of the spans up to this one
  std::uint32_t count;
};

template <typename Body>
__global__ void __launch_bounds__(kThreads, kBlocks)
    run_spans(const __grid_constant__ SpanTable<Body> table) {
  const std::uint32_t span = last_that(std::uint32_t{0}, table.count - 1, [&](std::uint32_t one) {
    return table.ends[one - 1] <= blockIdx.x;
  });
  const std::uint32_t begin = span == 0 ? 0 : table.ends[span - 1];
  table.bodies[span].run_block(std::int64_t{blockIdx.x} - begin);
}

// As few launches as the tables allow. Spans without a block are left out.
template <typename Body>
void launch_spans(std::string_view name, const std::vector<Span<Body>>& spans,
                  std::size_t shared_bytes, cudaStream_t stream) {
  constexpr std::int64_t kMostInGrid = (std::int64_t{1} << 31) - 1;
  SpanTable<Body> table{};
  std::int64_t blocks = 0;
  const auto launch_table = [&] {
    if (table.count == 0) return;
    launch(name, run_spans<Body>,
           {.blocks = {static_cast<unsigned>(blocks), 1, 1}, .shared_bytes = shared_bytes}, table,
           stream);
    table.count = 0;
    blocks = 0;
  };
  for (const Span<Body>& span : spans) {
    PITON_ASSERT(span.blocks <= kMostInGrid, "cuda: {}: {} blocks", name, span.blocks);
    if (span.blocks == 0) continue;
    if (table.count == SpanTable<Body>::kMost || blocks + span.blocks > kMostInGrid) launch_table();
    blocks += span.blocks;
    table.bodies[table.count] = span.body;
    table.ends[table.count++] = static_cast<std::uint32_t>(blocks);
  }
  launch_table();
}

// The elements of a span, by a body as in rows.cuh, whose row is 0.
template <typename Body>
struct ElementSpan {
  Body body;
  std::int64_t n;
  bool vectors;

  __device__ void run_block(std::int64_t block) const {
    std::int64_t i = block * kThreads + threadIdx.x;
    if (!vectors) {
      if (i < n) body.template run<1>(0, i);
      return;
    }
    i *= Body::kVector;
    if (i + Body::kVector <= n) {
      body.template run<Body::kVector>(0, i);
      return;
    }
    for (; i < n; ++i) body.template run<1>(0, i);
  }
};

// `extent`: flat().
template <typename Body>
Span<ElementSpan<Body>> element_span(const Extent& extent, const Body& body) {
  const std::int64_t in_block = kThreads * (extent.vectors ? Body::kVector : 1);
  return {{body, extent.columns, extent.vectors}, (extent.columns + in_block - 1) / in_block};
}

// use(T, calls) for the calls of each dtype of the copies of weights.
template <typename Call, typename Use>
void by_copy_dtype(const Calls<Call>& all, Use use) {
  const auto dtype_of = [](const Call& call) {
    return call.copy.defined() ? call.copy.dtype() : DType::kF32;
  };
  Calls<Call> left = all;
  while (!left.empty()) {
    const DType dtype = dtype_of(*left.front());
    Calls<Call> same;
    std::erase_if(left, [&](const Call* call) {
      const bool is_same = dtype_of(*call) == dtype;
      if (is_same) same.push_back(call);
      return is_same;
    });
    with_floating(dtype, [&]<typename T>(std::type_identity<T> type) { use(type, same); });
  }
}

}  // namespace piton::cuda
