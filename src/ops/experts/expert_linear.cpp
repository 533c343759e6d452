#include "ops/experts/expert_linear.h"

#include <utility>

namespace piton {

namespace {

// Rows of one matrix of the parameter.
std::int64_t rows_of_matrix(const Parameter& parameter) {
  return parameter.shape[0] / parameter.matrices;
}

Tensor columns_of(const ExpertAdapter& adapter, const Tensor& y) {
  return y.slice(1, adapter.first_output, rows_of_matrix(adapter.b));
}

// Of the rows of experts.
void scale(Context& context, const Tensor& x, double factor, const Tensor& first_rows) {
  if (factor == 1) return;
  context.kernels.run(
      Scale{.y = x, .x = x, .factor = factor, .used = ExpertRows{.first_rows = first_rows}.used()},
      context.stream);
}

// y = x W^T, plus bias and residual.
void multiply(Context& context, Parameter& weight, LinearForward call) {
  // Each matrix sees its share of the rows.
  const std::int64_t rows = (call.x.dim(0) + weight.matrices - 1) / weight.matrices;
  const WeightUse use =
      acquire_forward(context.weights, weight, rows, context.kernels, context.stream);
  call.weight = use.view();
  context.kernels.run(call, context.stream);
}

// dx = dy W, plus residual.
void multiply_back(Context& context, Parameter& weight, LinearBackwardInput call) {
  const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
  call.weight = use.view();
  context.kernels.run(call, context.stream);
}

// mask x, or x itself without a mask.
Tensor masked(Context& context, const Tensor& x, const Tensor& mask, const Tensor& first_rows) {
  if (!mask.defined()) return x;
  const Tensor y = context.activation(x.dtype(), x.shape());
  // A mask is not negative, so it is its ReLU.
  context.kernels.run(ActivationForward{.y = y,
                                        .x = mask,
                                        .up = x,
                                        .kind = ActivationKind::kRelu,
                                        .used = ExpertRows{.first_rows = first_rows}.used()},
                      context.stream);
  return y;
}

// The adapters of a pass.
using Adapters = std::vector<ExpertAdapter>;

// scale x A^T [n, r] of each adapter; writes their products to y. Other columns of y become 0.
std::vector<Tensor> write_adapters(Context& context, const Adapters& adapters, const Tensor& x,
                                   const Tensor& y, const Tensor& first_rows) {
  std::int64_t covered = 0;
  for (const ExpertAdapter& adapter : adapters) covered += rows_of_matrix(adapter.b);
  if (covered < y.dim(1)) context.device.zero(y, context.stream);
  std::vector<Tensor> inputs;
  for (const ExpertAdapter& adapter : adapters) {
    const Tensor input = context.activation(x.dtype(), {x.dim(0), adapter.b.shape[1]});
    multiply(context, adapter.a, {.y = input, .x = x, .first_rows = first_rows});
    scale(context, input, adapter.scale, first_rows);
    multiply(context, adapter.b,
             {.y = columns_of(adapter, y), .x = input, .first_rows = first_rows});
    inputs.push_back(input);
  }
  return inputs;
}

// The gradients of x A^T, [n, r].
std::vector<Tensor> input_gradients(Context& context, const Adapters& adapters, const Tensor& dy,
                                    const Tensor& first_rows) {
  std::vector<Tensor> gradients;
  for (const ExpertAdapter& adapter : adapters) {
    const Tensor dinput = context.activation(dy.dtype(), {dy.dim(0), adapter.b.shape[1]});
    multiply_back(context, adapter.b,
                  {.dx = dinput, .dy = columns_of(adapter, dy), .first_rows = first_rows});
    scale(context, dinput, adapter.scale, first_rows);
    gradients.push_back(dinput);
  }
  return gradients;
}

// dx of all adapters, without that of W; empty: there are none.
Tensor dx_of_adapters(Context& context, const Adapters& adapters,
                      const std::vector<Tensor>& dinputs, const Tensor& mask,
                      const Tensor& first_rows) {
  Tensor sum;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    const Tensor before = sum;
    if (!sum.defined()) {
      sum = context.activation(dinputs[i].dtype(), {dinputs[i].dim(0), adapters[i].a.shape[1]});
    }
    multiply_back(context, adapters[i].a,
                  {.dx = sum, .dy = dinputs[i], .residual = before, .first_rows = first_rows});
  }
  return sum.defined() ? masked(context, sum, mask, first_rows) : sum;
}

// dW += dy^T x of each expert.
void add_product(Context& context, Parameter& weight, LinearBackwardWeight call) {
  const auto [dweight, overwrites] = context.weights.gradient_buffer(weight, context.stream);
  if (!dweight.defined()) return;
  call.dweight = dweight;
  call.overwrites = overwrites;
  context.kernels.run(call, context.stream);
  context.weights.contribute(weight, context.stream);
}

struct WeightJob {
  ExpertWeights matrices;
  Tensor dy;
  Kept x;
  Kept first_rows;
  Kept mask;
  std::vector<Kept> inputs;     // of the adapters
  std::vector<Tensor> dinputs;  // and their gradients

  void run(Context& context) const {
    Tensor seen;  // by the adapters
    if (!matrices.adapters.empty()) seen = masked(context, x.get(), mask.get(), first_rows.get());
    for (std::size_t i = 0; i < matrices.adapters.size(); ++i) {
      const ExpertAdapter& adapter = matrices.adapters[i];
      add_product(context, adapter.a,
                  {.dy = dinputs[i], .x = seen, .first_rows = first_rows.get()});
      add_product(
          context, adapter.b,
          {.dy = columns_of(adapter, dy), .x = inputs[i].get(), .first_rows = first_rows.get()});
    }
    if (!matrices.weight.trainable) return;
    Tensor dbias;
    if (matrices.bias != nullptr) dbias = context.weights.gradient(*matrices.bias, context.stream);
    add_product(context, matrices.weight,
                {.dbias = matrices.adds_bias ? dbias : Tensor(),
                 .dy = dy,
                 .x = x.get(),
                 .first_rows = first_rows.get()});
    if (dbias.defined()) context.weights.contribute(*matrices.bias, context.stream);
  }
};

// What backward needs of forward.
struct Node {
  std::int64_t x_id = -1;
  std::int64_t y_id = -1;
  WeightJob job;  // without gradients

  void run(Backward& backward) const {
    const Tensor dy = backward.take(y_id);
    if (!dy.defined()) return;
    Context& context = backward.context();
    const ExpertWeights& matrices = job.matrices;
    const Tensor& first_rows = job.first_rows.get();
    WeightJob full = job;
    full.dy = dy;
    full.dinputs = input_gradients(context, matrices.adapters, dy, first_rows);
    if (x_id >= 0) {
      Tensor dx = context.activation(dy.dtype(), {dy.dim(0), matrices.weight.shape[1]});
      const Tensor of_adapters =
          dx_of_adapters(context, matrices.adapters, full.dinputs, job.mask.get(), first_rows);
      multiply_back(context, matrices.weight,
                    {.dx = dx, .dy = dy, .residual = of_adapters, .first_rows = first_rows});
      backward.give(x_id, std::move(dx));
    }
    if (!matrices.weight.trainable && matrices.adapters.empty()) return;
    full.x = backward.for_job(job.x);
    backward.defer([job = std::move(full)](Context& context) { job.run(context); });
  }
};

}  // namespace

Value expert_linear(Context& context, const Value& x, const ExpertWeights& matrices,
                    const Tensor& first_rows) {
  ExpertWeights used = matrices;
  if (!context.adapters) used.adapters.clear();
  const std::int64_t out = rows_of_matrix(matrices.weight);
  const Tensor y = context.activation(x.tensor.dtype(), {x.tensor.dim(0), out});
  std::vector<Tensor> inputs;
  {
    WeightUse bias;
    if (matrices.bias != nullptr && matrices.adds_bias)
      bias = context.weights.acquire(*matrices.bias, WeightForm::kRows, context.stream);
    LinearForward call{.y = y, .x = x.tensor, .bias = bias.rows(), .first_rows = first_rows};
    if (!used.adapters.empty()) {
      const Tensor seen = masked(context, x.tensor, matrices.mask, first_rows);
      inputs = write_adapters(context, used.adapters, seen, y, first_rows);
      call.residual = y;
    }
    multiply(context, matrices.weight, std::move(call));
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  WeightJob job{.matrices = used, .first_rows = context.tape->keep(first_rows)};
  if (matrices.weight.trainable || !used.adapters.empty()) job.x = context.tape->keep(x.tensor);
  if (matrices.mask.defined()) job.mask = context.tape->keep(matrices.mask);
  job.matrices.mask = {};
  for (const Tensor& input : inputs) job.inputs.push_back(context.tape->keep(input));
  context.tape->record(
      [node = Node{x.id, result.id, std::move(job)}](Backward& backward) { node.run(backward); });
  return result;
}

}  // namespace piton
