#include "ops/head_loss.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ops/normalized_rows.h"
#include "ops/row_ranges.h"

namespace piton {
namespace {

// Cuts rows into slices at multiples of `tile`, none larger than `slice_rows` rounded up to a tile.
std::vector<RowRange> slices_of(std::int64_t rows, std::int64_t slice_rows, std::int64_t tile) {
  PITON_ASSERT(slice_rows > 0, "slices of {} rows", slice_rows);
  const std::int64_t most = (slice_rows + tile - 1) / tile * tile;
  return cut_rows(rows, (rows + most - 1) / most, tile);
}

// All-gathers x: `mine` [n/t, h] on each member -> [n, h] on every member.
Tensor gather_rows(Context& context, const Tensor& mine, Communicator& group) {
  Tensor all = context.workspace(mine.dtype(), {mine.dim(0) * group.size(), mine.dim(1)});
  const Event ready = group.all_gather(all, mine, context.stream);
  context.arena.hold(all, ready.fence());
  context.arena.hold(mine, ready.fence());
  context.await(ready);
  return all;
}

// Gathers the statistics of each rank's columns: [rows, k] -> [ranks, rows, k].
Tensor gather_statistics(Context& context, const Tensor& mine, Communicator& group) {
  const std::int64_t rows = mine.dim(0);
  const std::int64_t numbers = mine.dim(1);
  if (group.size() == 1) return mine.reshape({1, rows, numbers});
  Tensor all = context.workspace(mine.dtype(), {group.size() * rows, numbers});
  const Event ready = group.all_gather(all, mine, context.stream);
  context.arena.hold(all, ready.fence());
  context.arena.hold(mine, ready.fence());
  context.await(ready);
  return all.reshape({group.size(), rows, numbers});
}

// Buffers for the gradients of one micro-batch. Each may be empty: that gradient is not wanted.
struct HeadGradients {
  Tensor dx;       // [n, h]
  Tensor dweight;  // [V/t, h], added to; the gradient of the normalized rows, if they are used
  Tensor dbias;    // [V/t], added to
  bool overwrites = false;  // by the first slice
  bool wanted() const { return dx.defined() || dweight.defined(); }
};

struct HeadWork {
  Context& context;
  Parameter& table;  // [V/t, h]
  const LossInputs& inputs;
  Communicator& group;
  Tensor rows;  // [n, h]
  std::vector<RowRange> slices;
  LossOutput output;  // per_token [n], and sum
  HeadGradients gradients;
  std::optional<NormalizedRows> normalized = {};
};

// The head and its loss for slices of the rows, one after another, in the same memory.
class HeadSlices {
 public:
  // `work` outlives it.
  explicit HeadSlices(const HeadWork& work) : work_(work), context_(work.context) {
    const DType dtype = work.rows.dtype();
    const DType sums = sum_dtype(dtype);
    std::int64_t largest = 0;
    for (const RowRange& slice : work.slices) largest = std::max(largest, slice.size);
    lse_ = context_.workspace(sums, {largest});
    statistics_ = context_.workspace(sums, {largest, 3});
    if (work.inputs.teacher.given()) {
      warm_lse_ = context_.workspace(sums, {largest, 2});
      teacher_statistics_ = context_.workspace(sums, {largest, 5});
    }
    if (work.inputs.teacher.given() || work.inputs.targets.defined())
      other_sum_ = context_.workspace(DType::kF64, {1});
    if (work.inputs.targets.defined()) weights_ = context_.workspace(DType::kF32, {largest});
    logits_ = context_.workspace(sums, {largest, work.table.shape[0]});
    // dlogits in 16 bits halve the bytes that the two products read. A soft cap also needs a
    // separate buffer, because its gradient reads the logits again.
    dlogits_ = logits_;
    if (work.gradients.wanted() && (dtype != sums || work.inputs.soft_cap > 0)) {
      dlogits_ = context_.workspace(dtype, logits_.shape());
    }
    if (work.normalized) {
      forward_ = backward_ = WeightUse(work.normalized->view(), nullptr);
      return;
    }
    forward_ =
        acquire_forward(context_.weights, work.table, largest, context_.kernels, context_.stream);
    if (work.inputs.bias != nullptr)
      bias_ = context_.weights.acquire(*work.inputs.bias, WeightForm::kRows, context_.stream);
    if (work.gradients.dx.defined()) {
      backward_ = context_.weights.acquire(work.table, WeightForm::kBackward, context_.stream);
    }
  }

  // Computes logits, loss and, if wanted, gradients of one slice.
  void run(const RowRange& slice) const {
    const auto part = [&](const Tensor& all) { return all.slice(0, slice.begin, slice.size); };
    const auto first = [&](const Tensor& buffer) { return buffer.slice(0, 0, slice.size); };
    const Tensor labels = part(work_.inputs.labels);
    const Tensor mask = part(work_.inputs.mask);
    context_.kernels.run(LinearForward{.y = first(logits_),
                                       .x = part(work_.rows),
                                       .weight = forward_->view(),
                                       .bias = bias_.rows()},
                         context_.stream);
    const double cap = work_.inputs.soft_cap;
    if (cap > 0) {
      const Tensor logits = first(logits_);
      context_.kernels.run(SoftCapForward{.y = logits, .x = logits, .cap = cap}, context_.stream);
    }
    make_statistics(slice);
    const LossTeacher& teacher = work_.inputs.teacher;
    const Tensor& targets = work_.inputs.targets;
    context_.kernels.run(
        LossCombine{.loss = part(work_.output.per_token),
                    .lse = first(lse_),
                    .sum = other_sum_.defined() ? unused_sum() : work_.output.sum.tensor,
                    .statistics = gather_statistics(context_, first(statistics_), work_.group),
                    .labels = labels,
                    .mask = mask},
        context_.stream);
    if (targets.defined()) {
      context_.kernels.run(SquaredLoss{.loss = part(work_.output.per_token),
                                       .weights = first(weights_),
                                       .sum = work_.output.sum.tensor,
                                       .targets = part(targets),
                                       .mask = mask},
                           context_.stream);
    }
    const Tensor taught = teacher.given() ? mix_with_teacher(slice) : Tensor();
    if (work_.gradients.wanted()) add_gradients(slice, taught);
  }

 private:
  void make_statistics(const RowRange& slice) const {
    const Tensor statistics = statistics_.slice(0, 0, slice.size);
    const Tensor logits = logits_.slice(0, 0, slice.size);
    const LossInputs& inputs = work_.inputs;
    const Tensor labels = inputs.labels.slice(0, slice.begin, slice.size);
    if (inputs.sets.defined()) {
      context_.kernels.run(BinaryLossStatistics{.statistics = statistics,
                                                .logits = logits,
                                                .labels = labels,
                                                .sets = inputs.sets,
                                                .vocabulary_begin = inputs.vocabulary_begin,
                                                .valid = inputs.valid},
                           context_.stream);
      return;
    }
    context_.kernels.run(LossStatistics{.statistics = statistics,
                                        .logits = logits,
                                        .labels = labels,
                                        .vocabulary_begin = inputs.vocabulary_begin,
                                        .valid = inputs.valid},
                         context_.stream);
  }

  // `taught`: the logits of the teacher, or empty.
  void add_gradients(const RowRange& slice, const Tensor& taught) const {
    const auto part = [&](const Tensor& all) { return all.slice(0, slice.begin, slice.size); };
    const auto first = [&](const Tensor& buffer) { return buffer.slice(0, 0, slice.size); };
    const Tensor labels = part(work_.inputs.labels);
    const Tensor mask = part(work_.inputs.mask);
    const LossTeacher& teacher = work_.inputs.teacher;
    if (work_.inputs.sets.defined()) {
      context_.kernels.run(BinaryLossBackward{.dlogits = first(dlogits_),
                                              .logits = first(logits_),
                                              .labels = labels,
                                              .sets = work_.inputs.sets,
                                              .mask = mask,
                                              .scale = work_.inputs.scale,
                                              .vocabulary_begin = work_.inputs.vocabulary_begin,
                                              .valid = work_.inputs.valid},
                           context_.stream);
    } else if (teacher.given()) {
      context_.kernels.run(TeacherBackward{.dlogits = first(dlogits_),
                                           .logits = first(logits_),
                                           .teacher = taught,
                                           .lse = first(lse_),
                                           .lse_at_temperature = first(warm_lse_),
                                           .labels = labels,
                                           .mask = mask,
                                           .scale = work_.inputs.scale,
                                           .temperature = teacher.temperature,
                                           .weight = teacher.weight,
                                           .vocabulary_begin = work_.inputs.vocabulary_begin,
                                           .valid = work_.inputs.valid},
                           context_.stream);
    } else {
      context_.kernels.run(LossBackward{.dlogits = first(dlogits_),
                                        .logits = first(logits_),
                                        .lse = first(lse_),
                                        .labels = labels,
                                        .mask = weights_.defined() ? first(weights_) : mask,
                                        .scale = work_.inputs.scale,
                                        .vocabulary_begin = work_.inputs.vocabulary_begin,
                                        .valid = work_.inputs.valid},
                           context_.stream);
    }
    if (const double cap = work_.inputs.soft_cap; cap > 0) {
      const Tensor dlogits = first(dlogits_);
      context_.kernels.run(
          SoftCapBackward{.dx = dlogits, .dy = dlogits, .y = first(logits_), .cap = cap},
          context_.stream);
    }
    if (work_.gradients.dx.defined()) {
      context_.kernels.run(
          LinearBackwardInput{
              .dx = part(work_.gradients.dx), .dy = first(dlogits_), .weight = backward_->view()},
          context_.stream);
    }
    if (work_.gradients.dweight.defined()) {
      context_.kernels.run(
          LinearBackwardWeight{.dweight = work_.gradients.dweight,
                               .dbias = work_.gradients.dbias,
                               .dy = first(dlogits_),
                               .x = part(work_.rows),
                               .overwrites = work_.gradients.overwrites && slice.begin == 0},
          context_.stream);
    }
  }

  // The cross entropy of a slice is no part of another loss.
  Tensor unused_sum() const {
    context_.device.zero(other_sum_, context_.stream);
    return other_sum_;
  }
  // Makes the loss of the slice that with the teacher, and returns the teacher's logits of it.
  Tensor mix_with_teacher(const RowRange& slice) const {
    const auto part = [&](const Tensor& all) { return all.slice(0, slice.begin, slice.size); };
    const LossTeacher& teacher = work_.inputs.teacher;
    const Tensor taught = teacher.logits(part(teacher.hidden));
    const Tensor statistics = teacher_statistics_.slice(0, 0, slice.size);
    context_.kernels.run(TeacherStatistics{.statistics = statistics,
                                           .logits = logits_.slice(0, 0, slice.size),
                                           .teacher = taught,
                                           .temperature = teacher.temperature,
                                           .valid = work_.inputs.valid},
                         context_.stream);
    context_.kernels.run(
        TeacherCombine{.loss = part(work_.output.per_token),
                       .lse = warm_lse_.slice(0, 0, slice.size),
                       .sum = work_.output.sum.tensor,
                       .divergence = work_.output.divergence,
                       .statistics = gather_statistics(context_, statistics, work_.group),
                       .labels = part(work_.inputs.labels),
                       .mask = part(work_.inputs.mask),
                       .temperature = teacher.temperature,
                       .weight = teacher.weight},
        context_.stream);
    return taught;
  }

  const HeadWork& work_;
  Context& context_;
  Tensor lse_, statistics_, logits_, dlogits_;
  Tensor warm_lse_, teacher_statistics_;  // with a teacher
  Tensor weights_;                        // of rows, with targets
  Tensor other_sum_;                      // with either
  std::optional<WeightUse> forward_, backward_;
  WeightUse bias_;
};

// Sums dx [n, h] over the group, because each member has computed it from its own columns only, and
// gives it to value `x`. With `scatters` (sequence parallelism), only this rank's rows [n/t, h].
void give_dx(Backward& backward, std::int64_t x, Tensor dx, Communicator& group, bool scatters) {
  Context& context = backward.context();
  Event reduced;
  if (scatters) {
    Tensor mine = context.activation(dx.dtype(), {dx.dim(0) / group.size(), dx.dim(1)});
    reduced = group.reduce_scatter(mine, dx, context.stream);
    context.arena.hold(mine, reduced.fence());
    context.arena.hold(dx, reduced.fence());
    dx = std::move(mine);
  } else if (group.size() > 1) {
    reduced = group.all_reduce(dx, Reduction::kSum, context.stream);
    context.arena.hold(dx, reduced.fence());
  }
  backward.give(x, std::move(dx), std::move(reduced));
}

}  // namespace

LossOutput head_loss(Context& context, const Value& x, Parameter& table, const LossInputs& inputs,
                     const HeadSplit& split) {
  Communicator& group = split.group;
  const bool gathers = split.sequence_parallel && group.size() > 1;
  HeadWork work{.context = context,
                .table = table,
                .inputs = inputs,
                .group = group,
                .rows = gathers ? gather_rows(context, x.tensor, group) : x.tensor};
  const std::int64_t n = work.rows.dim(0);
  work.slices = slices_of(n, split.slice_rows.value_or(context.kernels.full_speed_rows()),
                          context.kernels.row_tile());
  LossOutput& output = work.output;
  output.per_token = context.activation(sum_dtype(x.tensor.dtype()), {n});
  output.sum.tensor = context.activation(DType::kF64, {1});
  context.device.zero(output.sum.tensor, context.stream);
  if (inputs.teacher.given()) {
    output.divergence = context.activation(DType::kF64, {1});
    context.device.zero(output.divergence, context.stream);
  }
  HeadGradients& gradients = work.gradients;
  if (context.tape != nullptr) {
    if (x.wants_gradient()) {
      gradients.dx = context.activation(x.tensor.dtype(), work.rows.shape());
    }
    const bool first_writes = !inputs.normalized && !work.slices.empty();
    const GradientBuffer buffer =
        first_writes ? context.weights.gradient_buffer(table, context.stream)
                     : GradientBuffer{context.weights.gradient(table, context.stream)};
    gradients.dweight = buffer.sums;
    gradients.overwrites = buffer.overwrites;
    if (inputs.bias != nullptr)
      gradients.dbias = context.weights.gradient(*inputs.bias, context.stream);
    PITON_ASSERT(gradients.dweight.defined() || !gradients.dbias.defined(),
                 "{}: a frozen table with a trained bias", table.name);
  }
  const Tensor dtable = gradients.dweight;
  if (inputs.normalized) {
    work.normalized.emplace(context, table);
    if (dtable.defined()) {
      gradients.dweight = context.workspace(dtable.dtype(), dtable.shape());
      context.device.zero(gradients.dweight, context.stream);
    }
  }
  {
    const HeadSlices head(work);
    for (const RowRange& slice : work.slices) head.run(slice);
  }
  if (context.tape == nullptr) return output;
  if (work.normalized && dtable.defined())
    work.normalized->add_gradient(context, gradients.dweight, dtable);
  if (dtable.defined()) context.weights.contribute(table, context.stream);
  if (gradients.dbias.defined()) context.weights.contribute(*inputs.bias, context.stream);
  output.sum = context.tape->output(output.sum.tensor);
  context.tape->record([id = output.sum.id, x_id = x.id, dx = context.tape->keep(gradients.dx),
                        &group, gathers](Backward& backward) {
    if (!backward.take(id).defined() || !dx.defined()) return;
    give_dx(backward, x_id, dx.get(), group, gathers);
  });
  return output;
}

}  // namespace piton
