// Memory for the time of one call. Internal to this folder.
#pragma once

#include "kernels/cuda/context.h"
#include "tensor/arena.h"

namespace piton::cuda {

// A tensor for work on the stream of the context. Its memory is free for later work on the stream
// when the last copy of the tensor is destroyed.
inline Tensor scratch(DType dtype, const Shape& shape, const CallContext& context) {
  constexpr MemoryKind kKind = MemoryKind::kWorkspace;
  if (context.user == nullptr) return context.workspace.allocate(dtype, shape, kKind);
  return context.workspace.allocate(dtype, shape, kKind, *context.user);
}

}  // namespace piton::cuda
