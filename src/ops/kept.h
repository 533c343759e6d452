// Tensors that an op keeps from its forward pass for its backward.
//
// A node must not capture tensors: it captures handles, and asks for the tensor when it runs:
//
//   context.tape->record([x = context.tape->keep(x.tensor), ...](Backward& backward) {
//     ... x.get() ...
//
// So where the tensor is in between is a matter of the tape's Keeper alone: in its place (the
// default), on another device, on a disk, compressed, or computed again. No op knows.
#pragma once

#include <memory>

#include "tensor/tensor.h"

namespace piton {

// One kept tensor, wherever it is.
class KeptTensor {
 public:
  virtual ~KeptTensor() = default;
  // The tensor as it was kept, for work that is put on the compute stream from now on. May be
  // called more than once, and after a wait: its first use may be long after the node has run
  // (weight jobs).
  virtual Tensor get() = 0;
};

// Decides where a tape's tensors are kept. Outlives the tapes that use it.
class Keeper {
 public:
  virtual ~Keeper() = default;
  // `tensor` is complete when all work now on the compute stream is done; it is not written to
  // until the handle is gone (Tape::overwrite asserts that).
  virtual std::shared_ptr<KeptTensor> keep(const Tensor& tensor) = 0;
};

// A handle. Copies share what is kept; it is dropped with the last of them. A default handle keeps
// nothing, and get() gives an empty tensor.
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
