// Row by row of one query and head: reading memory takes longer than the arithmetic.
#include "kernels/attention_sink.h"

#include <cmath>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// Rows [d] of a tensor [b, sq, a, d], in fp32.
class WideRows {
 public:
  WideRows(const CpuContext& context, const Tensor& tensor)
      : context_(context), tensor_(tensor), type_(type_of(tensor.dtype())) {}

  std::byte* at(std::int64_t b, std::int64_t query, std::int64_t head) const {
    return tensor_.raw() +
           size_bytes(tensor_.dtype()) *
               (b * tensor_.stride(0) + query * tensor_.stride(1) + head * tensor_.stride(2));
  }
  void load(float* wide, const std::byte* row) const {
    context_.vector.convert(wide, Type::kF32, row, type_, tensor_.dim(3));
  }
  void store(std::byte* row, const float* wide) const {
    context_.vector.convert(row, type_, wide, Type::kF32, tensor_.dim(3));
  }

 private:
  const CpuContext& context_;
  const Tensor& tensor_;
  Type type_;
};

// All sinks in fp32, in `memory`.
const float* wide_sinks(const CpuContext& context, const Tensor& sinks, float* memory,
                        std::int64_t heads) {
  for (std::int64_t i = 0; i < heads; ++i) memory[i] = 0;
  if (sinks.defined())
    context.vector.convert(memory, Type::kF32, sinks.raw(), type_of(sinks.dtype()), heads);
  return memory;
}

std::int64_t wide_bytes(std::int64_t count) {
  return count * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

void execute(CpuContext& context, const AttentionSink& call) {
  const std::int64_t queries = call.out.dim(1);
  const std::int64_t heads = call.out.dim(2);
  const std::int64_t d = call.out.dim(3);
  if (call.out.elements() == 0) return;
  const WideRows rows(context, call.out);
  context.ranges(
      call.out.dim(0) * queries * heads, grain_of(wide_bytes(d)),
      [&](std::int64_t begin, std::int64_t end) {
        auto* wide = reinterpret_cast<float*>(context.scratch.own(wide_bytes(d + heads)));
        const float* sinks = wide_sinks(context, call.sinks, wide + d, heads);
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t b = row / (queries * heads);
          const std::int64_t query = row / heads % queries;
          const std::int64_t head = row % heads;
          float& lse = call.lse.data<float>()[(b * heads + head) * queries + query];
          const float most = lse < sinks[head] ? sinks[head] : lse;  // a NaN stays one
          const float whole = most + std::log(std::exp(lse - most) + std::exp(sinks[head] - most));
          const float share = std::exp(lse - whole);
          std::byte* place = rows.at(b, query, head);
          rows.load(wide, place);
          for (std::int64_t i = 0; i < d; ++i) wide[i] *= share;
          rows.store(place, wide);
          lse = whole;
        }
      });
}

void execute(CpuContext& context, const AttentionSinkBackward& call) {
  const std::int64_t queries = call.out.dim(1);
  const std::int64_t heads = call.out.dim(2);
  const std::int64_t d = call.out.dim(3);
  if (call.out.elements() == 0) return;
  const WideRows out(context, call.out);
  const WideRows dout(context, call.dout);
  context.ranges(heads, 1, [&](std::int64_t begin, std::int64_t end) {
    auto* wide = reinterpret_cast<float*>(context.scratch.own(wide_bytes(2 * d + heads)));
    const float* sinks = wide_sinks(context, call.sinks, wide + 2 * d, heads);
    for (std::int64_t head = begin; head < end; ++head) {
      double sum = 0;
      for (std::int64_t b = 0; b < call.out.dim(0); ++b) {
        const float* lse = call.lse.data<float>() + (b * heads + head) * queries;
        for (std::int64_t query = 0; query < queries; ++query) {
          out.load(wide, out.at(b, query, head));
          dout.load(wide + d, dout.at(b, query, head));
          float product = 0;
          for (std::int64_t i = 0; i < d; ++i) product += wide[i] * wide[d + i];
          sum += std::exp(sinks[head] - lse[query]) * product;
        }
      }
      call.dsinks.data<float>()[head] -= static_cast<float>(sum);
    }
  });
}

}  // namespace piton::cpu
