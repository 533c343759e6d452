#include "ops/norm.h"

#include <utility>

#include "ops/computed_again.h"

namespace piton {
namespace {

struct Normed {
  Tensor y;
  Tensor mean;  // empty: an RMS norm
  Tensor rstd;
};

// [n], each the sum over the ranks.
void add_up(Context& context, const Tensor& rows, Communicator& group) {
  const Event summed = group.all_reduce(rows, Reduction::kSum, context.stream);
  context.arena.hold(rows, summed.fence());
  context.await(summed);
}

// The sum of squares of each whole row, of which x is a part; empty: x has whole rows.
Tensor squares_of_rows(Context& context, const Tensor& x, Communicator* group) {
  if (group == nullptr) return {};
  const Tensor squares = context.activation(sum_dtype(x.dtype()), {x.dim(0)});
  context.kernels.run(RowSquares{.squares = squares, .rows = x}, context.stream);
  add_up(context, squares, *group);
  return squares;
}

std::int64_t whole_width(const Tensor& x, const Communicator* group) {
  return x.dim(1) * (group != nullptr ? group->size() : 1);
}

// What a norm multiplies by and adds, and the ranks that have the other parts of its rows.
struct NormParts {
  Parameter* gain = nullptr;      // null: gains are 0, to which the settings add 1
  Parameter* bias = nullptr;      // of a layer norm, or null
  Communicator* group = nullptr;  // null: this rank has whole rows
  bool centered = false;          // a layer norm
  DType dtype = DType::kF32;      // of gains and result
};

// The gains of rows as long as those of x.
class Gains {
 public:
  Gains(Context& context, const NormParts& parts, const Tensor& x) {
    if (parts.gain != nullptr) {
      use_ = context.weights.acquire(*parts.gain, WeightForm::kRows, context.stream);
      return;
    }
    zeros_ = context.activation(parts.dtype, {x.dim(1)});
    context.device.zero(zeros_, context.stream);
  }
  Tensor rows() const { return zeros_.defined() ? zeros_ : use_.rows(); }

 private:
  WeightUse use_;
  Tensor zeros_;
};

Normed run_norm(Context& context, const Tensor& x, const NormParts& parts,
                const NormSettings& settings) {
  const auto [gain, bias, group, centered, dtype] = parts;
  const DType sums = sum_dtype(x.dtype());
  Normed normed{.y = context.activation(dtype, x.shape()),
                .mean = centered ? context.activation(sums, {x.dim(0)}) : Tensor(),
                .rstd = context.activation(sums, {x.dim(0)})};
  const Tensor squares = squares_of_rows(context, x, group);
  const Gains gains(context, parts, x);
  WeightUse bias_use;
  if (bias != nullptr) bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
  context.kernels.run(NormForward{.y = normed.y,
                                  .mean = normed.mean,
                                  .rstd = normed.rstd,
                                  .x = x,
                                  .gain = gains.rows(),
                                  .bias = bias_use.rows(),
                                  .squares = squares,
                                  .width = whole_width(x, group),
                                  .eps = settings.eps,
                                  .gain_offset = settings.gain_offset},
                      context.stream);
  return normed;
}

// One kernel call computes dx, dgain and dbias, so there is no separate weight job.
Value norm(Context& context, const Value& x, const NormParts& parts, const NormSettings& settings) {
  const auto [y, mean, rstd] = run_norm(context, x.tensor, parts, settings);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const Kept kept_input = context.tape->keep(x.tensor);
  PITON_ASSERT(!settings.again || parts.group == nullptr, "a norm over ranks computed again");
  if (settings.again) {
    context.tape->provide(y, computed_again([plain = context.with_tape(nullptr), kept_input, parts,
                                             settings]() mutable {
                            return run_norm(plain, kept_input.get(), parts, settings).y;
                          }));
  }
  context.tape->record([x_id = x.id, id = result.id, parts, gain_offset = settings.gain_offset,
                        kept_x = kept_input, kept_mean = context.tape->keep(mean),
                        kept_rstd = context.tape->keep(rstd)](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    const Tensor x = kept_x.get();
    Communicator* group = parts.group;
    const auto gradient = [&](Parameter* parameter) {
      return parameter != nullptr ? context.weights.gradient(*parameter, context.stream) : Tensor();
    };
    Tensor dx = context.activation(x.dtype(), x.shape());
    Tensor dgain = gradient(parts.gain);
    Tensor dbias = gradient(parts.bias);
    {
      const Gains gains(context, parts, x);
      dy = dy.reshape(x.shape());
      const Tensor rstd = kept_rstd.get();
      Tensor products;
      if (group != nullptr) {
        products = context.activation(rstd.dtype(), rstd.shape());
        context.kernels.run(NormProducts{.products = products,
                                         .dy = dy,
                                         .x = x,
                                         .gain = gains.rows(),
                                         .rstd = rstd,
                                         .gain_offset = gain_offset},
                            context.stream);
        add_up(context, products, *group);
      }
      // The gradient of x from the residual path is known already; the kernel adds it to dx.
      context.kernels.run(NormBackward{.dx = dx,
                                       .dgain = dgain,
                                       .dbias = dbias,
                                       .dy = dy,
                                       .dresidual = backward.take(x_id),
                                       .x = x,
                                       .gain = gains.rows(),
                                       .mean = kept_mean.get(),
                                       .rstd = rstd,
                                       .products = products,
                                       .width = whole_width(x, group),
                                       .gain_offset = gain_offset},
                          context.stream);
    }
    if (dgain.defined()) context.weights.contribute(*parts.gain, context.stream);
    if (dbias.defined()) context.weights.contribute(*parts.bias, context.stream);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

}  // namespace

Value layer_norm(Context& context, const Value& x, Parameter& gain, Parameter* bias,
                 const NormSettings& settings) {
  return norm(context, x, {.gain = &gain, .bias = bias, .centered = true, .dtype = gain.dtype},
              settings);
}

Value rms_norm(Context& context, const Value& x, Parameter& gain, const NormSettings& settings) {
  return norm(context, x, {.gain = &gain, .dtype = gain.dtype}, settings);
}

Value rms_norm_over_ranks(Context& context, const Value& x, Parameter& gain,
                          const NormSettings& settings, Communicator& group) {
  return norm(context, x,
              {.gain = &gain, .group = group.size() > 1 ? &group : nullptr, .dtype = gain.dtype},
              settings);
}

Value norm_without_gain(Context& context, const Value& x, const PlainNorm& kind,
                        const NormSettings& settings) {
  NormSettings ones = settings;
  ones.gain_offset = 1;
  Communicator* group = kind.group != nullptr && kind.group->size() > 1 ? kind.group : nullptr;
  return norm(context, x, {.group = group, .centered = kind.centered, .dtype = kind.dtype}, ones);
}

}  // namespace piton
