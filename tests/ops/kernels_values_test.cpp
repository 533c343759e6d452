// Kernel calls against independent numbers: computed by hand, published, or from a second
// implementation of the definition. The reference back end is the oracle of the others, so it needs
// an oracle too.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

#include "base/threads.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/compare.h"

namespace piton::test {
namespace {

// Runs at once, in fp32, on the reference and on the processor's back end.
class KernelValues : public ::testing::TestWithParam<bool> {
 protected:
  KernelValues()
      : threads_(1),
        kernels_(GetParam() ? make_cpu_kernels(threads_) : make_reference_kernels()),
        stream_(device_.make_stream()) {}

  void run(const KernelCall& call) { kernels_->run(call, *stream_); }

  static Tensor fp32(const Shape& shape, std::vector<double> contents) {
    return tensor_of(DType::kF32, shape, contents);
  }
  static Tensor int32(const Shape& shape, std::vector<double> contents) {
    return tensor_of(DType::kI32, shape, contents);
  }
  static void expect_values(const Tensor& tensor, std::vector<double> wanted,
                            std::int64_t terms = 4) {
    EXPECT_TRUE(close(tensor, tensor_of(DType::kF64, tensor.shape(), wanted),
                      tolerance(tensor.dtype(), terms)));
  }

  ThreadPool threads_;
  HostDevice device_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(BackEnds, KernelValues, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "cpu" : "reference"; });

TEST_P(KernelValues, OfALinearAreRowsTimesWeightRowsPlusBias) {
  const Tensor y = host_tensor(DType::kF32, {2, 2});
  const WeightView weight{
      .tensor = fp32({2, 3}, {1, 2, 3, -1, 0, 4}), .out = 2, .in = 3, .dtype = DType::kF32};
  run(LinearForward{.y = y,
                    .x = fp32({2, 3}, {1, 0, 2, 3, 1, -1}),
                    .weight = weight,
                    .bias = fp32({2}, {10, 20})});
  expect_values(y, {1 + 6 + 10, -1 + 8 + 20, 3 + 2 - 3 + 10, -3 - 4 + 20});
}

TEST_P(KernelValues, OfWeightCodesAreTheirDistancesFromZeroTimesTheirScales) {
  const auto bytes = [](const Shape& shape, std::vector<double> contents) {
    return tensor_of(DType::kU8, shape, contents);
  };
  const Tensor rows = host_tensor(DType::kF32, {2, 3});
  // 255 is -1, 128 is -128; the second group of a row has one column.
  run(ExpandWeight{.rows = rows,
                   .codes = {.kind = CodeKind::kInt8,
                             .group = 2,
                             .codes = bytes({2, 3}, {255, 3, 128, 127, 0, 1}),
                             .scales = fp32({2, 2}, {0.5, 2, 1, 10}),
                             .zeros = fp32({2, 2}, {1, 0, 0, -1})}});
  expect_values(rows, {-1, 1, -256, 127, 0, 20});
  // 0x2F: column 0 is 15, column 1 is 2. Without zeros the middle, 8, is 0.
  run(ExpandWeight{.rows = rows,
                   .codes = {.kind = CodeKind::kInt4,
                             .group = 32,
                             .codes = bytes({2, 2}, {0x2F, 0x08, 0x80, 0xF7}),
                             .scales = fp32({2, 1}, {1, 3})}});
  expect_values(rows, {7, -6, 0, -24, 0, -3});
  run(ExpandWeight{.rows = rows,
                   .codes = {.kind = CodeKind::kNf4,
                             .group = 2,
                             .codes = bytes({2, 2}, {0xF0, 0x07, 0x7F, 0x0F}),
                             .scales = fp32({2, 2}, {2, 1, 4, 0.5})}});
  expect_values(rows, {-2, 2, 0, 4, 0, 0.5});
  // With minima a code is not centered.
  run(ExpandWeight{.rows = rows,
                   .codes = {.kind = CodeKind::kInt4,
                             .group = 2,
                             .codes = bytes({2, 2}, {0x2F, 0x08, 0x80, 0xF7}),
                             .scales = fp32({2, 2}, {1, 3, 0, 0.5}),
                             .minima = fp32({2, 2}, {0.5, 1, 7, -2})}});
  expect_values(rows, {14.5, 1.5, 23, -7, -7, 5.5});
}

TEST_P(KernelValues, OfNormsFollowTheirDefinitions) {
  const Tensor x = fp32({1, 4}, {1, 2, 3, 6});
  const Tensor y = host_tensor(DType::kF32, {1, 4});
  const Tensor mean = host_tensor(DType::kF32, {1});
  const Tensor rstd = host_tensor(DType::kF32, {1});
  const Tensor gain = fp32({4}, {1, 2, 1, 1});
  // Mean 3, biased variance (4 + 1 + 0 + 9) / 4 = 3.5; with eps 0.5 the root is 2.
  run(NormForward{.y = y,
                  .mean = mean,
                  .rstd = rstd,
                  .x = x,
                  .gain = gain,
                  .bias = fp32({4}, {0, 0, 0.5, 0}),
                  .eps = 0.5});
  expect_values(mean, {3});
  expect_values(rstd, {0.5});
  expect_values(y, {-1, -1, 0.5, 1.5});
  // Mean square (1 + 4 + 9 + 36) / 4 = 12.5; with eps 3.5 the root is 4.
  run(NormForward{.y = y, .rstd = rstd, .x = x, .gain = gain, .eps = 3.5});
  expect_values(rstd, {0.25});
  expect_values(y, {0.25, 1, 0.75, 1.5});
}

TEST_P(KernelValues, OfRotaryTurnPairsByAQuarter) {
  // Position 1 turns by 90 degrees: (a, b) becomes (-b, a). Position 0 does not turn.
  const Tensor cosine = fp32({2, 2}, {1, 1, 0, 0});
  const Tensor sine = fp32({2, 2}, {0, 0, 1, 1});
  const Tensor halves = fp32({2, 1, 4}, {1, 2, 3, 4, 1, 2, 3, 4});
  const Tensor pairs = fp32({2, 1, 4}, {1, 2, 3, 4, 1, 2, 3, 4});
  const Tensor positions = int32({2}, {0, 1});
  run(Rotary{.x = halves, .positions = positions, .cosine = cosine, .sine = sine});
  run(Rotary{.x = pairs,
             .positions = positions,
             .cosine = cosine,
             .sine = sine,
             .convention = Rotary::Convention::kPairs});
  expect_values(halves, {1, 2, 3, 4, -3, -4, 1, 2});
  expect_values(pairs, {1, 2, 3, 4, -2, 1, -4, 3});
}

TEST_P(KernelValues, OfAttentionWithEqualScoresAreMeansOfWhatIsVisible) {
  const Tensor q = host_tensor(DType::kF32, {1, 4, 2, 2});  // zeros: every score is 0
  const Tensor k = fp32({1, 4, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor v = fp32({1, 4, 1, 2}, {1, 10, 2, 20, 6, 60, 3, 30});
  const Tensor out = host_tensor(DType::kF32, q.shape());
  const Tensor lse = host_tensor(DType::kF32, {1, 2, 4});
  AttentionForward call{.out = out, .lse = lse, .q = q, .k = k, .v = v, .scale = 1};
  run(call);
  const double log2 = std::log(2.0), log3 = std::log(3.0), log4 = std::log(4.0);
  expect_values(lse, {0, log2, log3, log4, 0, log2, log3, log4});
  expect_values(out, {1, 10, 1, 10, 1.5, 15, 1.5, 15, 3, 30, 3, 30, 3, 30, 3, 30});
  call.mask.window_before = 0;  // each query sees its own key
  run(call);
  expect_values(out, {1, 10, 1, 10, 2, 20, 2, 20, 6, 60, 6, 60, 3, 30, 3, 30});
  call.mask = {.causal = false};
  call.mask.key_lengths = int32({1}, {0});
  run(call);
  expect_values(out, std::vector<double>(16, 0));
  expect_values(lse, std::vector<double>(8, -HUGE_VAL));
  // Head 0 has slope log 2: each key counts twice as much as the one before it.
  call.mask = {};
  call.mask.slopes = fp32({2}, {log2, 0});
  run(call);
  expect_values(out.select(1, 2), {(1 + 2 * 2 + 4 * 6) / 7.0, (1 + 2 * 2 + 4 * 6) / 0.7, 3, 30});
}

TEST_P(KernelValues, OfActivationsAreTheirFormulasToTenDigits) {
  // The formulas of kernels/activation.h by Python 3.11 (math.erf, math.tanh, math.exp), ten
  // digits.
  const Tensor x = fp32({1, 6}, {-2, -1, 0, 0.5, 1, 3});
  const Tensor y = host_tensor(DType::kF32, {1, 6});
  run(ActivationForward{.y = y, .x = x, .kind = ActivationKind::kGeluErf});
  expect_values(y, {-0.0455002639, -0.1586552539, 0, 0.3457312306, 0.8413447461, 2.9959503059});
  run(ActivationForward{.y = y, .x = x, .kind = ActivationKind::kGeluTanh});
  expect_values(y, {-0.0454023059, -0.1588080094, 0, 0.3457140098, 0.8411919906, 2.9963626079});
  run(ActivationForward{.y = y, .x = x, .kind = ActivationKind::kGeluFast});
  expect_values(y, {-0.0643413769, -0.1542042341, 0, 0.3503884366, 0.8457957659, 2.9819286903});
  run(ActivationForward{
      .y = y, .x = x, .up = fp32({1, 6}, {2, 2, 2, 2, 2, -1}), .kind = ActivationKind::kGeluTanh});
  expect_values(y, {-0.0908046118, -0.3176160188, 0, 0.6914280196, 1.6823839812, -2.9963626079});
  run(ActivationForward{.y = y, .x = x, .kind = ActivationKind::kSquaredRelu});
  expect_values(y, {0, 0, 0, 0.25, 1, 9});
  run(ActivationForward{.y = y, .x = x, .kind = ActivationKind::kSilu});
  expect_values(y, {-0.2384058440, -0.2689414214, 0, 0.3112296656, 0.7310585786, 2.8577223805});
  run(ActivationForward{
      .y = y, .x = x, .up = fp32({1, 6}, {2, 2, 2, 2, 2, -1}), .kind = ActivationKind::kSilu});
  expect_values(y, {-0.4768116880, -0.5378828428, 0, 0.6224593312, 1.4621171573, -2.8577223805});
}

TEST_P(KernelValues, OfDropoutKeepTheRightShareAndScaleIt) {
  const std::int64_t n = 128, h = 64;
  Dropout dropout{.probability = 0.25, .key = site_key(1, "site")};
  dropout.rows = {.consumed_samples = tensor_of(DType::kI64, {1}, std::vector<double>{0}),
                  .sequence = 32};
  const Tensor x = fp32({n, h}, std::vector<double>(n * h, 3));
  const Tensor y = host_tensor(DType::kF32, {n, h});
  run(DropoutAddForward{.y = y, .x = x, .dropout = dropout});
  int kept = 0;
  for (const double value : values(y)) {
    ASSERT_TRUE(value == 0 || value == 4) << value;  // 3 / (1 - 0.25)
    kept += value == 4;
  }
  // 8192 draws: 6144 expected, standard deviation 39; five of them.
  EXPECT_NEAR(kept, 6144, 196);

  // Rows 40 .. 71 alone, told where they stand, draw what they drew in the whole.
  Dropout part = dropout;
  part.rows.first_row = 40;
  const Tensor slice = host_tensor(DType::kF32, {32, h});
  run(DropoutAddForward{.y = slice, .x = x.slice(0, 0, 32), .dropout = part});
  EXPECT_TRUE(bit_equal(slice, y.slice(0, 40, 32)));

  // A rank of two that has the first and the last quarter of each sample.
  Dropout ends = dropout;
  ends.rows.sequence = 16;
  ends.rows.second_shift = 16;
  run(DropoutAddForward{.y = slice, .x = x.slice(0, 0, 32), .dropout = ends});
  for (const std::int64_t stretch : {0, 1, 2, 3}) {
    EXPECT_TRUE(bit_equal(slice.slice(0, stretch * 8, 8),
                          y.slice(0, stretch / 2 * 32 + stretch % 2 * 24, 8)));
  }

  // The same for columns, from any one on.
  for (const std::int64_t first : {1, 2, 3, 4, 22}) {
    Dropout right = dropout;
    right.rows.first_column = first;
    const Tensor columns = host_tensor(DType::kF32, {n, h - first});
    const Tensor threes = fp32({n, h - first}, std::vector<double>(n * (h - first), 3));
    run(DropoutAddForward{.y = columns, .x = threes, .dropout = right});
    EXPECT_TRUE(bit_equal(columns, y.slice(1, first, h - first))) << first;
  }

  // Sample 2 of this batch is the first sample of a batch that follows two others.
  Dropout later = dropout;
  later.rows.consumed_samples = tensor_of(DType::kI64, {1}, std::vector<double>{2});
  run(DropoutAddForward{.y = slice, .x = x.slice(0, 0, 32), .dropout = later});
  EXPECT_TRUE(bit_equal(slice, y.slice(0, 64, 32)));
}

TEST_P(KernelValues, OfAttentionDropoutDependOnTheGlobalHeadAndPosition) {
  const std::int64_t s = 12, a = 4;
  const Tensor q = host_tensor(DType::kF32, {1, s, a, 4});
  const Tensor k = host_tensor(DType::kF32, {1, s, a, 4});
  const Tensor v = fp32({1, s, a, 4}, std::vector<double>(static_cast<std::size_t>(s * a * 4), 1));
  const Tensor whole = host_tensor(DType::kF32, q.shape());
  Dropout dropout{.probability = 0.5, .key = site_key(1, "site")};
  dropout.rows.consumed_samples = tensor_of(DType::kI64, {1}, std::vector<double>{0});
  AttentionForward call{.out = whole,
                        .lse = host_tensor(DType::kF32, {1, a, s}),
                        .q = q,
                        .k = k,
                        .v = v,
                        .scale = 1,
                        .dropout = dropout};
  run(call);
  // Heads 2 and 3 on another rank, and queries 7 .. 11 behind a cache.
  AttentionForward part = call;
  part.q = q.slice(2, 2, 2).slice(1, 7, 5);
  part.k = k.slice(2, 2, 2);
  part.v = v.slice(2, 2, 2);
  part.out = host_tensor(DType::kF32, {1, 5, 2, 4});
  part.lse = host_tensor(DType::kF32, {1, 2, 5});
  part.mask.query_begin = 7;
  part.head_begin = 2;
  run(part);
  EXPECT_TRUE(close(part.out, whole.slice(2, 2, 2).slice(1, 7, 5), tolerance(DType::kF32, s)));
}

TEST_P(KernelValues, OfTheLossAreMinusLogSoftmaxWhateverTheSplit) {
  const std::int64_t n = 3, vocabulary = 7;
  TensorSource source(12);
  const Tensor logits = source.normal(DType::kF32, {n, vocabulary}, 0, 3);
  const std::vector<double> labels{6, 2, -1};
  const std::vector<double> mask{1, 0.5, 1};
  std::vector<double> expected;
  double expected_sum = 100;  // what was there
  for (std::int64_t row = 0; row < n; ++row) {
    double sum = 0;
    for (const double x : values(logits.select(0, row))) sum += std::exp(x);
    const double label = labels[static_cast<std::size_t>(row)];
    const double loss = label < 0 ? 0
                                  : std::log(sum) - value_at(logits.select(0, row),
                                                             static_cast<std::int64_t>(label));
    expected.push_back(loss);
    expected_sum += mask[static_cast<std::size_t>(row)] * loss;
  }
  for (const std::int64_t first : {7, 4, 0}) {  // columns of the first of two ranks
    const std::int64_t columns[2] = {first, vocabulary - first};
    const Tensor statistics = host_tensor(DType::kF32, {2, n, 3});
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      // One column of padding each, with a value that must not be seen.
      const Tensor part =
          fp32({n, columns[rank] + 1},
               std::vector<double>(static_cast<std::size_t>(n * (columns[rank] + 1)), 50));
      const std::int64_t begin = rank * first;
      assign(part.slice(1, 0, columns[rank]), values(logits.slice(1, begin, columns[rank])));
      run(LossStatistics{.statistics = statistics.select(0, rank),
                         .logits = part,
                         .labels = int32({n}, labels),
                         .vocabulary_begin = begin,
                         .valid = columns[rank]});
    }
    const Tensor loss = host_tensor(DType::kF32, {n});
    const Tensor sum = tensor_of(DType::kF64, {1}, std::vector<double>{100});
    run(LossCombine{.loss = loss,
                    .lse = host_tensor(DType::kF32, {n}),
                    .sum = sum,
                    .statistics = statistics,
                    .labels = int32({n}, labels),
                    .mask = fp32({n}, mask)});
    expect_values(loss, expected, vocabulary);
    EXPECT_NEAR(value_at(sum, 0), expected_sum, n * tolerance(DType::kF32, vocabulary).absolute);
  }
}

TEST_P(KernelValues, OfTheSquaredLossAreDifferencesAndTheirSquares) {
  const Tensor loss = fp32({3}, {1.5, -2, 4});
  const Tensor weights = fp32({3}, {9, 9, 9});
  const Tensor sum = tensor_of(DType::kF64, {1}, std::vector<double>{100});
  run(SquaredLoss{.loss = loss,
                  .weights = weights,
                  .sum = sum,
                  .targets = fp32({3}, {1, 1, 4}),
                  .mask = fp32({3}, {1, 0.5, 3})});
  expect_values(loss, {0.25, 9, 0});
  expect_values(weights, {1, -3, 0});
  EXPECT_EQ(value_at(sum, 0), 104.75);
}

// Numbers of PyTorch's binary_cross_entropy_with_logits for these logits and sets, the mean of each
// row. Far logits neither overflow nor lose their loss.
TEST_P(KernelValues, OfTheBinaryLossAreThoseOfPyTorch) {
  const Tensor logits = fp32({3, 4}, {0.5, -1.5, 2, 99, 200, -200, 0, 99, 3, 3, 3, 99});
  const Tensor labels = int32({3}, {1, 0, -1});
  const Tensor sets = tensor_of(DType::kU8, {2, 3}, std::vector<double>{0, 1, 1, 1, 0, 1});
  const Tensor statistics = host_tensor(DType::kF32, {1, 3, 3});
  run(BinaryLossStatistics{.statistics = statistics.select(0, 0),
                           .logits = logits,
                           .labels = labels,
                           .sets = sets,
                           .valid = 3});
  const Tensor loss = host_tensor(DType::kF32, {3});
  const Tensor sum = tensor_of(DType::kF64, {1}, std::vector<double>{100});
  run(LossCombine{.loss = loss,
                  .lse = host_tensor(DType::kF32, {3}),
                  .sum = sum,
                  .statistics = statistics,
                  .labels = labels,
                  .mask = fp32({3}, {1, 0.5, 3})});
  expect_values(loss, {0.2674727577352772, 133.56438239352, 0}, 3);
  const Tensor dlogits = fp32({3, 4}, std::vector<double>(12, 9));
  run(BinaryLossBackward{.dlogits = dlogits,
                         .logits = logits,
                         .labels = labels,
                         .sets = sets,
                         .mask = fp32({3}, {1, 0.5, 3}),
                         .scale = fp32({1}, {3}),
                         .valid = 3});
  expect_values(
      dlogits, {-0.3775406688, 0.1824255238, -0.1192029220, 0, 0.5, -0.5, -0.25, 0, 0, 0, 0, 0}, 1);
}

TEST_P(KernelValues, OfEmbeddingsAreRowsOfTheTablePart) {
  const Tensor table = fp32({2, 2}, {1, 2, 3, 4});  // ids 5 and 6
  const Tensor ids = int32({4}, {6, 4, 5, 7});
  const Tensor y = fp32({4, 2}, {9, 9, 9, 9, 9, 9, 9, 9});
  run(EmbeddingForward{.y = y, .table = table, .ids = ids, .vocabulary_begin = 5});
  expect_values(y, {3, 4, 0, 0, 1, 2, 0, 0});
  run(EmbeddingForward{.y = y, .table = table, .ids = ids, .vocabulary_begin = 5, .add = true});
  expect_values(y, {6, 8, 0, 0, 2, 4, 0, 0});
  const Tensor dtable = fp32({2, 2}, {10, 20, 30, 40});
  run(EmbeddingBackward{.dtable = dtable,
                        .dy = fp32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
                        .ids = int32({4}, {6, 4, 6, 7}),
                        .vocabulary_begin = 5});
  expect_values(dtable, {10, 20, 36, 48});
}

// Rows 1 and 2 of samples of two rows: the second row of sample 9 and the first of sample 10.
TEST_P(KernelValues, OfNoiseAreTheWordsOfGlobalPlacesWithinTheBoundOfTheirRow) {
  const PhiloxKey key = site_key(7, "embedding.noise");
  const Tensor y = fp32({2, 5}, {1, 1, 1, 1, 1, 2, 2, 2, 2, 2});
  run(AddNoise{.y = y,
               .bounds = fp32({2}, {0.5, 0.25}),
               .key = key,
               .rows = {.consumed_samples = tensor_of(DType::kI64, {1}, std::vector<double>{8}),
                        .sample_index = 1,
                        .sequence = 2,
                        .first_row = 1}});
  std::vector<double> expected;
  for (const std::uint32_t row : {0U, 1U}) {
    for (std::uint32_t column = 0; column < 5; ++column) {
      const std::uint32_t word = philox(key, mask_counter(9 + row, 0, 1 - row, column))[column % 4];
      const double share = static_cast<std::int32_t>(word) / 2147483648.0;
      expected.push_back(row + 1 + (row == 0 ? 0.5 : 0.25) * share);
    }
  }
  expect_values(y, expected);
}

TEST_P(KernelValues, OfCacheAppendLandInTheirSlots) {
  std::vector<double> wanted(2 * kCachePage, 0);
  const Tensor keys = fp32({2, kCachePage, 1, 1}, wanted);
  const Tensor values = fp32({2, kCachePage, 1, 1}, wanted);
  run(CacheAppend{.keys = keys,
                  .values = values,
                  .k = fp32({2, 1, 1}, {7, 8}),
                  .v = fp32({2, 1, 1}, {70, 80}),
                  .slots = int32({2}, {kCachePage + 1, 2})});
  wanted[kCachePage + 1] = 7;
  wanted[2] = 8;
  expect_values(keys, wanted);
  wanted[kCachePage + 1] = 70;
  wanted[2] = 80;
  expect_values(values, wanted);
}

// By a quarter of a turn at position 1 and half of one at 2, of the second and third channel. k
// itself is left alone.
TEST_P(KernelValues, OfCacheAppendRotateQueriesAndKeys) {
  const Tensor keys = fp32({1, kCachePage, 1, 3}, std::vector<double>(3 * kCachePage, 0));
  const Tensor values = fp32({1, kCachePage, 1, 3}, std::vector<double>(3 * kCachePage, 0));
  const Tensor q = fp32({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const Tensor k = fp32({2, 1, 3}, {1, 20, 30, 2, 50, 60});
  run(CacheAppend{.keys = keys,
                  .values = values,
                  .k = k,
                  .v = fp32({2, 1, 3}, {1, 2, 3, 4, 5, 6}),
                  .slots = int32({2}, {1, 0}),
                  .q = q,
                  .positions = int32({2}, {1, 2}),
                  .cosine = fp32({3, 1}, {1, 0, -1}),
                  .sine = fp32({3, 1}, {0, 1, 0}),
                  .first_channel = 1});
  expect_values(q, {1, -3, 2, 4, -6, 5, 7, -8, -9, 10, -11, -12});
  expect_values(keys.select(0, 0).slice(0, 0, 2), {2, -50, -60, 1, -30, 20});
  expect_values(values.select(0, 0).slice(0, 0, 2), {4, 5, 6, 1, 2, 3});
  expect_values(k, {1, 20, 30, 2, 50, 60});
}

// The largest number of a head's row is 127; a row of zeros has scale 0.
TEST_P(KernelValues, OfCacheAppendAreCodesWithAScaleForEachHead) {
  const auto cache = [] {
    return tensor_of(DType::kU8, {1, kCachePage, 2, 4}, std::vector<double>(8 * kCachePage, 9));
  };
  const auto scales = [] {
    return fp32({1, 2, kCachePage}, std::vector<double>(2 * kCachePage, 5));
  };
  const CacheAppend call{.keys = cache(),
                         .values = cache(),
                         .k = fp32({1, 2, 4}, {-254, 5, 0, 127, 0, 0, 0, 0}),
                         .v = fp32({1, 2, 4}, {0, 0, 0, 0, 127, 1, 2, 3}),
                         .slots = int32({1}, {3}),
                         .key_scales = scales().swap_dims(1, 2),
                         .value_scales = scales().swap_dims(1, 2)};
  run(call);
  std::vector<double> wanted(8 * kCachePage, 9);
  const std::vector<double> codes{256 - 127, 2, 0, 64, 0, 0, 0, 0};  // 2.5 and 63.5 are ties
  std::copy(codes.begin(), codes.end(), wanted.begin() + 3 * 8);
  EXPECT_EQ(values(call.keys), wanted);
  const Tensor key_scales = call.key_scales.swap_dims(1, 2);
  EXPECT_EQ(values(key_scales)[3], 2);
  EXPECT_EQ(values(key_scales)[kCachePage + 3], 0);
  EXPECT_EQ(values(key_scales)[4], 5);
  const std::vector<double> of_values{0, 0, 0, 0, 127, 1, 2, 3};
  std::copy(of_values.begin(), of_values.end(), wanted.begin() + 3 * 8);
  EXPECT_EQ(values(call.values), wanted);
  EXPECT_EQ(values(call.value_scales.swap_dims(1, 2))[kCachePage + 3], 1);
}

// Gates 3 and -1, and what they multiply: 5 and 7.
TEST_P(KernelValues, OfAGatedLinearAreTheActivationTimesTheOtherHalf) {
  const Tensor y = host_tensor(DType::kF32, {1, 2});
  run(GatedLinear{.y = y,
                  .x = fp32({1, 2}, {1, 2}),
                  .weight = {.tensor = fp32({4, 2}, {1, 1, 1, -1, 1, 2, 3, 1}),
                             .out = 4,
                             .in = 2,
                             .dtype = DType::kF32},
                  .bias = fp32({4}, {0, 0, 0, 2}),
                  .kind = ActivationKind::kRelu});
  expect_values(y, {15, 0});
}

TEST_P(KernelValues, OfLargestLogitsAreTheLowestIdsOnTies) {
  const Tensor ids = int32({3}, {0, 0, 0});
  run(LargestLogits{.ids = ids,
                    .logits = fp32({3, 5}, {1, 7, 7, 2, 9, -3, -5, -1, -1, 8, 0, 0, 0, 0, 1}),
                    .vocabulary_begin = 10,
                    .valid = 4});
  EXPECT_EQ(values(ids), (std::vector<double>{11, 12, 10}));
  run(LargestLogits{.ids = ids, .logits = fp32({3, 1}, {1, 2, 3}), .vocabulary_begin = 20});
  EXPECT_EQ(values(ids), (std::vector<double>{20, 20, 20}));
}

// Both samples have key 0 in page 1; of the second one a row sees two keys of equal score.
TEST_P(KernelValues, OfCachedAttentionComeFromThePagesOfEachSample) {
  std::vector<double> keys(3 * kCachePage, 0);
  std::vector<double> values(3 * kCachePage, -100);
  values[kCachePage] = 10;
  values[kCachePage + 1] = 30;
  const Tensor out = fp32({2, 1, 1}, {0, 0});
  run(CachedAttention{.out = out,
                      .q = fp32({2, 1, 1}, {1, 1}),
                      .keys = fp32({3, kCachePage, 1, 1}, keys),
                      .values = fp32({3, kCachePage, 1, 1}, values),
                      .begins = int32({3}, {0, 1, 2}),
                      .lengths = int32({2}, {1, 2}),
                      .table = int32({2, 1}, {1, 1}),
                      .scale = 1});
  expect_values(out, {10, 20});
}

TEST_P(KernelValues, OfCopiesAndSumsAreRoundedToNearestEvenOnce) {
  // bf16 has 8 bits: 257 is between 256 and 258, 259 between 258 and 260, both ties.
  const Tensor wide = fp32({5}, {257, 259, 257.5, -1e39, 3});
  const Tensor narrow = host_tensor(DType::kBF16, {5});
  run(Copy{.dst = narrow, .src = wide});
  EXPECT_EQ(values(narrow), (std::vector<double>{256, 260, 258, -HUGE_VAL, 3}));
  const Tensor half = host_tensor(DType::kF16, {4});  // 11 bits; the largest is 65504
  run(Copy{.dst = half, .src = fp32({4}, {2049, 2051, 65519, 65520})});
  EXPECT_EQ(values(half), (std::vector<double>{2048, 2052, 65504, HUGE_VAL}));
  const Tensor sum = host_tensor(DType::kBF16, {2});
  run(Add{.y = sum,
          .a = tensor_of(DType::kBF16, {2}, std::vector<double>{256, 256}),
          .b = tensor_of(DType::kBF16, {2}, std::vector<double>{1, 3})});
  EXPECT_EQ(values(sum), (std::vector<double>{256, 260}));
}

TEST_P(KernelValues, OfAdamwFollowTheScalarRecursionForTwentySteps) {
  const double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, rate = 0.01, multiplier = 2;
  const Tensor main = fp32({2}, {1, -0.5});
  const Tensor first = host_tensor(DType::kF32, {2});
  const Tensor second = host_tensor(DType::kF32, {2});
  const Tensor copy = host_tensor(DType::kBF16, {2});
  std::vector<double> w{1, -0.5}, m{0, 0}, v{0, 0};
  for (int t = 1; t <= 20; ++t) {
    const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
    const std::vector<double> raw{std::sin(t), 4 + std::cos(3 * t)};
    run(AdamwUpdate{.main = main,
                    .first = first,
                    .second = second,
                    .copy = copy,
                    .gradient = fp32({2}, raw),
                    .scalars = fp32({kStepScalars},
                                    {rate, correction1, correction2, 0.25, 1, 2 * decay, 1.0 * t}),
                    .beta1 = beta1,
                    .beta2 = beta2,
                    .eps = eps,
                    .decay_multiplier = 0.5,
                    .lr_multiplier = multiplier});
    for (std::size_t i = 0; i < 2; ++i) {
      const double g = 0.25 * raw[i];
      w[i] *= 1 - rate * multiplier * decay;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      w[i] -= rate * multiplier * (m[i] / correction1) / (std::sqrt(v[i] / correction2) + eps);
    }
  }
  expect_values(main, w, 20 * 4);
  expect_values(first, m, 20 * 4);
  expect_values(second, v, 20 * 4);
  EXPECT_EQ(value_at(copy, 0), to_float(to_bfloat16(main.data<float>()[0])));
  const auto before = values(main);
  run(AdamwUpdate{.main = main,
                  .first = first,
                  .second = second,
                  .gradient = fp32({2}, {std::nan(""), HUGE_VAL}),
                  .scalars = fp32({kStepScalars}, {rate, 1, 1, 1, 0, 0, 1})});
  EXPECT_EQ(values(main), before) << "kApply 0 leaves everything as it is";
}

// 0.999^800 = 0.449, in steps that are a quarter of bf16's last place or less.
TEST_P(KernelValues, OfSecondMomentsInBf16FallWithoutBias) {
  constexpr std::int64_t kSize = 4096;
  std::vector<double> weights(kSize);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 1 + static_cast<double>(i) / 1024;
  AdamwUpdate call{.main = fp32({kSize}, weights),
                   .first = host_tensor(DType::kBF16, {kSize}),
                   .second = tensor_of(DType::kBF16, {kSize}, std::vector<double>(kSize, 1)),
                   .gradient = host_tensor(DType::kF32, {kSize}),
                   .beta2 = 0.999};
  const auto mean = [&] {
    double sum = 0;
    for (const double value : values(call.second)) sum += value / static_cast<double>(kSize);
    return sum;
  };
  for (int t = 1; t <= 800; ++t) {
    call.scalars = fp32({kStepScalars}, {0.01, 1, 1, 1, 1, 0, 1.0 * t});
    run(call);
    if (t == 1) {
      EXPECT_NEAR(mean(), 0.999, 2e-4);
    }
  }
  // A value has made random steps of half a place, 2^-9 of itself: 5 % after 800, a mean of 4096
  // 64 times less.
  EXPECT_NEAR(mean(), std::pow(0.999, 800), 0.002);
  EXPECT_EQ(values(call.main), weights) << "a moment of 0 moves nothing";
}

// torch.optim.SGD(lr=0.1, momentum=0.9, weight_decay=0.2), torch 2.15, in float64.
TEST_P(KernelValues, OfSgdAreThoseOfTorchForThreeSteps) {
  const Tensor main = fp32({2}, {1, -0.5});
  const Tensor buffer = host_tensor(DType::kF32, {2});
  const Tensor copy = host_tensor(DType::kBF16, {2});
  SgdUpdate call{
      .main = main, .buffer = buffer, .copy = copy, .momentum = 0.9, .decay_multiplier = 1};
  struct Step {
    std::vector<double> gradient, weights, sums;
  };
  for (const Step& step : {Step{{0.5, -1}, {0.93, -0.39}, {0.7, -1.1}},
                           Step{{0.25, 2}, {0.8234, -0.4832}, {1.066, 0.932}},
                           Step{{-1.5, 0.125}, {0.860992, -0.569916}, {-0.37592, 0.86716}}}) {
    // The gradient scale undoes a factor of 4.
    call.gradient = fp32({2}, {4 * step.gradient[0], 4 * step.gradient[1]});
    call.scalars = fp32({kStepScalars}, {0.1, 1, 1, 0.25, 1, 0.2, 1});
    run(call);
    expect_values(main, step.weights, 12);
    expect_values(buffer, step.sums, 12);
    EXPECT_TRUE(close(copy, main, tolerance(DType::kBF16, 1)));
  }
}

// tests/golden/cadam.txt: three steps of a [2, 3] parameter in PyTorch, in float64.
TEST_P(KernelValues, OfCadamAreThoseOfPyTorchForThreeSteps) {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/cadam.txt");
  const Tensor main = fp32({6}, {1, -0.5, 2, 3, 0.25, -4});
  const Tensor momentum = host_tensor(DType::kF16, {6});
  const Tensor scales = host_tensor(DType::kF32, {2});
  const Tensor maxima = host_tensor(DType::kF32, {2});
  const Tensor copy = host_tensor(DType::kBF16, {6});
  int steps = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word != "state") continue;
    const auto next = [&](std::size_t count) {
      std::vector<double> numbers(count);
      for (double& number : numbers) words >> number;
      return numbers;
    };
    std::vector<double> raw = next(6);
    for (double& g : raw) g *= 4;  // the gradient scale undoes this
    const Tensor gradient = fp32({6}, raw);
    const Tensor scalars = fp32({kStepScalars}, {0.01, 1, 1, 0.25, 1, 0.2, 1});
    run(CadamMaxima{.maxima = maxima,
                    .momentum = momentum,
                    .scales = scales,
                    .gradient = gradient,
                    .scalars = scalars,
                    .columns = 3,
                    .beta = 0.9});
    run(CadamUpdate{.main = main,
                    .momentum = momentum,
                    .scales = scales,
                    .copy = copy,
                    .maxima = maxima,
                    .gradient = gradient,
                    .scalars = scalars,
                    .columns = 3,
                    .beta = 0.9,
                    .decay_multiplier = 0.5});
    expect_values(main, next(6), 12);
    expect_values(momentum, next(6), 4);
    expect_values(scales, next(2), 12);
    EXPECT_TRUE(close(copy, main, tolerance(DType::kBF16, 1)));
    EXPECT_TRUE(words);
    ++steps;
  }
  EXPECT_EQ(steps, 3);
  const auto before = values(momentum);
  run(CadamUpdate{.main = main,
                  .momentum = momentum,
                  .scales = scales,
                  .maxima = maxima,
                  .gradient = fp32({6}, std::vector<double>(6, std::nan(""))),
                  .scalars = fp32({kStepScalars}, {0.01, 1, 1, 1, 0, 0, 1}),
                  .columns = 3});
  EXPECT_EQ(values(momentum), before) << "kApply 0 leaves everything as it is";
}

TEST_P(KernelValues, OfSquareSumsAreThoseOfEachBlock) {
  const Tensor sums = host_tensor(DType::kF64, {3});
  run(SquareSums{.sums = sums, .x = fp32({5}, {1, 2, 3, 4, 0.5}), .block = 2});
  EXPECT_EQ(values(sums), (std::vector<double>{5, 25, 0.25}));
  // 1e8 squared plus small ones: fp32 would lose them.
  const Tensor one = host_tensor(DType::kF64, {1});
  run(SquareSums{.sums = one, .x = fp32({4}, {1e4, 0.5, 0.5, 0.5}), .block = 4});
  EXPECT_EQ(value_at(one, 0), 1e8 + 0.75);
}

TEST_P(KernelValues, OfBeginUpdateClipCountAndSkip) {
  const Tensor scalars = fp32({kStepScalars}, {0.1, 0, 0, 0, 0, 0.01, 0});
  const Tensor counts =
      tensor_of(DType::kF64, {kUpdateCounts}, std::vector<double>{0, 0, 0, 1, 0, 0});
  BeginUpdate call{.scalars = scalars,
                   .counts = counts,
                   .sums = tensor_of(DType::kF64, {3}, std::vector<double>{9, 4, 3}),
                   .beta1 = 0.5,
                   .beta2 = 0.75,
                   .clip = 2};
  run(call);
  run(call);  // the second update: 1 - 0.5^2, 1 - 0.75^2; norm 4
  expect_values(scalars, {0.1, 0.75, 0.4375, 2 / 4.000001, 1, 0.01, 2}, 4);
  EXPECT_EQ(values(counts), (std::vector<double>{2, 0, 4, 1, 0, 0}));
  call.sums = tensor_of(DType::kF64, {2}, std::vector<double>{1, INFINITY});
  run(call);
  expect_values(scalars, {0.1, 0.75, 0.4375, 1, 0, 0.01, 2}, 4);
  EXPECT_EQ(values(counts), (std::vector<double>{2, 1, INFINITY, 1, 0, 0}));
  call.sums = tensor_of(DType::kF64, {1}, std::vector<double>{16});
  call.clip = 0;  // no limit
  run(call);
  expect_values(scalars, {0.1, 0.875, 0.578125, 1, 1, 0.01, 3}, 4);
  EXPECT_EQ(values(counts), (std::vector<double>{3, 1, 4, 1, 0, 0}));
}

// A window of 2, hysteresis of 2 and a least scale of 4, by hand. Longer runs against
// Megatron-core: tests/unit/optim/optimizer_test.cpp.
TEST_P(KernelValues, OfBeginUpdateScaleTheLossAsMegatronDoes) {
  const Tensor scalars = fp32({kStepScalars}, {0.1, 0, 0, 0, 0, 0, 0});
  const Tensor counts =
      tensor_of(DType::kF64, {kUpdateCounts}, std::vector<double>{0, 0, 0, 32, 0, 2});
  BeginUpdate call{.scalars = scalars,
                   .counts = counts,
                   .clip = 1,
                   .scaling = {.dynamic = true, .least = 4, .window = 2, .hysteresis = 2}};
  struct Step {
    bool finite;
    double scale, good, left;  // after it
  };
  for (const Step& step :
       {Step{true, 32, 1, 2}, Step{false, 32, 0, 1}, Step{false, 16, 0, 0}, Step{true, 16, 1, 0},
        Step{false, 8, 0, -1}, Step{false, 4, 0, -2}, Step{false, 4, 0, -3}, Step{true, 4, 1, -3},
        Step{true, 8, 0, 2}, Step{false, 8, 0, 1}, Step{true, 8, 1, 1}, Step{true, 16, 0, 2}}) {
    const double scale = value_at(counts, kLossScale);
    const double sum = step.finite ? 36 * scale * scale : INFINITY;
    call.sums = tensor_of(DType::kF64, {1}, std::vector<double>{sum});
    run(call);
    EXPECT_EQ(value_at(counts, kLossScale), step.scale);
    EXPECT_EQ(value_at(counts, kGoodUpdates), step.good);
    EXPECT_EQ(value_at(counts, kHysteresisLeft), step.left);
    EXPECT_EQ(value_at(scalars, kApply), step.finite ? 1 : 0);
    if (!step.finite) continue;
    EXPECT_EQ(value_at(counts, kGradientNorm), 6) << "without the scale";
    EXPECT_NEAR(value_at(scalars, kGradientScale), 1 / 6.000001 / scale, 1e-8);
  }
}

}  // namespace
}  // namespace piton::test
