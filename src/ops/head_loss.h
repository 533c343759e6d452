// The head and its cross entropy (kernels/loss.h) as one op. It works on slices of rows, so the
// logits of the whole micro-batch never exist at once.
//
//   for each slice   logits = x W^T + bias -> statistics -> one gather of [rows, 3] over the
//                    group -> loss
//     with a tape    dlogits -> dx (the rows of the slice), dW +=, db +=
//
// With a tape, the gradients of a slice are computed in the forward pass, while its logits are in
// memory. This is possible because the loss is the last op of the model: `scale` is the only factor
// from outside. For backward only dx is kept, neither x nor the logits. Backward sums dx over the
// group. Consequences:
//   - Backward must run exactly once. The value of its seed is ignored: a seed only says that the
//     gradient is needed.
//   - The table's weight gradient is complete after forward. Schedules that postpone weight
//     gradients (zero bubble) lose nothing: the head is on the last stage, where backward follows
//     forward at once. Postponing the product would require keeping dlogits, which are as large as
//     the logits.
//   - In a recomputed segment (ops/recompute.h) only the replay has a tape, so only the replay
//     computes gradients.
// Without a tape (evaluation) the same slices give the same loss.
//
// With a teacher (distillation) its logits of a slice are computed next to those of the model, so
// neither table exists as a whole.
#pragma once

#include <functional>
#include <optional>

#include "comm/communicator.h"
#include "ops/tape.h"

namespace piton {

// A second model whose distribution the model learns, mixed with the labels (kernels/loss.h).
struct LossTeacher {
  Tensor hidden;  // [n, h'] of all rows, on every member of the group: what its head reads
  // Its logits [k, V/t], fp32 (fp64), of rows [k, h'] of `hidden`: this rank's part of the same
  // padded vocabulary.
  std::function<Tensor(const Tensor& rows)> logits;
  double temperature = 1;
  double weight = 0;  // of the divergence; 1: no cross entropy

  bool given() const { return hidden.defined(); }
};

struct LossInputs {
  Tensor labels;   // int32 [n]; a negative label has no loss
  Tensor mask;     // fp32 [n]: weight of each row in the sum
  Tensor scale;    // fp32 (fp64) [1]: gradient of the loss sum, that is, loss scale / tokens of the
                   // global batch. Read in forward. May be empty without a tape
  Tensor targets;  // fp32 [n]: the numbers of a head with one id, whose loss is then the square of
                   // the difference (kernels/loss.h); labels are not that id. Empty: cross entropy
  // u8 [k, V]: 1 for each id that a row of it has, of a head whose ids are labels that a text has
  // any number of; the loss is then the mean binary cross entropy of its ids (kernels/loss.h), and
  // a label is a row of it. Empty: others.
  Tensor sets;
  std::int64_t vocabulary_begin = 0;  // first id of this rank's part of the vocabulary
  std::int64_t valid = 0;             // ids in this rank's part, padding not counted
  Parameter* bias = nullptr;          // [V/t], added to the logits; trained as the table is
  bool normalized = false;            // each row of the table is divided by its length; no bias
  double soft_cap = 0;                // c: logits y become c tanh(y / c); 0: none
  LossTeacher teacher;
};

struct LossOutput {
  Value sum;          // fp64 [1]: sum of mask * loss; for backward, seed it with any tensor
  Tensor per_token;   // fp32 (fp64) [n], before the mask
  Tensor divergence;  // fp64 [1]: sum of mask * divergence from the teacher; empty without one
};

// How the head is split over ranks and rows. Slices have at most `slice_rows` rows, rounded up to a
// row tile, and sizes as equal as row tiles allow. Each slice adds to the whole dW once; with
// Kernels::full_speed_rows() the time for this is small compared with the products. The bits of the
// loss do not depend on slice_rows; those of dW do.
struct HeadSplit {
  Communicator& group;  // over which the vocabulary is split
  bool sequence_parallel = false;
  std::optional<std::int64_t> slice_rows;  // above 0; none: Kernels::full_speed_rows()
};

// x [n, h], under sequence parallelism this rank's [n/t, h]; `table` [V/t, h].
LossOutput head_loss(Context& context, const Value& x, Parameter& table, const LossInputs& inputs,
                     const HeadSplit& split);

}  // namespace piton
