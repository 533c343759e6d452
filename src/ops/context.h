// The objects that an op needs to run. It is passed to every forward call, so there are no globals.
#pragma once

#include <cstdint>
#include <span>

#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/weight.h"

namespace piton {

class SegmentFacts;
class Tape;

// The dtype of sums over elements of `dtype`: fp32, or fp64 for fp64.
inline DType sum_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// Parts of a layer whose result is not kept for backward but computed again from what they read.
struct RecomputedParts {
  bool attention = false;   // its output and log-sum-exp, from q, k and v
  bool norms = false;       // of the residual stream
  bool activation = false;  // of a gated MLP: from gate and up
  bool mlp = false;         // all of it, from its input

  bool any() const { return attention || norms || activation || mlp; }
  bool operator==(const RecomputedParts&) const = default;
};

// The rows of a pass for which linears compute with one of the adapters of the model that requests
// choose (nn/adapters.h).
struct AdapterRows {
  std::int64_t choice = 0;  // index of the adapters
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// The balance of experts (kernels/experts.h, RouteTokens) and the z-loss of their routers, of the
// layers of a chunk.
struct BalanceOfExperts {
  Tensor sum;    // fp64 [1]: the sum over layers and rows, added to in forward; empty: not counted
  Tensor z_sum;  // the same of the z-loss
  Tensor scale;  // as LossInputs::scale (ops/head_loss.h); empty: not part of the loss
};

struct Context {
  Kernels& kernels;
  Stream& stream;  // compute
  Device& device;
  Arena& arena;
  WeightProvider& weights;
  Tape* tape = nullptr;   // null: keep nothing (generation, evaluation, recomputed segments)
  bool training = false;  // true: dropout is applied
  bool adapters = true;   // false: linears compute without their adapters
  // Those of each choice once; all other rows have none of them.
  std::span<const AdapterRows> adapter_rows = {};
  std::uint64_t seed = 1234;
  RecomputedParts recompute = {};
  MaskRows rows = {};  // of the whole micro-batch (first_row 0), for drawing dropout masks
  BalanceOfExperts balance = {};
  bool limits_experts = false;    // experts that have a capacity drop what exceeds it
  SegmentFacts* facts = nullptr;  // of a segment that is computed again (ops/recompute.h), or null

  // Uninitialized memory for an activation or for workspace.
  Tensor activation(DType dtype, const Shape& shape) const {
    return arena.allocate(dtype, shape, MemoryKind::kActivations, stream);
  }
  Tensor workspace(DType dtype, const Shape& shape) const {
    return arena.allocate(dtype, shape, MemoryKind::kWorkspace, stream);
  }
  // Makes the compute stream wait for an event, for example of a collective.
  void await(const Event& event) const { stream.wait(event); }
  Context with_tape(Tape* other) const {
    Context copy = *this;
    copy.tape = other;
    return copy;
  }
  Context with_arena(Arena& other) const {
    return {.kernels = kernels,
            .stream = stream,
            .device = device,
            .arena = other,
            .weights = weights,
            .tape = tape,
            .training = training,
            .adapters = adapters,
            .adapter_rows = adapter_rows,
            .seed = seed,
            .recompute = recompute,
            .rows = rows,
            .balance = balance,
            .limits_experts = limits_experts,
            .facts = facts};
  }
};

}  // namespace piton
