// Rows of tables by id, and noise on rows. Forward divides tokens among threads. Backward divides
// channels, so that rows of one id are added in the same order for any number of threads.
#include "kernels/embedding.h"

#include <cstring>

#include "kernels/cpu/context.h"

namespace piton::cpu {

void execute(CpuContext& context, const EmbeddingForward& call) {
  const std::int64_t h = call.y.dim(1);
  const std::int64_t width = size_bytes(call.y.dtype());
  const Type type = type_of(call.y.dtype());
  const auto* ids = call.ids.data<std::int32_t>();
  const std::int64_t rows = rows_used(call.used, call.y.dim(0));
  context.ranges(rows, grain_of(h * 4), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::byte* y = call.y.raw() + row * call.y.stride(0) * width;
      const std::int64_t id = ids[row] - call.vocabulary_begin;
      if (id < 0 || id >= call.table.dim(0)) {
        if (!call.add) std::memset(y, 0, static_cast<std::size_t>(h * width));
        continue;
      }
      const std::byte* from = call.table.raw() + id * call.table.stride(0) * width;
      if (call.add) {
        context.vector.add(y, y, from, type, h);
      } else {
        std::memcpy(y, from, static_cast<std::size_t>(h * width));
      }
    }
  });
}

void execute(CpuContext& context, const EmbeddingBackward& call) {
  const std::int64_t width = size_bytes(call.dy.dtype());
  const Type type = type_of(call.dy.dtype());
  const auto* ids = call.ids.data<std::int32_t>();
  context.ranges(call.dy.dim(1), 128, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < call.dy.dim(0); ++row) {
      const std::int64_t id = ids[row] - call.vocabulary_begin;
      if (id < 0 || id >= call.dtable.dim(0)) continue;
      context.vector.accumulate(call.dtable.data<float>() + id * call.dtable.stride(0) + begin,
                                call.dy.raw() + (row * call.dy.stride(0) + begin) * width, type,
                                end - begin);
    }
  });
}

void execute(CpuContext& context, const AddNoise& call) {
  const Masks masks(call.key, call.rows);
  const std::int64_t h = call.y.dim(1);
  const std::int64_t width = h * size_bytes(call.y.dtype());
  const auto* bounds = call.bounds.defined() ? call.bounds.data<float>() : nullptr;
  context.ranges(call.y.dim(0), grain_of(h * 4), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      context.vector.add_noise(call.y.raw() + row * width, type_of(call.y.dtype()),
                               masks.hidden(row), bounds != nullptr ? bounds[row] : 1.0F, h);
    }
  });
}

}  // namespace piton::cpu
