// All that a pipeline sees of a model: a chunk takes boundary tensors and gives boundary tensors,
// or the loss. A boundary is a list of tensors (an encoder-decoder passes two).
#pragma once

#include <cstdint>
#include <vector>

#include "ops/head_loss.h"
#include "ops/parameter.h"
#include "ops/tape.h"

namespace piton {

// One micro-batch on the device.
struct ModelInput {
  std::int64_t samples = 0;   // b
  std::int64_t sequence = 0;  // s
  Tensor tokens;              // int32 [b*s]
  Tensor positions;           // int32 [b*s]
  Tensor segments;            // int32 [b, s] or empty: packed documents
  LossInputs loss;            // labels, mask, scale; used by the last chunk
  MaskRows rows;              // for mask draws
};

struct BoundaryTensor {
  DType dtype = DType::kF32;
  Shape shape;
};

struct ChunkOutput {
  std::vector<Value> boundary;  // to the next chunk; empty for the last
  LossOutput loss;              // of the last chunk
};

class Chunk {
 public:
  virtual ~Chunk() = default;
  virtual bool first() const = 0;  // takes tokens instead of a boundary
  virtual bool last() const = 0;   // gives the loss
  // What this chunk gives to the next for a micro-batch of b samples of s tokens. The last one
  // answers as if there were a next.
  virtual std::vector<BoundaryTensor> boundary(std::int64_t samples,
                                               std::int64_t sequence) const = 0;
  // `inputs`: leaves of context.tape that came from the previous chunk; empty for the first.
  virtual ChunkOutput forward(Context& context, const ModelInput& input,
                              const std::vector<Value>& inputs) = 0;
  virtual ParameterList& parameters() = 0;
};

}  // namespace piton
