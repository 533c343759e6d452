// Cross entropy over logits split by vocabulary (kernels/loss.h).
#pragma once

#include "comm/communicator.h"
#include "ops/tape.h"

namespace piton {

struct LossInputs {
  Tensor labels;  // int32 [n]; below 0: no loss
  Tensor mask;    // fp32 [n]
  Tensor scale;   // fp32 (fp64) [1]: gradient of the loss sum = loss scale / tokens of the global batch
  std::int64_t vocabulary_begin = 0;
  std::int64_t valid = 0;  // real columns of this rank
};

struct LossOutput {
  Value sum;        // fp64 [1]: sum of mask * loss; seed its gradient with any tensor to go back
  Tensor per_token; // fp32 (fp64) [n], before the mask
};

// logits fp32 (fp64) [n, V/t]; the op takes their memory over.
LossOutput cross_entropy(Context& context, const Value& logits, const LossInputs& inputs,
                         Communicator& group, DType gradient_dtype);

}  // namespace piton
