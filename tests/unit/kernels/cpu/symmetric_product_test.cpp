// Symmetric products of every division into squares, against the reference, with every instruction
// set of this machine and any number of threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/compare.h"
#include "support/instruction_sets.h"
#include "support/sampled.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

class SymmetricProducts : public ::testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  void SetUp() override {
    try {
      for (ThreadPool* threads : {&one_, &three_}) {
        kernels_.push_back(make_cpu_kernels(*threads, std::get<0>(GetParam())));
      }
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  DType dtype() const { return std::get<1>(GetParam()); }

  // Expects the reference's values, the same bits with one thread and with three, and symmetry.
  void expect_right(SymmetricProduct call, double terms) {
    const std::int64_t n = call.left.dim(call.transposed ? 1 : 0);
    SCOPED_TRACE(fmt::format("{} x {}{}, {} terms", n, call.depth(),
                             call.transposed ? ", transposed" : "", terms));
    call.y = host_tensor(DType::kF64, {n, n});
    SymmetricProduct exact = call;
    exact.left = fp64(call.left);
    exact.right = fp64(call.right);
    if (call.addend.defined()) exact.addend = fp64(call.addend);
    reference_->run(exact, *stream_);
    std::vector<Tensor> got;
    for (const auto& kernels : kernels_) {
      call.y = source_.unwritten_rows(dtype(), {n, n});
      kernels->run(call, *stream_);
      EXPECT_TRUE(
          close(call.y, exact.y, tolerance(dtype(), static_cast<double>(call.depth()) + terms)));
      got.push_back(call.y);
    }
    EXPECT_TRUE(bit_equal(got[1], got[0]));
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < i; ++j) {
        ASSERT_EQ(value_at(got[0], i * got[0].stride(0) + j),
                  value_at(got[0], j * got[0].stride(0) + i))
            << i << ", " << j;
      }
    }
  }

  static Tensor fp64(const Tensor& from) {
    const std::vector<double> contents = values(from);
    return tensor_of(DType::kF64, from.shape(), contents);
  }

  HostDevice device_;
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  ThreadPool one_{1};
  ThreadPool three_{3};
  std::vector<std::unique_ptr<Kernels>> kernels_;
  std::unique_ptr<Kernels> reference_ = make_reference_kernels();
  TensorSource source_{11};
};

struct ProductSize {
  std::int64_t n, k;
};
// Whole and broken squares, groups of rows and steps; lines of a row that share a set of the cache
// (512 columns are 1 KiB) or not; several parts of a thread; two depths.
const std::vector<ProductSize> kSizes = {{1, 1},     {15, 31},  {16, 32},  {64, 64},
                                         {80, 96},   {65, 33},  {192, 96}, {130, 64},
                                         {176, 512}, {330, 32}, {336, 96}, {144, 1600}};

// By day each set and type takes a third of the sizes, together all.
TEST_P(SymmetricProducts, AreThoseOfTheReference) {
  const auto set = std::ranges::find(kInstructionSets, std::string_view(std::get<0>(GetParam())));
  const auto turn = static_cast<std::size_t>(set - std::begin(kInstructionSets));
  for (const ProductSize size : sampled(kSizes, 3, turn + (dtype() == DType::kBF16 ? 1 : 0))) {
    for (const bool transposed : {false, true}) {
      const Shape side = transposed ? Shape{size.k, size.n} : Shape{size.n, size.k};
      const Tensor left = source_.normal(dtype(), side);
      expect_right({.left = left, .right = left, .transposed = transposed}, 0);
      expect_right({.left = left,
                    .right = source_.normal(dtype(), side),
                    .addend = source_.normal_rows(dtype(), {size.n, size.n}),
                    .factor = 2.0315,
                    .addend_factor = -4.775,
                    .diagonal = 3.4445,
                    .transposed = transposed},
                   4);
      expect_right({.left = left, .right = left, .diagonal = -2, .transposed = transposed}, 1);
    }
  }
}

// The other sets by night; ops_all has these calls on all of them.
INSTANTIATE_TEST_SUITE_P(
    Sets, SymmetricProducts,
    ::testing::Combine(::testing::ValuesIn(sampled(std::vector(kInstructionSets.begin(),
                                                               kInstructionSets.end()),
                                                   kIsArm ? 1 : 2, 1)),
                       ::testing::Values(DType::kF32, DType::kBF16)),
    set_and_dtype);

// Chains of unequal calls on three threads: at the same time where that is balanced, else call by
// call. Their bits are those of the calls by themselves.
TEST(Chains, HaveTheBitsOfTheirCallsOneByOne) {
  HostDevice device;
  const std::unique_ptr<Stream> stream = device.make_stream();
  ThreadPool threads(3);
  const std::unique_ptr<Kernels> kernels = make_cpu_kernels(threads, test::chosen_isa());
  TensorSource source(12);
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{96, 200, 96, 200, 96, 200, 70, 70, 70}, {300, 40}, {}}) {
    std::vector<CallChain> chains;
    std::vector<Tensor> results;
    for (const std::int64_t n : sizes) {
      const Tensor x = source.normal(DType::kBF16, {n, n + 30}, 0, 0.1);
      const Tensor gram = source.unwritten(DType::kBF16, {n, n});
      const Tensor packed = host_tensor(
          DType::kU8, {kernels->packed_bytes(WeightForm::kBackward, n, n + 30, DType::kBF16)});
      const Tensor y = source.unwritten(DType::kBF16, {n, n + 30});
      chains.push_back({SymmetricProduct{.y = gram, .left = x, .right = x},
                        PackWeight{.packed = packed, .rows = x, .form = WeightForm::kBackward},
                        LinearBackwardInput{.dx = y,
                                            .dy = gram,
                                            .weight = {.form = WeightForm::kBackward,
                                                       .tensor = packed,
                                                       .out = n,
                                                       .in = n + 30,
                                                       .dtype = DType::kBF16}}});
      results.push_back(y);
    }
    kernels->run_chains(chains, *stream);
    std::vector<std::vector<double>> together;
    for (const Tensor& y : results) together.push_back(values(y));
    for (const CallChain& chain : chains) {
      for (const KernelCall& call : chain) kernels->run(call, *stream);
    }
    for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(values(results[i]), together[i]);
  }
}

}  // namespace
}  // namespace piton::test
