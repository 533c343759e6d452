// The head and its cross entropy (kernels/loss.h) as one op, in slices of rows: no full logits
// exist.
//
//   for each slice   logits = x W^T -> statistics -> one gather of [rows, 3] over the group -> loss
//     with a tape    dlogits -> dx (that slice's rows), dW +=
//
// With a tape the gradient is computed in the forward pass, while the slice's logits are there: it
// is complete, since the loss ends the model and `scale` is all that its derivative lacks. Kept for
// backward is dx alone, no x, no logits; backward sums dx over the group and gives it. So
//   - backward must follow, once, and whatever seed it gets only says that the gradient is wanted;
//   - the table's contribution is complete when forward is done. Schedules that put weight
//   gradients off
//     (zero bubble) lose nothing: the head is on the last stage, whose backward follows its forward
//     at once, and a put-off product would have to keep dlogits, as large as the logits;
//   - in a recomputed segment (ops/recompute.h) it works too: only the replay has a tape.
// Without a tape (evaluation) the same slices give the same loss.
#pragma once

#include "comm/communicator.h"
#include "ops/tape.h"

namespace piton {

struct LossInputs {
  Tensor labels;  // int32 [n]; below 0: no loss
  Tensor mask;    // fp32 [n]
  Tensor scale;   // fp32 (fp64) [1]: gradient of the loss sum = loss scale / tokens of the global
                  // batch; read in forward. May be empty without a tape
  std::int64_t vocabulary_begin = 0;
  std::int64_t valid = 0;  // real columns of this rank
};

struct LossOutput {
  Value sum;         // fp64 [1]: sum of mask * loss; seed its gradient with any tensor to go back
  Tensor per_token;  // fp32 (fp64) [n], before the mask
};

// Rows whose logits exist at a time: enough that products run at full speed and that adding to the
// whole dW once a slice is little beside them.
inline constexpr std::int64_t kHeadSliceRows = 1024;

// x [n, h], under sequence parallelism this rank's [n/t, h]; `table` [V/t, h], a part of the
// vocabulary for each member of `group`. Slices are as equal as row tiles allow and have at most
// `slice_rows` rows, rounded up to a tile. The loss has the same bits for every slice_rows; dW does
// not.
LossOutput head_loss(Context& context, const Value& x, Parameter& table, const LossInputs& inputs,
                     Communicator& group, bool sequence_parallel,
                     std::int64_t slice_rows = kHeadSliceRows);

}  // namespace piton
