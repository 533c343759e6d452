// The sliced head against plain cross entropy over whole logits in double, also mixed with the
// divergence from a teacher, and several slices against one slice.
#include "ops/head_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/compare.h"
#include "support/instruction_sets.h"
#include "support/thread_world.h"

namespace piton {
namespace {

using test::bit_equal;
using test::close;
using test::Tolerance;

struct Sizes {
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  std::int64_t padded = 0;
};

// One batch, the same on every rank; `table` has the padded rows, with numbers that must not be
// seen.
struct Case {
  Case(const Sizes& sizes, DType dtype, std::uint64_t seed = 5) : sizes(sizes) {
    test::TensorSource source(seed);
    x = source.normal(dtype, {sizes.rows, sizes.hidden});
    table = source.normal(dtype, {sizes.padded, sizes.hidden});
    inputs.labels = source.integers({sizes.rows}, 0, sizes.vocabulary - 1);
    inputs.mask = source.normal(DType::kF32, {sizes.rows}, 1, 0.3);
    for (std::int64_t row = 0; row < sizes.rows; row += 5)
      inputs.labels.data<std::int32_t>()[row] = -1;
    for (std::int64_t row = 3; row < sizes.rows; row += 7) inputs.mask.data<float>()[row] = 0;
    inputs.scale =
        test::tensor_of(dtype == DType::kF64 ? dtype : DType::kF32, {1}, std::vector{0.375});
  }

  // The logits of a teacher for every row, in the padded columns too.
  void add_teacher(double temperature, double weight, std::uint64_t seed = 6) {
    taught =
        test::TensorSource(seed).normal(sum_dtype(x.dtype()), {sizes.rows, sizes.padded}, 0, 2);
    inputs.teacher.hidden = taught;
    inputs.teacher.temperature = temperature;
    inputs.teacher.weight = weight;
  }

  Sizes sizes;
  Tensor x;
  Tensor table;
  LossInputs inputs;
  Tensor taught;
};

// (1 - w) cross entropy + w T^2 sum q (log q - log p), by the definition.
double mixed(const Case& one, std::int64_t row, double cross_entropy,
             const std::vector<double>& logits) {
  const auto [hidden, unused, temperature, weight] = one.inputs.teacher;
  const double* taught = one.taught.data<double>() + row * one.sizes.padded;
  double model = 0;
  double teacher = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    model += std::exp(logits[i] / temperature);
    teacher += std::exp(taught[i] / temperature);
  }
  double divergence = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double q = std::exp(taught[i] / temperature) / teacher;
    divergence += q * (std::log(q) - std::log(std::exp(logits[i] / temperature) / model));
  }
  return (1 - weight) * cross_entropy + weight * temperature * temperature * divergence;
}

// The definition: loss of each row, and the masked sum.
double plain_loss(const Case& one, std::vector<double>* per_token = nullptr) {
  double sum = 0;
  for (std::int64_t row = 0; row < one.sizes.rows; ++row) {
    const std::int32_t label = one.inputs.labels.data<std::int32_t>()[row];
    double exponentials = 0;
    double target = 0;
    std::vector<double> logits;
    for (std::int64_t column = 0; column < one.sizes.vocabulary; ++column) {
      double logit = 0;
      for (std::int64_t i = 0; i < one.sizes.hidden; ++i) {
        logit += one.x.data<double>()[row * one.sizes.hidden + i] *
                 one.table.data<double>()[column * one.sizes.hidden + i];
      }
      exponentials += std::exp(logit);
      logits.push_back(logit);
      if (column == label) target = logit;
    }
    double loss = label < 0 ? 0 : std::log(exponentials) - target;
    if (label >= 0 && one.taught.defined()) loss = mixed(one, row, loss, logits);
    if (per_token != nullptr) per_token->push_back(loss);
    sum += loss * one.inputs.mask.data<float>()[row];
  }
  return sum;
}

// scale * d plain_loss / d operand, by central differences.
Tensor differences(const Case& one, const Tensor& operand) {
  const Tensor gradient = host_tensor(DType::kF64, operand.shape());
  const double scale = *one.inputs.scale.data<double>();
  for (std::int64_t i = 0; i < operand.elements(); ++i) {
    double& element = operand.data<double>()[i];
    const double kept = element;
    element = kept + test::kDifferenceStep;
    const double above = plain_loss(one);
    element = kept - test::kDifferenceStep;
    const double below = plain_loss(one);
    element = kept;
    gradient.data<double>()[i] = scale * (above - below) / (2 * test::kDifferenceStep);
  }
  return gradient;
}

// Resident weights that count contributions.
class CountingWeights final : public ResidentWeights {
 public:
  using ResidentWeights::ResidentWeights;
  void contribute(Parameter& parameter, Stream& stream) override {
    ++contributions;
    ResidentWeights::contribute(parameter, stream);
  }
  int contributions = 0;
};

struct Result {
  Tensor sum;
  Tensor per_token;
  Tensor dx;       // this rank's rows
  Tensor dweight;  // this rank's part of the table
  int contributions = 0;
  std::int64_t workspace_bytes = 0;  // high-water mark
};

struct How {
  std::optional<std::int64_t> slice_rows;
  bool sequence_parallel = false;
  bool training = true;
  bool frozen = false;         // the table
  bool wants_gradient = true;  // x
  Tape::Mode mode = Tape::Mode::kWhole;
};

// The op on one rank's part of `one`. What it returns is on the host, outside the arena.
Result run(const Case& one, Kernels& kernels, Communicator& group, const How& how) {
  HostDevice device;
  const std::unique_ptr<Stream> stream = device.make_stream();
  Arena arena(device, 1 << 12);
  Result result;
  {
    const std::int64_t share = one.sizes.padded / group.size();
    const std::int64_t begin = group.rank() * share;
    Parameter table;
    table.name = "table";
    table.dtype = one.table.dtype();
    table.shape = {share, one.sizes.hidden};
    table.contributions = 1;
    table.trainable = !how.frozen;
    table.value = one.table.slice(0, begin, share);
    const DType sums = table.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    if (!how.frozen) {  // something is there already
      table.gradient = test::tensor_of(sums, table.shape, std::vector<double>(table.elements(), 1));
    }
    LossInputs inputs = one.inputs;
    inputs.vocabulary_begin = begin;
    inputs.valid = std::clamp<std::int64_t>(one.sizes.vocabulary - begin, 0, share);
    if (one.taught.defined()) {
      inputs.teacher.logits = [&](const Tensor& rows) {
        const Tensor own = host_tensor(rows.dtype(), {rows.dim(0), share});
        kernels.run(Copy{.dst = own, .src = rows.slice(1, begin, share)}, *stream);
        return own;
      };
    }
    Tensor x = one.x;
    if (how.sequence_parallel) {
      const std::int64_t rows = one.sizes.rows / group.size();
      x = x.slice(0, group.rank() * rows, rows);
    }
    CountingWeights weights(kernels, arena);
    Tape tape;
    Context context{.kernels = kernels,
                    .stream = *stream,
                    .device = device,
                    .arena = arena,
                    .weights = weights,
                    .tape = how.training ? &tape : nullptr};
    const Value value = how.training && how.wants_gradient ? tape.leaf(x) : Value{x};
    const LossOutput output =
        head_loss(context, value, table, inputs, {group, how.sequence_parallel, how.slice_rows});
    const auto copied = [](const Tensor& tensor) {
      return test::tensor_of(tensor.dtype(), tensor.shape(), test::values(tensor));
    };
    result.sum = copied(output.sum.tensor);
    result.per_token = copied(output.per_token);
    result.contributions = weights.contributions;
    result.workspace_bytes =
        arena.counts().peak_bytes[static_cast<std::size_t>(MemoryKind::kWorkspace)];
    if (how.training) {
      tape.seed(output.sum, output.sum.tensor);
      tape.backward(context, how.mode);
      EXPECT_EQ(tape.queued_weight_jobs(), 0U);
      if (how.wants_gradient) result.dx = copied(tape.take_gradient(value, context));
    }
    if (!how.frozen) result.dweight = copied(table.gradient);
    stream->synchronize();
  }
  return result;
}

class Alone {
 public:
  Alone()
      : world_(make_single_world(device_)), group_(world_->make_group(std::vector{0}, "tensor")) {}
  Communicator& group() { return *group_; }

 private:
  HostDevice device_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Communicator> group_;
};

constexpr Sizes kSmall{.rows = 24, .hidden = 5, .vocabulary = 21, .padded = 32};
constexpr Tolerance kExact{.absolute = 1e-12, .relative = 1e-12};

struct Expected {
  explicit Expected(const Case& one) {
    std::vector<double> tokens;
    sum = plain_loss(one, &tokens);
    per_token = test::tensor_of(DType::kF64, {one.sizes.rows}, tokens);
    dx = differences(one, one.x);
    dtable = differences(one, one.table);
    for (std::int64_t i = 0; i < dtable.elements(); ++i) dtable.data<double>()[i] += 1;
  }
  // `part`, this rank's; under sequence parallelism dx is a part too.
  void expect(const Result& got, int rank, const std::string& what) const {
    SCOPED_TRACE(what);
    EXPECT_NEAR(*got.sum.data<double>(), sum, 1e-12 * std::fabs(sum));
    EXPECT_TRUE(close(got.per_token, per_token, kExact));
    const std::int64_t rows = got.dx.dim(0);
    const std::int64_t first = rows < dx.dim(0) ? rank * rows : 0;
    EXPECT_TRUE(close(got.dx, dx.slice(0, first, rows), test::difference_tolerance()));
    const std::int64_t share = got.dweight.dim(0);
    EXPECT_TRUE(
        close(got.dweight, dtable.slice(0, rank * share, share), test::difference_tolerance()));
    EXPECT_EQ(got.contributions, 1);
  }

  double sum = 0;
  Tensor per_token;
  Tensor dx;
  Tensor dtable;
};

TEST(HeadLoss, IsTheWholeCrossEntropyAndItsGradients) {
  const Case one(kSmall, DType::kF64);
  const Expected expected(one);
  const auto kernels = make_reference_kernels();
  Alone alone;
  for (const std::int64_t slice : {1, 7, 24, 1024}) {
    expected.expect(run(one, *kernels, alone.group(), {.slice_rows = slice}), 0,
                    "slices of " + std::to_string(slice));
  }
}

// Four ranks of a padded vocabulary of 32 with 21 ids: the last has nothing but padding.
TEST(HeadLoss, IsTheSameOverASplitVocabulary) {
  const Case one(kSmall, DType::kF64);
  const Expected expected(one);
  for (const int ranks : {2, 4}) {
    test::run_ranks(ranks, [&](World& world) {
      std::vector<int> all;
      for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
      const auto group = world.make_group(all, "tensor");
      const auto kernels = make_reference_kernels();
      for (const bool sequence_parallel : {false, true}) {
        for (const std::int64_t slice : {5, 24}) {
          expected.expect(run(one, *kernels, *group,
                              {.slice_rows = slice, .sequence_parallel = sequence_parallel}),
                          world.rank(),
                          fmt::format("rank {} of {}, slices of {}, sequence parallelism {}",
                                      world.rank(), ranks, slice, sequence_parallel));
        }
      }
    });
  }
}

TEST(HeadLoss, MayBeMixedWithTheDivergenceFromATeacher) {
  const auto kernels = make_reference_kernels();
  for (const auto& [temperature, weight] : {std::pair{1.0, 1.0}, {2.5, 0.3}, {0.7, 0.5}}) {
    Case one(kSmall, DType::kF64);
    one.add_teacher(temperature, weight);
    const Expected expected(one);
    Alone alone;
    for (const std::int64_t slice : {7, 1024}) {
      expected.expect(run(one, *kernels, alone.group(), {.slice_rows = slice}), 0,
                      fmt::format("T {}, weight {}, slices of {}", temperature, weight, slice));
    }
    test::run_ranks(4, [&](World& world) {
      const auto group = world.make_group(std::vector{0, 1, 2, 3}, "tensor");
      const auto own = make_reference_kernels();
      expected.expect(run(one, *own, *group, {.slice_rows = 5, .sequence_parallel = true}),
                      world.rank(), fmt::format("rank {} of 4", world.rank()));
    });
  }
}

TEST(HeadLoss, HasNoGradientWhereItsDistributionIsTheTeachers) {
  Case one(kSmall, DType::kF64);
  one.add_teacher(2, 1);
  for (std::int64_t row = 0; row < kSmall.rows; ++row) {
    for (std::int64_t column = 0; column < kSmall.padded; ++column) {
      double logit = 0.25;  // a constant changes no distribution
      for (std::int64_t i = 0; i < kSmall.hidden; ++i)
        logit += test::value_at(one.x, row * kSmall.hidden + i) *
                 test::value_at(one.table, column * kSmall.hidden + i);
      one.taught.data<double>()[row * kSmall.padded + column] = logit;
    }
  }
  const auto kernels = make_reference_kernels();
  Alone alone;
  const Result result = run(one, *kernels, alone.group(), {});
  EXPECT_NEAR(*result.sum.data<double>(), 0, 1e-12);
  for (std::int64_t i = 0; i < result.dx.elements(); ++i)
    EXPECT_NEAR(result.dx.data<double>()[i], 0, 1e-12);
}

TEST(HeadLoss, HasTheSameBitsInSlicesAndInEvaluation) {
  constexpr Sizes kSizes{.rows = 301, .hidden = 48, .vocabulary = 333, .padded = 384};
  ThreadPool threads(2);
  const auto kernels = make_cpu_kernels(threads, test::chosen_isa());
  Alone alone;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(name(dtype));
    const Case one(kSizes, dtype);
    const Result whole = run(one, *kernels, alone.group(), {.slice_rows = kSizes.rows});
    const Result evaluated =
        run(one, *kernels, alone.group(), {.slice_rows = 64, .training = false});
    EXPECT_TRUE(bit_equal(evaluated.sum, whole.sum));
    EXPECT_TRUE(bit_equal(evaluated.per_token, whole.per_token));
    EXPECT_EQ(evaluated.contributions, 0);
    for (const std::int64_t slice : {1, 64, 100}) {
      const Result sliced = run(one, *kernels, alone.group(), {.slice_rows = slice});
      EXPECT_TRUE(bit_equal(sliced.sum, whole.sum));
      EXPECT_TRUE(bit_equal(sliced.per_token, whole.per_token));
      EXPECT_TRUE(bit_equal(sliced.dx, whole.dx));
      EXPECT_TRUE(close(sliced.dweight, whole.dweight, test::tolerance(DType::kF32, kSizes.rows)));
      EXPECT_LT(sliced.workspace_bytes, whole.workspace_bytes / 2);
    }
  }
}

TEST(HeadLoss, LeavesAloneWhatHasNoGradient) {
  const Case one(kSmall, DType::kF64);
  const Expected expected(one);
  const auto kernels = make_reference_kernels();
  Alone alone;
  const Result frozen = run(one, *kernels, alone.group(), {.slice_rows = 7, .frozen = true});
  EXPECT_TRUE(close(frozen.dx, expected.dx, test::difference_tolerance()));
  EXPECT_EQ(frozen.contributions, 0);
  const Result first =
      run(one, *kernels, alone.group(), {.slice_rows = 7, .wants_gradient = false});
  EXPECT_TRUE(close(first.dweight, expected.dtable, test::difference_tolerance()));
  EXPECT_EQ(first.contributions, 1);
  const Result neither =
      run(one, *kernels, alone.group(), {.slice_rows = 7, .frozen = true, .wants_gradient = false});
  EXPECT_NEAR(*neither.sum.data<double>(), expected.sum, 1e-12 * expected.sum);
}

// The weight gradient is complete after forward; a split backward has nothing left to do.
TEST(HeadLoss, QueuesNoWeightJob) {
  const Case one(kSmall, DType::kF64);
  const auto kernels = make_reference_kernels();
  Alone alone;
  Expected(one).expect(run(one, *kernels, alone.group(), {.mode = Tape::Mode::kInputOnly}), 0,
                       "split");
}

TEST(HeadLoss, TakesAnEmptyBatch) {
  const Case none({.rows = 0, .hidden = 5, .vocabulary = 21, .padded = 32}, DType::kF64);
  const auto kernels = make_reference_kernels();
  Alone alone;
  EXPECT_EQ(*run(none, *kernels, alone.group(), {}).sum.data<double>(), 0);
}

}  // namespace
}  // namespace piton
