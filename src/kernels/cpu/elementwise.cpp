// Copies, sums, multiples, soft caps, gated sums, and heads with a common part. A copy goes over
// the rows of its last dim; if both sides are contiguous, all is one row.
#include "kernels/elementwise.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

bool is_narrow_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

double read(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return *reinterpret_cast<const double*>(at);
    case DType::kBF16:
      return to_float(*reinterpret_cast<const BFloat16*>(at));
    case DType::kF16:
      return to_float(*reinterpret_cast<const Float16*>(at));
    default:
      return *reinterpret_cast<const float*>(at);
  }
}

void write(std::byte* at, DType dtype, double value) {
  switch (dtype) {
    case DType::kF64:
      *reinterpret_cast<double*>(at) = value;
      return;
    case DType::kBF16:
      *reinterpret_cast<BFloat16*>(at) = to_bfloat16(static_cast<float>(value));
      return;
    case DType::kF16:
      *reinterpret_cast<Float16*>(at) = to_float16(static_cast<float>(value));
      return;
    default:
      *reinterpret_cast<float*>(at) = static_cast<float>(value);
      return;
  }
}

// Copies `n` elements; each side has its own step (1: contiguous).
void copy_span(const CpuContext& context, std::byte* dst, DType dst_type, std::int64_t dst_step,
               const std::byte* src, DType src_type, std::int64_t src_step, std::int64_t n) {
  const std::int64_t dst_width = size_bytes(dst_type);
  const std::int64_t src_width = size_bytes(src_type);
  if (dst_step == 1 && src_step == 1) {
    if (dst_type == src_type) {
      std::memmove(dst, src, static_cast<std::size_t>(n * dst_width));
      return;
    }
    if (is_narrow_float(dst_type) && is_narrow_float(src_type)) {
      context.vector.convert(dst, type_of(dst_type), src, type_of(src_type), n);
      return;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    std::byte* to = dst + i * dst_step * dst_width;
    const std::byte* from = src + i * src_step * src_width;
    if (dst_type == src_type) {
      std::memcpy(to, from, static_cast<std::size_t>(dst_width));
    } else {
      write(to, dst_type, read(from, src_type));
    }
  }
}

// Offset of row `row` in elements; rows are counted over all dims but the last.
std::int64_t row_offset(const Tensor& tensor, std::int64_t row) {
  std::int64_t offset = 0;
  for (int dim = tensor.ndim() - 2; dim >= 0; --dim) {
    offset += row % tensor.dim(dim) * tensor.stride(dim);
    row /= tensor.dim(dim);
  }
  return offset;
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

void execute(CpuContext& context, const Copy& call) {
  const DType to = call.dst.dtype();
  const DType from = call.src.dtype();
  if (call.src.elements() == 0) return;
  if (call.src.contiguous() && call.dst.contiguous()) {
    context.ranges(call.src.elements(), 32768, [&](std::int64_t begin, std::int64_t end) {
      copy_span(context, call.dst.raw() + begin * size_bytes(to), to, 1,
                call.src.raw() + begin * size_bytes(from), from, 1, end - begin);
    });
    return;
  }
  const std::int64_t columns = call.src.dim(-1);
  context.ranges(call.src.elements() / columns, grain_of(columns * 4),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     copy_span(context, call.dst.raw() + row_offset(call.dst, row) * size_bytes(to),
                               to, call.dst.stride(call.dst.ndim() - 1),
                               call.src.raw() + row_offset(call.src, row) * size_bytes(from), from,
                               call.src.stride(call.src.ndim() - 1), columns);
                   }
                 });
}

void execute(CpuContext& context, const Scale& call) {
  const std::int64_t width = size_bytes(call.y.dtype());
  const std::int64_t count =
      call.used.defined() ? rows_used(call.used, call.x.dim(0)) * call.x.dim(1) : call.x.elements();
  context.ranges(count, 32768, [&](std::int64_t begin, std::int64_t end) {
    context.vector.scale(call.y.raw() + begin * width, call.x.raw() + begin * width,
                         type_of(call.y.dtype()), end - begin, static_cast<float>(call.factor));
  });
}

void execute(CpuContext& context, const SoftCapForward& call) {
  context.ranges(call.y.elements(), 8192, [&](std::int64_t begin, std::int64_t end) {
    context.vector.soft_cap(call.y.data<float>() + begin, call.x.data<float>() + begin, end - begin,
                            1, static_cast<float>(call.cap));
  });
}

void execute(CpuContext& context, const SoftCapBackward& call) {
  const std::int64_t width = size_bytes(call.dx.dtype());
  context.ranges(call.dx.elements(), 32768, [&](std::int64_t begin, std::int64_t end) {
    context.vector.soft_cap_gradient(call.dx.raw() + begin * width, call.dy.raw() + begin * width,
                                     type_of(call.dx.dtype()), call.y.data<float>() + begin,
                                     end - begin, static_cast<float>(call.cap));
  });
}

void execute(CpuContext& context, const GatedSumForward& call) {
  const std::int64_t h = call.y.dim(1);
  const std::int64_t width = h * size_bytes(call.y.dtype());
  const Type type = type_of(call.y.dtype());
  context.ranges(call.y.dim(0), grain_of(h * 4), [&](std::int64_t begin, std::int64_t end) {
    auto* sums = reinterpret_cast<float*>(context.scratch.own(2 * h * 4));
    float* term = sums + h;
    for (std::int64_t t = begin; t < end; ++t) {
      context.vector.convert(sums, Type::kF32, call.a.raw() + t * width, type, h);
      context.vector.convert(term, Type::kF32, call.x.raw() + t * width, type, h);
      context.vector.scale(term, term, Type::kF32, h, sigmoid(call.gate.data<float>()[t]));
      context.vector.add(sums, sums, term, Type::kF32, h);
      context.vector.convert(call.y.raw() + t * width, type, sums, Type::kF32, h);
    }
  });
}

void execute(CpuContext& context, const GatedSumBackward& call) {
  const std::int64_t h = call.dx.dim(1);
  const std::int64_t width = h * size_bytes(call.dx.dtype());
  const Type type = type_of(call.dx.dtype());
  context.ranges(call.dx.dim(0), grain_of(h * 4), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float share = sigmoid(call.gate.data<float>()[t]);
      const std::byte* dy = call.dy.raw() + t * width;
      const float sum = context.vector.dot(dy, type, call.x.raw() + t * width, type, h);
      call.dgate.data<float>()[t] = share * (1 - share) * sum;
      context.vector.scale(call.dx.raw() + t * width, dy, type, h, share);
    }
  });
}

namespace {

std::byte* at_head(const Tensor& heads, std::int64_t token, std::int64_t head) {
  return heads.raw() +
         (token * heads.stride(0) + head * heads.stride(1)) * size_bytes(heads.dtype());
}

}  // namespace

void execute(CpuContext& context, const JoinHeads& call) {
  const std::int64_t width = size_bytes(call.y.dtype());
  const auto bytes_of = [&](std::int64_t channels) {
    return static_cast<std::size_t>(channels * width);
  };
  const std::int64_t d = call.y.dim(2);
  const std::int64_t c = call.own.dim(2);
  const std::int64_t r = call.shared.defined() ? call.shared.dim(1) : 0;
  const std::int64_t heads = call.y.dim(1);
  const std::int64_t grain = grain_of(heads * d * width);
  context.ranges(call.y.dim(0), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t head = 0; head < heads; ++head) {
        std::byte* y = at_head(call.y, t, head);
        std::memcpy(y, at_head(call.own, t, head), bytes_of(c));
        if (r > 0)
          std::memcpy(y + c * width, call.shared.raw() + t * call.shared.stride(0) * width,
                      bytes_of(r));
        std::memset(y + (c + r) * width, 0, bytes_of(d - c - r));
      }
    }
  });
}

void execute(CpuContext& context, const SplitHeads& call) {
  const std::int64_t width = size_bytes(call.y.dtype());
  const Type type = type_of(call.y.dtype());
  const std::int64_t c = call.own.dim(2);
  const std::int64_t r = call.shared.defined() ? call.shared.dim(1) : 0;
  const std::int64_t heads = call.y.dim(1);
  const std::int64_t grain = grain_of(heads * (c + r) * width);
  context.ranges(call.y.dim(0), grain, [&](std::int64_t begin, std::int64_t end) {
    auto* sum = reinterpret_cast<float*>(context.scratch.own(2 * r * 4));
    float* term = sum + r;
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::byte* y = at_head(call.y, t, head);
        std::memcpy(at_head(call.own, t, head), y, static_cast<std::size_t>(c * width));
        if (r == 0) continue;
        context.vector.convert(head == 0 ? sum : term, Type::kF32, y + c * width, type, r);
        if (head > 0) context.vector.add(sum, sum, term, Type::kF32, r);
      }
      if (r == 0) continue;
      context.vector.convert(call.shared.raw() + t * call.shared.stride(0) * width, type, sum,
                             Type::kF32, r);
    }
  });
}

void execute(CpuContext& context, const Add& call) {
  if (call.y.dtype() == DType::kF64) {  // a step's loss sums: a few numbers
    for (std::int64_t i = 0; i < call.y.elements(); ++i) {
      call.y.data<double>()[i] = call.a.data<double>()[i] + call.b.data<double>()[i];
    }
    return;
  }
  const std::int64_t width = size_bytes(call.y.dtype());
  context.ranges(call.y.elements(), 32768, [&](std::int64_t begin, std::int64_t end) {
    context.vector.add(call.y.raw() + begin * width, call.a.raw() + begin * width,
                       call.b.raw() + begin * width, type_of(call.y.dtype()), end - begin);
  });
}

}  // namespace piton::cpu
