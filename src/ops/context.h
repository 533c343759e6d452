// What an op needs to run: handed through every forward call, so there are no globals.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/weight.h"

namespace piton {

class Tape;

// What sums over elements of `dtype` are kept in: fp32, or fp64 for fp64.
inline DType sum_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

struct Context {
  Kernels& kernels;
  Stream& stream;  // compute
  Device& device;
  Arena& arena;
  WeightProvider& weights;
  Tape* tape = nullptr;   // null: nothing is kept (generation, evaluation, recomputed segments)
  bool training = false;  // dropout is drawn
  std::uint64_t seed = 1234;
  MaskRows rows = {};  // of the micro-batch, unsplit (first_row 0)

  // Memory for an activation or for workspace.
  Tensor activation(DType dtype, const Shape& shape) const {
    return arena.allocate(dtype, shape, MemoryKind::kActivations, stream);
  }
  Tensor workspace(DType dtype, const Shape& shape) const {
    return arena.allocate(dtype, shape, MemoryKind::kWorkspace, stream);
  }
  // Makes compute wait for a collective.
  void await(const Event& event) const { stream.wait(event); }
  Context with_tape(Tape* other) const {
    Context copy = *this;
    copy.tape = other;
    return copy;
  }
};

}  // namespace piton
