// A parameter: the record that describes a weight of the model on this rank.
//
// Kernels work on the local tensor. Initialization, weight decay, norms, hashes and checkpoints
// work on its PIECES: the parts of canonical tensors that it holds. A fused QKV is one local tensor
// with three pieces, so fusing changes only how memory is laid out:
//
//   local [(a + 2 g)/t * d, h]   pieces  layers.3.attention.query.weight   this rank's heads' rows
//                                        layers.3.attention.key.weight
//                                        layers.3.attention.value.weight
//
// Rows of the local tensor that no piece covers (vocabulary padding) are zero and stay zero.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codes/code_format.h"
#include "comm/placement.h"
#include "kernels/call.h"
#include "tensor/tensor.h"

namespace piton {

// Initial values of a canonical tensor: zeros, ones, normal numbers with mean 0 and standard
// deviation `deviation`, or uniform ones from -bound to bound, drawn with base/random/philox.h
// under the key of the tensor's name. kXavier is uniform with a bound that follows from the shape;
// whoever makes the parameter sets it. kLogUniform: logarithms of uniform numbers from `lowest` to
// `bound`. kSoftplusLogUniform: numbers x for which log(1 + exp(x)) has a uniform logarithm, and is
// from `lowest` to `bound`.
struct Initialization {
  enum class Kind : std::uint8_t {
    kZero,
    kOne,
    kNormal,
    kXavier,
    kUniform,
    kLogUniform,
    kSoftplusLogUniform
  };
  Kind kind = Kind::kZero;
  double deviation = 0;
  double bound = 0;
  double lowest = 0;
};

// A part of one canonical tensor. It fills rows local_row .. local_row + extent[0] - 1 of the local
// tensor, in all columns.
struct Piece {
  std::string name;  // canonical, e.g. "layers.3.mlp.gate.weight"
  Shape global;      // the canonical tensor's shape, [out, in] or [n], unpadded
  Shape start;       // first element of the part in the canonical tensor, by dim
  Shape extent;      // shape of the part; 0 rows if this rank holds nothing but padding
  std::int64_t local_row = 0;
  Initialization initialization;
  bool decays = false;  // Megatron's rule: matrices decay, biases and one-dim tensors do not
};

// Which of the learning rates of a run moves a parameter (optim/learning_rate.h): kVocabulary:
// embedding of tokens and head; kAdapterOutputs: B of adapters, and what has one dim in a run of
// adapters.
enum class RateGroup : std::uint8_t { kBase, kVocabulary, kAdapterOutputs };

class Parameter {
 public:
  std::string name;  // of the local tensor, unique in the model ("layers.3.attention.qkv.weight")
  DType dtype = DType::kF32;
  Shape shape;  // of the local tensor
  Placement placement;
  std::vector<Piece> pieces;
  bool trainable = true;
  // Set: what is added to the gradient is no gradient of the loss, and an update moves each element
  // by this against its sign, whatever the optimizer (kernels/optimizer.h, SignUpdate). Such
  // gradients are not in the norm. For biases of choices of experts.
  std::optional<double> sign_rate;
  RateGroup rate_group = RateGroup::kBase;
  // The chunk of the model that added it (nn/chunk.h). Units of reduction do not cross chunks.
  int chunk = 0;
  // All stages that hold this parameter, if several do (tied weights); else empty.
  std::vector<int> tied_stages;
  // Contributions to the gradient from one micro-batch: 1, or 2 if embedding and head share it.
  int contributions = 0;
  // Matrices of equal size that products read one at a time, one after another: of experts.
  std::int64_t matrices = 1;
  // Some products read a part of its rows, so that inference keeps them as they are, not packed.
  bool keeps_rows = false;
  // Rows are looked up, are those of the head, or filters of channels: no linear map.
  bool is_table = false;

  // Values and gradient in memory, managed by parallel/ (flat buffers) or by a test. `value` is
  // empty under ZeRO-3.
  Tensor value;               // local rows, dtype
  Tensor gradient;            // fp32 (fp64 for fp64), local shape; empty if frozen
  std::uint64_t version = 1;  // increases with every change of value; tells when to pack again
  // A frozen matrix may be held as small integers instead of `value`. Uses then get the codes, or
  // rows expanded from them (ops/weight.h). Every data-parallel rank has all of its codes.
  WeightCodes codes;
  std::optional<CodeFormat> code_format;  // of values that are loaded

  std::int64_t elements() const { return shape.elements(); }
  // A linear map, or several: all pieces are matrices, and it is no table.
  bool is_matrix() const;
};

// Owns all parameters of a stage (this rank's part of them), in the order of the model. Addresses
// of parameters stay valid.
class ParameterList {
 public:
  // Parameters that are added from here on have Parameter::chunk = `chunk`.
  void begin_chunk(int chunk) { chunk_ = chunk; }
  Parameter& add(Parameter parameter);  // asserts that the name is new
  // Returns the parameter of this name if there is one, else adds it. For weights that two chunks
  // of a stage may share. Asserts that both declarations agree.
  Parameter& find_or_add(Parameter parameter);
  Parameter* find(const std::string& name) const;
  std::vector<Parameter*> all() const;
  std::int64_t elements() const;  // of the local tensors, padding included

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  int chunk_ = 0;
};

}  // namespace piton
