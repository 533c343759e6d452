// Products of few rows: against the reference, at the edges of their tiles and parts, and the bits
// of a row next to others.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/linear/few_row_product.h"
#include "ops/call_cases.h"
#include "ops/call_runner.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace piton::cuda {
namespace {

using test::CallCase;

class FewRowProducts : public testing::TestWithParam<DType> {
 protected:
  FewRowProducts() : device_(make_device()), kernels_(make_kernels(*device_)) {}

  LinearForward product(std::int64_t n, std::int64_t out, std::int64_t in) {
    const DType dtype = GetParam();
    const Tensor weight = source_.normal(dtype, {out, in});
    return {.y = source_.normal(dtype, {n, out}),
            .x = source_.normal(dtype, {n, in}),
            .weight = {.tensor = weight, .out = out, .in = in, .dtype = dtype}};
  }

  void add(std::string name, const LinearForward& call) {
    ASSERT_TRUE(has_few_rows(call)) << name;
    cases_.push_back({.name = std::move(name), .call = call, .terms = call.weight.in});
  }

  test::TensorSource source_{23};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Kernels> kernels_;
  std::vector<CallCase> cases_;
};

TEST_P(FewRowProducts, AgreeWithTheReferenceWithAllEnds) {
  const DType dtype = GetParam();
  for (const std::int64_t n : {1, 7, 8, 9, 16}) {
    // One column of vectors, one part of a warp and a part in addition, more than all warps take.
    for (const std::int64_t in : {8, 136, 1056}) {
      for (const std::int64_t out : {1, 16, 35}) {
        const std::string size = fmt::format("n {} out {} in {}", n, out, in);
        LinearForward call = product(n, out, in);
        add(size, call);
        call.bias = source_.normal(dtype, {out});
        call.residual = call.y;
        add(size + " over the residual", call);
        call.y = source_.normal(DType::kF32, {n, out});
        call.residual = source_.normal(DType::kF32, {n, out});
        call.activation = ActivationKind::kSilu;
        call.preactivation = source_.normal(DType::kF32, {n, out});
        add(size + " fp32, activated", call);
      }
    }
  }
  emulator::GuardedKernels guarded(*kernels_);
  test::expect_agreement(guarded, *device_, cases_);
}

TEST_P(FewRowProducts, GiveARowTheSameBitsNextToAnyOthers) {
  test::CallRunner runner(*kernels_, *device_);
  const LinearForward all = product(16, 40, 2088);
  const auto whole = std::get<LinearForward>(runner.run(all));
  for (const auto& [begin, size] : {std::pair{0, 1}, {5, 1}, {3, 8}, {2, 9}}) {
    LinearForward some = all;
    some.x = all.x.slice(0, begin, size);
    some.y = all.y.slice(0, begin, size);
    ASSERT_TRUE(has_few_rows(some));
    const auto part = std::get<LinearForward>(runner.run(some));
    EXPECT_TRUE(test::bit_equal(part.y, whole.y.slice(0, begin, size))) << size << " rows";
  }
}

// Codes are read by the product itself: with the bits of rows that ExpandWeight has made.
TEST_P(FewRowProducts, OfCodesHaveTheBitsOfExpandedRows) {
  test::CallRunner runner(*kernels_, *device_);
  const std::int64_t out = 19, in = 1056;
  for (const CodeKind kind : {CodeKind::kInt8, CodeKind::kInt4, CodeKind::kNf4}) {
    for (const std::int64_t group : {std::int64_t{32}, in}) {
      for (const DType scales : {DType::kF32, DType::kF16}) {
        for (const int offsets : {0, 1, 2}) {  // none, zero points, minima
          if (kind == CodeKind::kNf4 && offsets > 0) continue;
          const Shape groups{out, (in + group - 1) / group};
          WeightCodes codes{
              .kind = kind,
              .group = group,
              .codes = source_.integers({out, code_bytes(kind, in)}, 0, 255, DType::kU8),
              .scales = source_.normal(scales, groups)};
          if (offsets == 1) codes.zeros = source_.normal(DType::kF32, groups);
          if (offsets == 2) codes.minima = source_.normal(DType::kF32, groups);
          const ExpandWeight expand{.rows = source_.normal(GetParam(), {out, in}), .codes = codes};
          LinearForward plain = product(9, out, in);
          plain.weight.tensor = std::get<ExpandWeight>(runner.run(expand)).rows;
          LinearForward coded = plain;
          coded.weight = {.form = WeightForm::kCodes,
                          .out = out,
                          .in = in,
                          .dtype = GetParam(),
                          .codes = codes};
          ASSERT_TRUE(has_few_rows(coded));
          EXPECT_TRUE(test::bit_equal(std::get<LinearForward>(runner.run(coded)).y,
                                      std::get<LinearForward>(runner.run(plain)).y))
              << "kind " << static_cast<int>(kind) << ", group " << group << ", offsets "
              << offsets;
        }
      }
    }
  }
}

TEST_P(FewRowProducts, KeepWhatIsNotFiniteInItsRow) {
  test::CallRunner runner(*kernels_, *device_);
  LinearForward call = product(3, 20, 72);
  test::set_value(call.x, 72 + 70, std::numeric_limits<double>::quiet_NaN());
  const auto done = std::get<LinearForward>(runner.run(call));
  for (std::int64_t i = 0; i < done.y.elements(); ++i)
    EXPECT_EQ(std::isnan(test::value_at(done.y, i)), i / 20 == 1) << i;
}

TEST_P(FewRowProducts, LeaveOtherCallsToTheLibrary) {
  EXPECT_FALSE(has_few_rows(product(17, 4, 8)));
  EXPECT_FALSE(has_few_rows(product(1, 4, 12)));
  LinearForward shifted = product(1, 4, 16);
  shifted.x = source_.normal(GetParam(), {1, 20}).slice(1, 4, 16);
  EXPECT_FALSE(has_few_rows(shifted));
}

INSTANTIATE_TEST_SUITE_P(Types, FewRowProducts, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace piton::cuda
