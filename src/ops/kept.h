// Tensors that an op keeps from its forward pass for its backward pass.
//
// The backward function must not capture tensors. It captures handles, and gets the tensors when it
// runs:
//
//   context.tape->record([x = context.tape->keep(x.tensor), ...](Backward& backward) {
//     ... x.get() ...
//
// The tape's Keeper decides where the tensor is stored in the meantime. The default leaves it in
// place. Another Keeper can move it to another device or a disk, compress it, or recompute it,
// without a change in any op.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tensor/tensor.h"

namespace piton {

// One kept tensor, wherever it is stored.
class KeptTensor {
 public:
  virtual ~KeptTensor() = default;
  // The tensor with its kept values, for work enqueued on the compute stream from now on. May be
  // called several times. The first call may come long after the node has run, from a weight job.
  virtual Tensor get() = 0;
};

// Decides where the tensors of a tape are stored. Must outlive the tapes that use it.
class Keeper {
 public:
  virtual ~Keeper() = default;
  // The values of `tensor` are ready when all work now on the compute stream is done. Nothing
  // writes to `tensor` until the last handle is destroyed (Tape::overwrite asserts this).
  virtual std::shared_ptr<KeptTensor> keep(const Tensor& tensor) = 0;
  // What was kept so far is not needed before backward has come back to this point. `layer`: of the
  // chunk, from 0, that follows; empty: none does.
  virtual void begin_block(std::optional<std::int64_t> /*layer*/) {}
};

// A handle to a kept tensor. Copies share it; the last one frees it. A default-constructed handle
// keeps nothing, and its get() returns an empty tensor.
class Kept {
 public:
  Kept() = default;
  explicit Kept(std::shared_ptr<KeptTensor> kept) : kept_(std::move(kept)) {}
  bool defined() const { return kept_ != nullptr; }
  Tensor get() const { return kept_ ? kept_->get() : Tensor(); }

 private:
  std::shared_ptr<KeptTensor> kept_;
};

}  // namespace piton
