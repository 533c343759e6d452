// A parameter: a record of what a weight is, not a tensor to compute with.
//
// Kernels see the local tensor; initialisation, decay, norms, hashes and checkpoints see its
// PIECES, the parts of canonical tensors that it holds. So a fused QKV is one local tensor with
// three pieces, and fusing is a matter of memory only:
//
//   local [ (a + 2 g)/t * d, h ]      pieces  layers.3.attention.query.weight  rows of rank's heads
//                                             layers.3.attention.key.weight
//                                             layers.3.attention.value.weight
//
// Rows of the local tensor that no piece covers (vocabulary padding) are zero and stay zero.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/placement.h"
#include "kernels/call.h"
#include "tensor/tensor.h"

namespace piton {

// How a canonical tensor starts: normal numbers from base/philox.h with the key of its name.
struct Initialization {
  enum class Kind : std::uint8_t { kZero, kOne, kNormal };
  Kind kind = Kind::kZero;
  double deviation = 0;
};

// The part of one canonical tensor that is in rows local_row .. local_row + extent[0] - 1 of the
// local tensor, all its columns.
struct Piece {
  std::string name;  // canonical, e.g. "layers.3.mlp.gate.weight"
  Shape global;      // the canonical tensor's shape, [out, in] or [n], unpadded
  Shape start;       // of the part in it
  Shape extent;      // of the part; rows 0 if this rank holds nothing but padding
  std::int64_t local_row = 0;
  Initialization initialization;
  bool decays = false;  // Megatron's rule: matrices decay, biases and one-dim tensors do not
};

class Parameter {
 public:
  std::string
      name;  // local tensor's own name, unique in the model ("layers.3.attention.qkv.weight")
  DType dtype = DType::kF32;
  Shape shape;  // local
  Placement placement;
  std::vector<Piece> pieces;
  bool trainable = true;
  // Stages that hold a copy of this parameter (tied weights); empty: only this one.
  std::vector<int> tied_stages;
  // Weight-gradient jobs that one micro-batch brings: 1, or 2 where embedding and head share it.
  int contributions = 0;

  // Resident state, managed by parallel/ (flat buffers) or by a test. Empty under ZeRO-3 between
  // uses.
  Tensor value;               // local rows, dtype
  Tensor gradient;            // fp32 (fp64 for fp64), local shape; empty if frozen
  std::uint64_t version = 1;  // rises with every change of value: packed forms are keyed by it
  // A frozen matrix may be held as small integers in place of `value`: uses then get the codes
  // themselves, or rows made of them (ops/weight.h). parallel/ does not cut codes.
  WeightCodes codes;

  std::int64_t elements() const { return shape.elements(); }
};

// All parameters of a stage (of this rank's part of a model), in the model's order; owns them.
// Addresses are stable.
class ParameterList {
 public:
  Parameter& add(Parameter parameter);  // asserts that the name is new
  // The parameter of this name, or it is added: for weights that two chunks of a stage may share.
  // Asserts that both declare the same.
  Parameter& find_or_add(Parameter parameter);
  Parameter* find(const std::string& name) const;
  std::vector<Parameter*> all() const;
  std::int64_t elements() const;  // local, padding included

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
};

}  // namespace piton
