// Every call of the CUDA back end on the emulator, against the reference.
#include "kernels/cuda/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda_emulator/guarded_kernels.h"
#include "cuda_emulator/older_gpu.h"
#include "device/cuda/device.h"
#include "ops/attention_cases.h"
#include "ops/call_cases.h"
#include "ops/call_runner.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/tensors.h"

namespace piton::cuda {
namespace {

using test::CallCase;

// Attention takes no fp64, and updates compute in fp32 whatever the weights' dtype is.
bool takes_fp64(const KernelCall& call) {
  for (const std::string_view kind : {"attention", "adamw", "sgd", "update"}) {
    if (name(call).find(kind) != std::string_view::npos) return false;
  }
  return true;
}

class EmulatedKernels : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  EmulatedKernels()
      : device_(make_device()), kernels_(make_kernels(*device_)), guarded_(*kernels_) {}

  test::CaseOptions options() const {
    // Rows around the edges of a tile of 256 would be most of the time; the products are not ours.
    return {.dtype = std::get<0>(GetParam()),
            .awkward = std::get<1>(GetParam()),
            .row_tile = 4,
            .codes = kernels_->reads_codes(),
            .latents = kernels_->attends_to_latents(512, 64)};
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Kernels> kernels_;
  emulator::GuardedKernels guarded_;
};

TEST_P(EmulatedKernels, AgreeWithTheReferenceOnEveryCall) {
  std::vector<CallCase> cases = test::call_cases(options());
  if (options().dtype == DType::kF64) {
    std::erase_if(cases, [](const CallCase& one) { return !takes_fp64(one.call); });
  }
  // By day aligned and awkward rows share the cases.
  const std::size_t first = options().awkward ? 0 : 1;
  test::expect_agreement(guarded_, *device_, test::sampled(cases, 2, first));
}

TEST_P(EmulatedKernels, AgreeAtTheEdgesOfTilesOfAttention) {
  if (options().dtype == DType::kF64) GTEST_SKIP() << "attention takes no fp64";
  test::expect_agreement(guarded_, *device_, test::attention_edge_cases(options()));
}

// Rows that begin at multiples of 16 bytes are copied in vectors, and by warpgroups where a GPU has
// them.
void expect_agreement_on_aligned_rows(std::size_t first) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  emulator::GuardedKernels guarded(*kernels);
  std::vector<CallCase> cases = test::attention_cases({.dtype = DType::kF16});
  std::erase_if(
      cases, [](const CallCase& one) { return std::holds_alternative<AttentionMerge>(one.call); });
  test::expect_agreement(guarded, *device, test::sampled(cases, 2, first));
}

TEST(EmulatedAttention, AgreesWithTheReferenceOnAlignedRows) {
  expect_agreement_on_aligned_rows(0);
}

TEST(EmulatedAttention, AgreesWithTheReferenceOnAlignedRowsOfAnOlderGpu) {
  const emulator::OlderGpu older;
  expect_agreement_on_aligned_rows(1);
}

// The others by night.
const std::vector<std::tuple<DType, bool>> kTypes = {{DType::kBF16, true},  {DType::kF32, false},
                                                     {DType::kF16, true},   {DType::kF64, true},
                                                     {DType::kBF16, false}, {DType::kF64, false}};
INSTANTIATE_TEST_SUITE_P(Types, EmulatedKernels,
                         testing::ValuesIn(test::sampled(kTypes, kTypes.size())),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_awkward" : "_plain");
                         });

TEST(EmulatedAttention, RefusesFp64AndWideHeads) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  test::CallRunner runner(*kernels, *device);
  for (const auto& [dtype, d] : {std::pair{DType::kF64, 8}, {DType::kF32, 257}}) {
    const Tensor q = host_tensor(dtype, {1, 1, 1, d});
    const AttentionForward call{.out = host_tensor(dtype, {1, 1, 1, d}),
                                .lse = host_tensor(dtype, {1, 1, 1}),
                                .q = q,
                                .k = q,
                                .v = q};
    EXPECT_THAT(message_of(Fault::kUsage, [&] { runner.run(call); }),
                testing::HasSubstr("use --kernels cpu"));
  }
}

// The last rows of a text, in another tile than before, over pages of keys. Few rows have kernels
// of their own (cached_chunks_test.cpp).
TEST(EmulatedAttention, OfACacheHasTheBitsOfAttentionWithoutOne) {
  const emulator::OlderGpu older;  // warpgroups have other products for attention without a cache
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  test::CallRunner runner(*kernels, *device);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    test::TensorSource source(11);
    const Tensor q = source.normal(dtype, {1, 130, 2, 64});
    const Tensor keys = source.normal(dtype, {1, 3 * kCachePage, 1, 64});
    const Tensor values = source.normal(dtype, {1, 3 * kCachePage, 1, 64});
    const auto whole = std::get<AttentionForward>(
        runner.run(AttentionForward{.out = source.normal(dtype, q.shape()),
                                    .lse = host_tensor(DType::kF32, {1, 2, 130}),
                                    .q = q,
                                    .k = keys.slice(1, 0, 130),
                                    .v = values.slice(1, 0, 130),
                                    .scale = 0.125}));
    const auto paged = [](const Tensor& rows) { return rows.reshape({3, kCachePage, 1, 64}); };
    for (const std::int64_t rows : {17, 70}) {
      const auto last = [&](const Tensor& all) {
        return all.select(0, 0).slice(0, 130 - rows, rows);
      };
      const auto some = std::get<CachedAttention>(runner.run(CachedAttention{
          .out = source.normal(dtype, {rows, 2, 64}),
          .q = last(q),
          .keys = paged(keys),
          .values = paged(values),
          .begins =
              test::tensor_of(DType::kI32, {2}, std::vector<double>{0, static_cast<double>(rows)}),
          .lengths = test::tensor_of(DType::kI32, {1}, std::vector<double>{130}),
          .table = test::tensor_of(DType::kI32, {1, 3}, std::vector<double>{0, 1, 2}),
          .scale = 0.125}));
      EXPECT_TRUE(test::bit_equal(some.out, last(whole.out))) << rows << " rows";
    }
  }
}

// Logits of -infinity, as of words that are not allowed: alone in all columns that a thread sees
// first, and alone in its columns.
TEST(EmulatedLoss, TakesLogitsThatAreMinusInfinity) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  test::CallRunner runner(*kernels, *device);
  const std::int64_t columns = 6000;
  test::TensorSource source(3);
  LossStatistics call{.statistics = source.unwritten(DType::kF32, {2, 3}),
                      .logits = source.normal(DType::kF32, {2, columns}),
                      .labels = test::tensor_of(DType::kI32, {2}, std::vector<double>{5000, 1}),
                      .valid = columns};
  const double none = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < 4500; ++i) test::set_value(call.logits, i, none);
  for (std::int64_t i = 2; i < columns; ++i) test::set_value(call.logits, columns + i, none);
  const auto got = std::get<LossStatistics>(runner.run(call));
  const auto wanted = std::get<LossStatistics>(test::run_reference(call));
  EXPECT_TRUE(
      test::close(got.statistics, wanted.statistics, test::tolerance(DType::kF32, columns)));
}

// The same numbers at other addresses, where vectors do not fit, have the same bits.
TEST(EmulatedVectors, HaveTheSameBitsWithAndWithoutVectors) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  test::CallRunner runner(*kernels, *device);
  test::TensorSource source(5);
  const std::int64_t n = 70;
  for (const std::int64_t h : {48, 1040}) {
    const auto moved = [&](const Tensor& tensor) {
      const Tensor block = host_tensor(tensor.dtype(), {tensor.elements() + 1});
      const Tensor copy = block.slice(0, 1, tensor.elements()).reshape(tensor.shape());
      test::assign(copy, test::values(tensor));
      return copy;
    };
    const auto same_elsewhere = [&](auto call) {
      const KernelCall here = runner.run(call);
      for_each_tensor(call, [&](std::string_view, Tensor& tensor, Access) {
        if (tensor.defined()) tensor = moved(tensor);
      });
      EXPECT_TRUE(test::same_bits(runner.run(call), here)) << name(here) << " of " << h;
    };
    const auto rows = [&] { return source.normal(DType::kBF16, {n, h}); };
    const auto gains = [&] { return source.normal(DType::kBF16, {h}); };
    const auto sums = [&] { return source.normal(DType::kF32, {h}); };
    const auto statistics = [&] { return source.normal(DType::kF32, {n}, 1, 0.1); };
    same_elsewhere(KernelCall(NormForward{.y = rows(),
                                          .mean = statistics(),
                                          .rstd = statistics(),
                                          .x = rows(),
                                          .gain = gains(),
                                          .bias = gains()}));
    same_elsewhere(KernelCall(NormBackward{.dx = rows(),
                                           .dgain = sums(),
                                           .dbias = sums(),
                                           .dy = rows(),
                                           .dresidual = rows(),
                                           .x = rows(),
                                           .gain = gains(),
                                           .mean = statistics(),
                                           .rstd = statistics()}));
    Dropout dropout{.probability = 0.25, .key = site_key(99, "layers.1.mlp.dropout")};
    dropout.rows.consumed_samples = test::tensor_of(DType::kI64, {1}, std::vector<double>{7});
    dropout.rows.sequence = 8;
    same_elsewhere(KernelCall(
        DropoutAddBackward{.dx = rows(), .dbias = sums(), .dy = rows(), .dropout = dropout}));
    same_elsewhere(KernelCall(LossStatistics{.statistics = source.unwritten(DType::kF32, {n, 3}),
                                             .logits = source.normal(DType::kF32, {n, h}),
                                             .labels = source.integers({n}, 0, h - 1),
                                             .valid = h - 3}));
  }
}

// A query that is not finite gives no number that is; the others keep theirs.
TEST(EmulatedAttention, ShowsWhatIsNotFinite) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  test::CallRunner runner(*kernels, *device);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    test::TensorSource source(7, /*awkward=*/false);
    const auto rows = [&] { return source.normal(dtype, {1, 5, 1, 16}); };
    AttentionForward call{.out = rows(),
                          .lse = host_tensor(DType::kF32, {1, 1, 5}),
                          .q = rows(),
                          .k = rows(),
                          .v = rows(),
                          .scale = 0.25};
    test::set_value(call.q, 2 * 16 + 3, std::nan(""));
    const auto after = std::get<AttentionForward>(runner.run(call));
    for (std::int64_t row = 0; row < 5; ++row) {
      EXPECT_EQ(std::isfinite(test::value_at(after.lse, row)), row != 2) << row;
      for (std::int64_t c = 0; c < 16; ++c)
        EXPECT_EQ(std::isfinite(test::value_at(after.out, 16 * row + c)), row != 2) << row;
    }
  }
}

}  // namespace
}  // namespace piton::cuda
