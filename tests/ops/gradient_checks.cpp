// One function per family. Each makes its inputs, runs backward once, and forward twice per
// element.
#include "gradient_checks.h"

#include <cmath>

#include "device/host_device.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

constexpr DType kDType = DType::kF64;

// Runs calls at once on host tensors.
class Runner {
 public:
  explicit Runner(Kernels& kernels) : kernels_(kernels), stream_(device_.make_stream()) {}
  void operator()(const KernelCall& call) { kernels_.run(call, *stream_); }

 private:
  Kernels& kernels_;
  HostDevice device_;
  std::unique_ptr<Stream> stream_;
};

struct Gradient {
  std::string name;
  Tensor input;
  Tensor gradient;
};

double weighted_sum(const Tensor& y, const Tensor& weights) {
  const auto a = values(y);
  const auto b = values(weights);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

::testing::AssertionResult slopes_agree(const std::function<double()>& loss,
                                        const std::vector<Gradient>& gradients) {
  for (const auto& [name, input, gradient] : gradients) {
    const Tensor slopes = host_tensor(kDType, input.shape());
    std::int64_t i = 0;
    for (const std::int64_t offset : offsets(input)) {
      const double middle = value_at(input, offset);
      set_value(input, offset, middle + kDifferenceStep);
      const double above = loss();
      set_value(input, offset, middle - kDifferenceStep);
      const double below = loss();
      set_value(input, offset, middle);
      set_value(slopes, i++, (above - below) / (2 * kDifferenceStep));
    }
    const auto result = close(gradient, slopes, difference_tolerance());
    if (!result) return ::testing::AssertionFailure() << "d" << name << ": " << result.message();
  }
  return ::testing::AssertionSuccess();
}

// A gradient that is added to: starts at random numbers, which take() subtracts again.
class Accumulated {
 public:
  Accumulated(TensorSource& source, const Shape& shape)
      : start_(source.normal(kDType, shape)), tensor_(tensor_of(kDType, shape, values(start_))) {}
  const Tensor& tensor() const { return tensor_; }
  Tensor take() const {
    auto sum = values(tensor_);
    const auto start = values(start_);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] -= start[i];
    return tensor_of(kDType, tensor_.shape(), sum);
  }

 private:
  Tensor start_;
  Tensor tensor_;
};

::testing::AssertionResult check_linear(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(1, /*awkward=*/true);
  const std::int64_t n = 5, in = 4, out = 3;
  const Tensor x = source.normal_rows(kDType, {n, in});
  const Tensor w = source.normal(kDType, {out, in});
  const Tensor bias = source.normal(kDType, {out});
  const Tensor y = source.unwritten(kDType, {n, out});
  const Tensor dy = source.normal_rows(kDType, {n, out});
  const WeightView weight{.tensor = w, .out = out, .in = in, .dtype = kDType};
  const Tensor dx = source.unwritten(kDType, {n, in});
  const Accumulated dw(source, {out, in});
  const Accumulated dbias(source, {out});
  run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = weight});
  run(LinearBackwardWeight{.dweight = dw.tensor(), .dbias = dbias.tensor(), .dy = dy, .x = x});
  const auto loss = [&] {
    run(LinearForward{.y = y, .x = x, .weight = weight, .bias = bias});
    return weighted_sum(y, dy);
  };
  return slopes_agree(loss, {{"x", x, dx}, {"w", w, dw.take()}, {"bias", bias, dbias.take()}});
}

// The activation's backward reads what the forward product kept for it.
::testing::AssertionResult check_activated_linear(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(11, /*awkward=*/true);
  const std::int64_t n = 5, in = 4, out = 3;
  const Tensor x = source.normal_rows(kDType, {n, in});
  const Tensor w = source.normal(kDType, {out, in});
  const WeightView weight{.tensor = w, .out = out, .in = in, .dtype = kDType};
  const Tensor dy = source.normal(kDType, {n, out});
  const LinearForward forward{.y = source.unwritten(kDType, {n, out}),
                              .x = x,
                              .weight = weight,
                              .bias = source.normal(kDType, {out}),
                              .residual = source.normal_rows(kDType, {n, out}),
                              .activation = ActivationKind::kGeluErf,
                              .preactivation = source.unwritten_rows(kDType, {n, out})};
  run(forward);
  const Tensor dbefore = source.unwritten(kDType, {n, out});
  const Tensor dx = source.unwritten(kDType, {n, in});
  const Accumulated dw(source, {out, in});
  const Accumulated dbias(source, {out});
  run(ActivationBackward{
      .dx = dbefore, .dy = dy, .x = forward.preactivation, .kind = *forward.activation});
  run(LinearBackwardInput{.dx = dx, .dy = dbefore, .weight = weight});
  run(LinearBackwardWeight{.dweight = dw.tensor(), .dbias = dbias.tensor(), .dy = dbefore, .x = x});
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.y, dy);
  };
  return slopes_agree(loss, {{"x", x, dx},
                             {"w", w, dw.take()},
                             {"bias", forward.bias, dbias.take()},
                             {"residual", forward.residual, dbefore}});
}

::testing::AssertionResult check_norm(Kernels& kernels, bool layer, bool with_residual) {
  Runner run(kernels);
  TensorSource source(2);
  const std::int64_t n = 3, h = 7;
  NormForward forward{.y = source.unwritten(kDType, {n, h}),
                      .mean = layer ? source.unwritten(kDType, {n}) : Tensor(),
                      .rstd = source.unwritten(kDType, {n}),
                      .x = source.normal(kDType, {n, h}, 0.5),
                      .gain = source.normal(kDType, {h}, 1, 0.3),
                      .bias = layer ? source.normal(kDType, {h}) : Tensor(),
                      .eps = 0.01,
                      .gain_offset = with_residual ? 1.0 : 0.0};
  run(forward);
  const Tensor dy = source.normal(kDType, {n, h});
  const Tensor dresidual = with_residual ? source.normal(kDType, {n, h}) : Tensor();
  const Tensor dx = source.unwritten(kDType, {n, h});
  const Accumulated dgain(source, {h});
  const Accumulated dbias(source, {h});
  run(NormBackward{.dx = dx,
                   .dgain = dgain.tensor(),
                   .dbias = dbias.tensor(),
                   .dy = dy,
                   .dresidual = dresidual,
                   .x = forward.x,
                   .gain = forward.gain,
                   .mean = forward.mean,
                   .rstd = forward.rstd,
                   .gain_offset = forward.gain_offset});
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.y, dy) + (with_residual ? weighted_sum(forward.x, dresidual) : 0);
  };
  std::vector<Gradient> gradients{{"x", forward.x, dx}, {"gain", forward.gain, dgain.take()}};
  if (layer) gradients.push_back({"bias", forward.bias, dbias.take()});
  return slopes_agree(loss, gradients);
}

::testing::AssertionResult check_rotary(Kernels& kernels, Rotary::Convention convention) {
  Runner run(kernels);
  TensorSource source(3);
  const std::int64_t n = 4, heads = 2, d = 6;
  const Tensor x = source.normal(kDType, {n, heads, d});
  const Tensor dy = source.normal(kDType, {n, heads, d});
  const Tensor cosine = host_tensor(kDType, {9, d / 2});
  const Tensor sine = host_tensor(kDType, {9, d / 2});
  for (std::int64_t i = 0; i < cosine.elements(); ++i) {
    set_value(cosine, i, std::cos(0.3 * static_cast<double>(i)));
    set_value(sine, i, std::sin(0.3 * static_cast<double>(i)));
  }
  Rotary call{.positions = source.integers({n}, 1, 8),
              .cosine = cosine,
              .sine = sine,
              .convention = convention};
  const Tensor dx = tensor_of(kDType, dy.shape(), values(dy));
  call.x = dx;
  call.inverse = true;
  run(call);
  call.inverse = false;
  const auto loss = [&] {
    call.x = tensor_of(kDType, x.shape(), values(x));
    run(call);
    return weighted_sum(call.x, dy);
  };
  return slopes_agree(loss, {{"x", x, dx}});
}

struct AttentionSetting {
  std::int64_t b = 1, sq = 4, sk = 4, a = 2, g = 1, d = 3;
  AttentionMask mask;
  double probability = 0;
  double soft_cap = 0;
};

// [b, a, w] -> [a, w]
Tensor summed_over_samples(const Tensor& all) {
  const Tensor sums = all.select(0, 0);
  for (std::int64_t sample = 1; sample < all.dim(0); ++sample) {
    for (std::int64_t i = 0; i < sums.elements(); ++i)
      set_value(sums, i, value_at(sums, i) + value_at(all.select(0, sample), i));
  }
  return sums;
}

::testing::AssertionResult check_attention(Kernels& kernels, const AttentionSetting& s) {
  Runner run(kernels);
  TensorSource source(4, /*awkward=*/true);
  const Shape queries{s.b, s.sq, s.a, s.d};
  const Shape keys{s.b, s.sk, s.g, s.d};
  Dropout dropout{.probability = s.probability, .key = site_key(5, "attention")};
  dropout.rows.consumed_samples = tensor_of(DType::kI64, {1}, std::vector<double>{11});
  dropout.rows.sequence = s.sq;
  const AttentionForward forward{.out = source.unwritten_rows(kDType, queries),
                                 .lse = source.unwritten(kDType, {s.b, s.a, s.sq}),
                                 .q = source.normal_rows(kDType, queries),
                                 .k = source.normal_rows(kDType, keys),
                                 .v = source.normal_rows(kDType, keys),
                                 .mask = s.mask,
                                 .scale = 0.7,
                                 .dropout = dropout,
                                 .head_begin = 2,
                                 .soft_cap = s.soft_cap};
  run(forward);
  const Tensor& bias = s.mask.bias;
  Tensor dbias;
  if (bias.defined()) dbias = source.unwritten(kDType, {s.b, s.a, bias.dim(1)});
  const AttentionBackward backward{.dq = source.unwritten_rows(kDType, queries),
                                   .dk = source.unwritten_rows(kDType, keys),
                                   .dv = source.unwritten_rows(kDType, keys),
                                   .dbias = dbias,
                                   .dout = source.normal_rows(kDType, queries),
                                   .out = forward.out,
                                   .lse = forward.lse,
                                   .q = forward.q,
                                   .k = forward.k,
                                   .v = forward.v,
                                   .mask = s.mask,
                                   .scale = forward.scale,
                                   .dropout = dropout,
                                   .head_begin = 2,
                                   .soft_cap = s.soft_cap};
  run(backward);
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.out, backward.dout);
  };
  std::vector<Gradient> slopes{
      {"q", forward.q, backward.dq}, {"k", forward.k, backward.dk}, {"v", forward.v, backward.dv}};
  if (bias.defined()) slopes.push_back({"bias", bias, summed_over_samples(dbias)});
  return slopes_agree(loss, slopes);
}

::testing::AssertionResult check_soft_cap(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(7);
  const Shape shape{4, 5};
  const SoftCapForward forward{
      .y = source.unwritten(kDType, shape), .x = source.normal(kDType, shape), .cap = 0.7};
  run(forward);
  const Tensor dy = source.normal(kDType, shape);
  const SoftCapBackward backward{
      .dx = source.unwritten(kDType, shape), .dy = dy, .y = forward.y, .cap = forward.cap};
  run(backward);
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.y, dy);
  };
  return slopes_agree(loss, {{"x", forward.x, backward.dx}});
}

::testing::AssertionResult check_activation(Kernels& kernels, ActivationKind kind, bool gated,
                                            const GateRule& rule = {}) {
  Runner run(kernels);
  TensorSource source(6, /*awkward=*/true);
  const Shape shape{3, 5};
  const ActivationForward forward{.y = source.unwritten(kDType, shape),
                                  .x = source.normal_rows(kDType, shape),
                                  .up = gated ? source.normal_rows(kDType, shape) : Tensor(),
                                  .kind = kind,
                                  .gate = rule};
  const Tensor dy = source.normal(kDType, shape);
  const ActivationBackward backward{.dx = source.unwritten_rows(kDType, shape),
                                    .dup = gated ? source.unwritten_rows(kDType, shape) : Tensor(),
                                    .dy = dy,
                                    .x = forward.x,
                                    .up = forward.up,
                                    .kind = kind,
                                    .gate = rule};
  run(backward);
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.y, dy);
  };
  std::vector<Gradient> gradients{{"x", forward.x, backward.dx}};
  if (gated) gradients.push_back({"up", forward.up, backward.dup});
  return slopes_agree(loss, gradients);
}

::testing::AssertionResult check_dropout_add(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(7);
  const Shape shape{6, 5};
  Dropout dropout{.probability = 0.4, .key = site_key(5, "residual")};
  dropout.rows = {.consumed_samples = tensor_of(DType::kI64, {1}, std::vector<double>{3}),
                  .sample_index = 1,
                  .sequence = 4,
                  .first_row = 2};
  const DropoutAddForward forward{.y = source.unwritten(kDType, shape),
                                  .x = source.normal(kDType, shape),
                                  .bias = source.normal(kDType, {shape[1]}),
                                  .residual = source.normal(kDType, shape),
                                  .dropout = dropout};
  const Tensor dy = source.normal(kDType, shape);
  const Tensor dx = source.unwritten(kDType, shape);
  const Accumulated dbias(source, {shape[1]});
  run(DropoutAddBackward{.dx = dx, .dbias = dbias.tensor(), .dy = dy, .dropout = dropout});
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.y, dy);
  };
  return slopes_agree(loss, {{"x", forward.x, dx},
                             {"bias", forward.bias, dbias.take()},
                             {"residual", forward.residual, dy}});
}

::testing::AssertionResult check_embedding(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(8);
  const std::int64_t n = 9, rows = 4, h = 3;
  const Tensor table = source.normal(kDType, {rows, h});
  const Tensor ids = source.integers({n}, 4, 11);  // some outside of 6 .. 9
  const Tensor y = source.unwritten(kDType, {n, h});
  const Tensor dy = source.normal(kDType, {n, h});
  const Accumulated dtable(source, {rows, h});
  run(EmbeddingBackward{.dtable = dtable.tensor(), .dy = dy, .ids = ids, .vocabulary_begin = 6});
  const auto loss = [&] {
    run(EmbeddingForward{.y = y, .table = table, .ids = ids, .vocabulary_begin = 6});
    return weighted_sum(y, dy);
  };
  return slopes_agree(loss, {{"table", table, dtable.take()}});
}

// A vocabulary of 9 on two ranks of 6 and 6 columns, the last three of which are padding.
::testing::AssertionResult check_loss(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(9);
  const std::int64_t n = 4, columns = 6;
  const std::int64_t valid[2] = {6, 3};
  const Tensor logits[2] = {source.normal(kDType, {n, columns}),
                            source.normal(kDType, {n, columns})};
  const Tensor labels = tensor_of(DType::kI32, {n}, std::vector<double>{2, 7, -1, 5});
  const Tensor mask = tensor_of(DType::kF32, {n}, std::vector<double>{1, 0.5, 1, 1});
  const Tensor scale = tensor_of(kDType, {1}, std::vector<double>{0.25});
  const Tensor statistics = source.unwritten(kDType, {2, n, 3});
  const Tensor losses = source.unwritten(kDType, {n});
  const Tensor lse = source.unwritten(kDType, {n});
  const Tensor sum = host_tensor(DType::kF64, {1});
  const auto loss = [&] {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      run(LossStatistics{.statistics = statistics.select(0, rank),
                         .logits = logits[rank],
                         .labels = labels,
                         .vocabulary_begin = rank * columns,
                         .valid = valid[rank]});
    }
    set_value(sum, 0, 0);
    run(LossCombine{.loss = losses,
                    .lse = lse,
                    .sum = sum,
                    .statistics = statistics,
                    .labels = labels,
                    .mask = mask});
    return value_at(sum, 0) * value_at(scale, 0);
  };
  const double whole = loss();
  const double rows = weighted_sum(losses, mask) * value_at(scale, 0);
  if (std::fabs(whole - rows) > difference_tolerance().absolute) {
    return ::testing::AssertionFailure()
           << "the sum " << whole << " is not that of the rows " << rows;
  }
  std::vector<Gradient> gradients;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const Tensor dlogits = source.unwritten(kDType, {n, columns});
    run(LossBackward{.dlogits = dlogits,
                     .logits = logits[rank],
                     .lse = lse,
                     .labels = labels,
                     .mask = mask,
                     .scale = scale,
                     .vocabulary_begin = rank * columns,
                     .valid = valid[rank]});
    gradients.push_back({fmt::format("logits of rank {}", rank), logits[rank], dlogits});
  }
  return slopes_agree(loss, gradients);
}

// The loss of numbers: those of rows as if they were logits of a head with one id.
::testing::AssertionResult check_squared_loss(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(19);
  const std::int64_t n = 4;
  const Tensor numbers = source.normal(kDType, {n});
  const Tensor targets = source.normal(DType::kF32, {n});
  const Tensor mask = tensor_of(DType::kF32, {n}, std::vector<double>{1, 0.5, 0, 2});
  const Tensor losses = source.unwritten(kDType, {n});
  const Tensor weights = source.unwritten(DType::kF32, {n});
  const Tensor sum = host_tensor(DType::kF64, {1});
  const auto loss = [&] {
    assign(losses, values(numbers));
    set_value(sum, 0, 0);
    run(SquaredLoss{
        .loss = losses, .weights = weights, .sum = sum, .targets = targets, .mask = mask});
    return value_at(sum, 0);
  };
  loss();
  const Tensor slopes = tensor_of(kDType, {n}, values(weights));
  return slopes_agree(loss, {{"numbers", numbers, slopes}});
}

// The loss of several labels of a text, on two ranks of which the second has a column of padding.
::testing::AssertionResult check_binary_loss(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(23);
  const std::int64_t n = 4, columns = 3, valid[2] = {3, 2};
  const Tensor logits[2] = {source.normal(kDType, {n, columns}),
                            source.normal(kDType, {n, columns})};
  const Tensor labels = tensor_of(DType::kI32, {n}, std::vector<double>{1, 0, -1, 2});
  const Tensor sets = tensor_of(DType::kU8, {3, 5},
                                std::vector<double>{1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1});
  const Tensor mask = tensor_of(DType::kF32, {n}, std::vector<double>{1, 0.5, 1, 2});
  const Tensor scale = tensor_of(kDType, {1}, std::vector<double>{0.25});
  const Tensor statistics = source.unwritten(kDType, {2, n, 3});
  const Tensor losses = source.unwritten(kDType, {n});
  const Tensor sum = host_tensor(DType::kF64, {1});
  const auto loss = [&] {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      run(BinaryLossStatistics{.statistics = statistics.select(0, rank),
                               .logits = logits[rank],
                               .labels = labels,
                               .sets = sets,
                               .vocabulary_begin = rank * columns,
                               .valid = valid[rank]});
    }
    set_value(sum, 0, 0);
    run(LossCombine{.loss = losses,
                    .lse = source.unwritten(kDType, {n}),
                    .sum = sum,
                    .statistics = statistics,
                    .labels = labels,
                    .mask = mask});
    return value_at(sum, 0) * value_at(scale, 0);
  };
  std::vector<Gradient> gradients;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const Tensor dlogits = source.unwritten(kDType, {n, columns});
    run(BinaryLossBackward{.dlogits = dlogits,
                           .logits = logits[rank],
                           .labels = labels,
                           .sets = sets,
                           .mask = mask,
                           .scale = scale,
                           .vocabulary_begin = rank * columns,
                           .valid = valid[rank]});
    gradients.push_back({fmt::format("logits of rank {}", rank), logits[rank], dlogits});
  }
  return slopes_agree(loss, gradients);
}

::testing::AssertionResult check_routing(Kernels& kernels, ScoreKind score, bool normalized,
                                         double factor) {
  Runner run(kernels);
  TensorSource source(12);
  const std::int64_t n = 5, experts = 6, k = 3;
  const Tensor balance = host_tensor(DType::kF64, {1});
  const RouteTokens forward{
      .weights = source.unwritten(kDType, {n, k}),
      .choices = source.integers({n, k}, 0, 0),
      .counts = source.integers({experts}, 0, 0),
      .balance = balance,
      .logits = source.normal(kDType, {n, experts}),
      .normalized = normalized,
      .score = score,
      .factor = 1.7,
      .bias = source.normal(kDType, {experts}, 0, score == ScoreKind::kSigmoid ? 0.5 : 0.1),
      .groups = {3, 2, 1}};
  run(forward);
  const Tensor scale = tensor_of(kDType, {1}, std::vector<double>{0.25});
  const Tensor dweights = source.normal(kDType, {n, k});
  const RouteBackward backward{.dlogits = source.unwritten(kDType, {n, experts}),
                               .dweights = dweights,
                               .logits = forward.logits,
                               .choices = forward.choices,
                               .counts = forward.counts,
                               .scale = factor != 0 ? scale : Tensor(),
                               .balance_factor = factor,
                               .normalized = normalized,
                               .score = score,
                               .factor = 1.7};
  run(backward);
  const auto loss = [&] {
    set_value(balance, 0, 0);
    run(forward);
    return weighted_sum(forward.weights, dweights) + factor * 0.25 * value_at(balance, 0);
  };
  return slopes_agree(loss, {{"logits", forward.logits, backward.dlogits}});
}

::testing::AssertionResult check_router_z_loss(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(16);
  const RouterZLoss forward{.sum = host_tensor(DType::kF64, {1}),
                            .logits = source.normal(kDType, {5, 6})};
  const RouterZLossBackward backward{.dlogits = source.unwritten(kDType, {5, 6}),
                                     .logits = forward.logits,
                                     .scale = tensor_of(kDType, {1}, std::vector<double>{0.25}),
                                     .factor = 0.6};
  run(backward);
  const auto loss = [&] {
    set_value(forward.sum, 0, 0);
    run(forward);
    return 0.6 * 0.25 * value_at(forward.sum, 0);
  };
  return slopes_agree(loss, {{"logits", forward.logits, backward.dlogits}});
}

// Tokens are copied to the rows of their experts, and what these return is summed.
::testing::AssertionResult check_combined_experts(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(13);
  const std::int64_t n = 4, k = 2, h = 3;
  const Tensor sources =
      tensor_of(DType::kI32, {n * k}, std::vector<double>{1, 2, 0, 1, 3, 0, 2, 3});
  const Tensor places = tensor_of(DType::kI32, {n, k}, std::vector<double>{5, 2, 0, 3, 6, 1, 4, 7});
  const Tensor x = source.normal(kDType, {n, h});
  const Tensor rows = source.unwritten(kDType, {n * k, h});
  const CombineExperts forward{.y = source.unwritten(kDType, {n, h}),
                               .rows = rows,
                               .places = places,
                               .weights = source.normal(kDType, {n, k})};
  const auto copy = EmbeddingForward{.y = rows, .table = x, .ids = sources};
  run(copy);
  const Tensor dy = source.normal(kDType, {n, h});
  const CombineExpertsBackward backward{.drows = source.unwritten(kDType, {n * k, h}),
                                        .dweights = source.unwritten(kDType, {n, k}),
                                        .dy = dy,
                                        .rows = rows,
                                        .places = places,
                                        .weights = forward.weights};
  run(backward);
  const Tensor dx = source.unwritten(kDType, {n, h});
  run(CombineExperts{.y = dx, .rows = backward.drows, .places = places});
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.y, dy);
  };
  const auto result = slopes_agree(
      loss, {{"rows", rows, backward.drows}, {"weights", forward.weights, backward.dweights}});
  if (!result) return result;
  const auto whole = [&] {
    run(copy);
    return loss();
  };
  return slopes_agree(whole, {{"x", x, dx}});
}

::testing::AssertionResult check_gated_sum(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(15);
  const Shape shape{4, 3};
  const GatedSumForward forward{.y = source.unwritten(kDType, shape),
                                .a = source.normal(kDType, shape),
                                .x = source.normal(kDType, shape),
                                .gate = source.normal(kDType, {4, 1})};
  const Tensor dy = source.normal(kDType, shape);
  const GatedSumBackward backward{.dx = source.unwritten(kDType, shape),
                                  .dgate = source.unwritten(kDType, {4, 1}),
                                  .dy = dy,
                                  .x = forward.x,
                                  .gate = forward.gate};
  run(backward);
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.y, dy);
  };
  return slopes_agree(loss, {{"a", forward.a, dy},
                             {"x", forward.x, backward.dx},
                             {"gate", forward.gate, backward.dgate}});
}

::testing::AssertionResult check_head_parts(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(16);
  const std::int64_t n = 3, heads = 2, own = 3, shared = 2;
  const JoinHeads forward{.y = source.unwritten(kDType, {n, heads, own + shared + 1}),
                          .own = source.normal(kDType, {n, heads, own}),
                          .shared = source.normal(kDType, {n, shared})};
  const Tensor dy = source.normal(kDType, forward.y.shape());
  const SplitHeads backward{.own = source.unwritten(kDType, forward.own.shape()),
                            .shared = source.unwritten(kDType, forward.shared.shape()),
                            .y = dy};
  run(backward);
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.y, dy);
  };
  return slopes_agree(
      loss, {{"own", forward.own, backward.own}, {"shared", forward.shared, backward.shared}});
}

// Rows of four experts, of which one has none.
::testing::AssertionResult check_linear_of_experts(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(14, /*awkward=*/true);
  const std::int64_t n = 6, experts = 4, in = 4, out = 3;
  const Tensor first_rows = tensor_of(DType::kI32, {5}, std::vector<double>{0, 2, 2, 5, 6});
  const Tensor x = source.normal_rows(kDType, {n, in});
  const Tensor w = source.normal(kDType, {experts * out, in});
  const Tensor y = source.unwritten(kDType, {n, out});
  const Tensor dy = source.normal_rows(kDType, {n, out});
  const WeightView weight{.tensor = w, .out = out, .in = in, .dtype = kDType, .matrices = experts};
  const Tensor dx = source.unwritten(kDType, {n, in});
  const Accumulated dw(source, {experts * out, in});
  const Tensor bias = source.normal(kDType, {experts * out});
  const Accumulated dbias(source, {experts * out});
  run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = weight, .first_rows = first_rows});
  run(LinearBackwardWeight{
      .dweight = dw.tensor(), .dbias = dbias.tensor(), .dy = dy, .x = x, .first_rows = first_rows});
  const auto loss = [&] {
    run(LinearForward{.y = y, .x = x, .weight = weight, .bias = bias, .first_rows = first_rows});
    return weighted_sum(y, dy);
  };
  return slopes_agree(loss, {{"x", x, dx}, {"w", w, dw.take()}, {"bias", bias, dbias.take()}});
}

// dq, dk and dv are those of attention's backward from what the sinks leave.
::testing::AssertionResult check_sinks(Kernels& kernels) {
  Runner run(kernels);
  TensorSource source(15, /*awkward=*/true);
  const std::int64_t b = 2, s = 5, a = 4, g = 2, d = 3;
  const AttentionForward forward{.out = source.unwritten(kDType, {b, s, a, d}),
                                 .lse = source.unwritten(kDType, {b, a, s}),
                                 .q = source.normal(kDType, {b, s, a, d}),
                                 .k = source.normal(kDType, {b, s, g, d}),
                                 .v = source.normal(kDType, {b, s, g, d}),
                                 .mask = {.window_before = 2},
                                 .scale = 0.7};
  const AttentionSink sink{
      .out = forward.out, .lse = forward.lse, .sinks = source.normal(kDType, {a})};
  const Tensor dout = source.normal(kDType, forward.out.shape());
  const auto loss = [&] {
    run(forward);
    run(sink);
    return weighted_sum(forward.out, dout);
  };
  loss();
  const AttentionBackward backward{.dq = source.unwritten(kDType, forward.q.shape()),
                                   .dk = source.unwritten(kDType, forward.k.shape()),
                                   .dv = source.unwritten(kDType, forward.v.shape()),
                                   .dout = dout,
                                   .out = forward.out,
                                   .lse = forward.lse,
                                   .q = forward.q,
                                   .k = forward.k,
                                   .v = forward.v,
                                   .mask = forward.mask,
                                   .scale = forward.scale};
  run(backward);
  const Accumulated dsinks(source, {a});
  run(AttentionSinkBackward{.dsinks = dsinks.tensor(),
                            .dout = dout,
                            .out = forward.out,
                            .lse = forward.lse,
                            .sinks = sink.sinks});
  return slopes_agree(loss, {{"q", forward.q, backward.dq},
                             {"k", forward.k, backward.dk},
                             {"v", forward.v, backward.dv},
                             {"sinks", sink.sinks, dsinks.take()}});
}

void add_attentions(std::vector<GradientCheck>& checks) {
  const auto integers = [](const Shape& shape, std::vector<double> contents) {
    return tensor_of(DType::kI32, shape, contents);
  };
  const auto add = [&](std::string name, const AttentionSetting& setting) {
    checks.push_back({"attention, " + name,
                      [setting](Kernels& kernels) { return check_attention(kernels, setting); }});
  };
  add("causal", {});
  add("full, grouped queries", {.b = 2, .a = 4, .g = 2, .mask = {.causal = false}});
  add("window", {.sq = 6, .sk = 6, .mask = {.window_before = 2}});
  add("two-sided window",
      {.sq = 6, .sk = 6, .mask = {.causal = false, .window_before = 1, .window_after = 2}});
  add("behind a cache", {.sq = 2, .sk = 6, .mask = {.query_begin = 4}});
  AttentionSetting segments{.sq = 5, .sk = 5};
  segments.mask.query_segments = integers({1, 5}, {0, 0, 1, 1, 1});
  segments.mask.key_segments = segments.mask.query_segments;
  add("segments", segments);
  AttentionSetting lengths{.b = 2, .mask = {.causal = false}};
  lengths.mask.key_lengths = integers({2}, {3, 0});
  add("key lengths, a sample without keys", lengths);
  AttentionSetting slopes{};
  slopes.mask.slopes = tensor_of(DType::kF32, {2}, std::vector<double>{0.5, 0.25});
  add("slopes", slopes);
  add("dropout", {.sq = 6, .sk = 6, .a = 2, .g = 2, .probability = 0.4});
  AttentionSetting positions{.sq = 3, .sk = 6, .mask = {.window_before = 2}};
  positions.mask.query_positions = integers({1, 3}, {5, 1, 20});  // the last sees nothing
  add("query positions, a row that sees nothing", positions);
  AttentionSetting places{.sq = 3, .sk = 4, .mask = {.window_before = 5}};
  places.mask.query_positions = integers({1, 3}, {9, 4, 30});
  places.mask.key_positions = integers({1, 4}, {2, 4, 7, 25});
  add("positions of queries and keys", places);
  AttentionSetting prefix{.b = 2, .sq = 5, .sk = 5, .probability = 0.2};
  prefix.mask.query_reach = integers({2, 5}, {2, 2, 2, 2, 2, 0, 4, 4, 1, 0});
  prefix.mask.slopes = slopes.mask.slopes;
  add("prefix, slopes, dropout", prefix);
  slopes.probability = 0.3;
  slopes.soft_cap = 0.8;
  add("soft cap, slopes, dropout", slopes);
  TensorSource source(8);
  AttentionSetting biased{.b = 2, .a = 2, .g = 1, .mask = {.causal = false}, .probability = 0.3};
  biased.mask.bias = source.normal(kDType, {2, 7});
  biased.mask.bias_origin = 3;
  biased.soft_cap = 0.9;
  add("bias, soft cap, dropout", biased);
  AttentionSetting behind{.sq = 2, .sk = 6, .mask = {.query_begin = 4}};
  behind.mask.bias = source.normal(kDType, {2, 8});
  behind.mask.bias_origin = 6;
  add("bias, behind a cache", behind);
}

// Two samples of five rows, the second one of two documents.
Tensor two_samples(bool segments) {
  if (!segments) return {};
  return tensor_of(DType::kI32, {10}, std::vector<double>{0, 0, 0, 0, 0, 1, 1, 2, 2, 2});
}

::testing::AssertionResult check_convolution(Kernels& kernels, bool segments, bool silu) {
  Runner run(kernels);
  TensorSource source(21, /*awkward=*/true);
  const std::int64_t n = 10, c = 3, w = 4;
  const Tensor x = source.normal_rows(kDType, {n, c});
  const Tensor weight = source.normal(kDType, {c, w});
  const Tensor bias = source.normal(kDType, {c});
  const Tensor dy = source.normal(kDType, {n, c});
  const ConvolutionForward forward{.y = source.unwritten(kDType, {n, c}),
                                   .x = x,
                                   .weight = weight,
                                   .bias = bias,
                                   .segments = two_samples(segments),
                                   .samples = 2,
                                   .silu = silu};
  const Tensor dx = source.unwritten_rows(kDType, {n, c});
  const Accumulated dweight(source, {c, w});
  const Accumulated dbias(source, {c});
  run(ConvolutionBackward{.dx = dx,
                          .dweight = dweight.tensor(),
                          .dbias = dbias.tensor(),
                          .dy = dy,
                          .x = x,
                          .weight = weight,
                          .bias = bias,
                          .segments = forward.segments,
                          .samples = 2,
                          .silu = silu});
  const auto loss = [&] {
    run(forward);
    return weighted_sum(forward.y, dy);
  };
  return slopes_agree(
      loss, {{"x", x, dx}, {"weight", weight, dweight.take()}, {"bias", bias, dbias.take()}});
}

// Two value heads for each key head.
::testing::AssertionResult check_delta_rule(Kernels& kernels, bool segments, StateRule rule) {
  Runner run(kernels);
  TensorSource source(22, /*awkward=*/true);
  const std::int64_t n = 10, keys = 2, values = 4, dk = 3, dv = 2;
  const bool corrects = rule == StateRule::kDelta;
  const DeltaRuleInput in{.q = source.normal_rows(kDType, {n, keys, dk}),
                          .k = source.normal_rows(kDType, {n, keys, dk}),
                          .v = source.normal_rows(kDType, {n, values, dv}),
                          .decay = source.normal_rows(kDType, {n, values}),
                          .strength = corrects ? source.normal_rows(kDType, {n, values}) : Tensor(),
                          .rate = source.normal(kDType, {values}, -1, 0.5),
                          .bias = source.normal(kDType, {values}),
                          .skip = corrects ? Tensor() : source.normal(kDType, {values}),
                          .segments = two_samples(segments),
                          .samples = 2,
                          .rule = rule};
  const Tensor out = source.unwritten(kDType, {n, values, dv});
  const Tensor dout = source.normal(kDType, {n, values, dv});
  const Accumulated drate(source, {values});
  const Accumulated dbias(source, {values});
  const Accumulated dskip(source, {values});
  const DeltaRuleBackward backward{
      .dq = source.unwritten_rows(kDType, in.q.shape()),
      .dk = source.unwritten_rows(kDType, in.q.shape()),
      .dv = source.unwritten_rows(kDType, in.v.shape()),
      .ddecay = source.unwritten_rows(kDType, in.decay.shape()),
      .dstrength = corrects ? source.unwritten_rows(kDType, in.decay.shape()) : Tensor(),
      .drate = drate.tensor(),
      .dbias = dbias.tensor(),
      .dskip = corrects ? Tensor() : dskip.tensor(),
      .dout = dout,
      .in = in};
  run(backward);
  const auto loss = [&] {
    run(DeltaRuleForward{.out = out, .in = in});
    return weighted_sum(out, dout);
  };
  std::vector<Gradient> gradients{
      {"q", in.q, backward.dq},        {"k", in.k, backward.dk},
      {"v", in.v, backward.dv},        {"decay", in.decay, backward.ddecay},
      {"rate", in.rate, drate.take()}, {"bias", in.bias, dbias.take()}};
  if (corrects) {
    gradients.push_back({"strength", in.strength, backward.dstrength});
  } else {
    gradients.push_back({"skip", in.skip, dskip.take()});
  }
  return slopes_agree(loss, gradients);
}

}  // namespace

std::vector<GradientCheck> gradient_checks() {
  std::vector<GradientCheck> checks;
  checks.push_back({"linear", check_linear});
  checks.push_back({"linear, activated", check_activated_linear});
  checks.push_back({"soft cap", check_soft_cap});
  for (const bool layer : {true, false}) {
    for (const bool residual : {true, false}) {
      checks.push_back(
          {fmt::format("{} norm{}", layer ? "layer" : "rms", residual ? ", residual" : ""),
           [=](Kernels& kernels) { return check_norm(kernels, layer, residual); }});
    }
  }
  for (const auto convention : {Rotary::Convention::kHalves, Rotary::Convention::kPairs}) {
    checks.push_back({fmt::format("rotary {}", static_cast<int>(convention)),
                      [=](Kernels& kernels) { return check_rotary(kernels, convention); }});
  }
  add_attentions(checks);
  for (const auto kind :
       {ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kGeluFast,
        ActivationKind::kSilu, ActivationKind::kRelu, ActivationKind::kSquaredRelu,
        ActivationKind::kSigmoid, ActivationKind::kIdentity}) {
    for (const bool gated : {false, true}) {
      checks.push_back({fmt::format("activation {} gated {}", static_cast<int>(kind), gated),
                        [=](Kernels& kernels) { return check_activation(kernels, kind, gated); }});
    }
  }
  checks.push_back({"activation, gate within a bound", [](Kernels& kernels) {
                      return check_activation(kernels, ActivationKind::kGeluFast, true, {0.7, 1});
                    }});
  checks.push_back({"attention with sinks", check_sinks});
  checks.push_back({"dropout add", check_dropout_add});
  checks.push_back({"embedding", check_embedding});
  checks.push_back({"loss", check_loss});
  checks.push_back({"squared loss", check_squared_loss});
  checks.push_back({"binary loss", check_binary_loss});
  for (const bool normalized : {false, true}) {
    for (const double factor : {0.0, 0.6}) {
      for (const ScoreKind score : {ScoreKind::kSoftmax, ScoreKind::kSigmoid}) {
        checks.push_back(
            {fmt::format("routing, scores {} normalized {} balance {}", static_cast<int>(score),
                         normalized, factor),
             [=](Kernels& kernels) { return check_routing(kernels, score, normalized, factor); }});
      }
    }
  }
  checks.push_back({"router z-loss", check_router_z_loss});
  checks.push_back({"combined experts", check_combined_experts});
  checks.push_back({"gated sum", check_gated_sum});
  checks.push_back({"head parts", check_head_parts});
  checks.push_back({"linear of experts", check_linear_of_experts});
  for (const bool segments : {false, true}) {
    const char* of = segments ? "documents" : "samples";
    for (const bool silu : {true, false}) {
      checks.push_back(
          {fmt::format("convolution of {}{}", of, silu ? "" : ", sums"),
           [=](Kernels& kernels) { return check_convolution(kernels, segments, silu); }});
    }
    for (const StateRule rule : {StateRule::kDelta, StateRule::kStateSpace}) {
      const char* name = rule == StateRule::kDelta ? "delta rule" : "state space";
      checks.push_back({fmt::format("{} of {}", name, of), [=](Kernels& kernels) {
                          return check_delta_rule(kernels, segments, rule);
                        }});
    }
  }
  return checks;
}

}  // namespace piton::test
