// A norm layer: layer norm with gain and bias or gain alone, or root-mean-square norm with gain.
#pragma once

#include <string>

#include "nn/shard.h"

namespace piton {

enum class NormKind : std::uint8_t { kLayer, kRms };

struct NormShape {
  NormKind kind = NormKind::kLayer;
  std::int64_t width = 0;
  double eps = 1e-5;
  bool bias = true;  // of a layer norm
  bool gain = true;  // without, there is no bias either
  // The parameter is the gain's difference from 1.
  bool gain_from_one = false;
  // The rows of x are heads. Each tensor rank has different heads, so the gradients of gain and
  // bias are summed over the tensor ranks.
  bool of_heads = false;
  // The rows of x are parts of rows of `width`, of an RMS norm: each tensor rank has one part.
  bool over_ranks = false;
  // An RMS norm of each of so many parts of a row, with gains; each tensor rank has 1 / t of them.
  std::int64_t groups = 1;
};

class Norm {
 public:
  Norm(ParameterList& parameters, const Shard& shard, const std::string& name,
       const NormShape& shape);
  // x [n, width] -> [n, width]; over ranks, and of groups, [n, width / t] of each.
  Value forward(Context& context, const Value& x) const;

 private:
  NormKind kind_;
  double eps_;
  double gain_offset_;
  DType dtype_;  // of the result
  bool of_heads_;
  std::int64_t groups_ = 0;        // of this rank, of a norm of groups; else 0
  Communicator* group_ = nullptr;  // whose ranks have the parts of the rows
  Parameter* gain_ = nullptr;
  Parameter* bias_ = nullptr;
};

}  // namespace piton
