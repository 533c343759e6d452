// Tests of the test decorators of back ends.
#include <gtest/gtest.h>

#include "device/host_device.h"
#include "kernels/measured/timed_kernels.h"
#include "kernels/meta/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/counting_kernels.h"
#include "support/perturbed_kernels.h"
#include "support/tensors.h"

namespace piton {
namespace {

using test::tensor_of;
using test::values;

class Decorators : public ::testing::Test {
 protected:
  static Tensor fp64(std::vector<double> contents) {
    return tensor_of(DType::kF64, {static_cast<std::int64_t>(contents.size())}, contents);
  }

  HostDevice device_;
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  std::unique_ptr<Kernels> reference_ = make_reference_kernels();
};

TEST_F(Decorators, CountCallsAndPassThemOn) {
  CountingKernels kernels(*reference_);
  const Tensor sum = fp64({0, 0});
  kernels.run(Add{.y = sum, .a = fp64({1, 2}), .b = fp64({3, 4})}, *stream_);
  EXPECT_EQ(values(sum), (std::vector<double>{4, 6}));
  EXPECT_EQ(kernels.counts().of("add").calls, 1);
  EXPECT_EQ(kernels.counts().by_name().size(), 1);
  EXPECT_EQ(kernels.name(), "reference");
}

TEST_F(Decorators, TimeCallsBySizesAndByName) {
  TimedKernels kernels(*reference_);
  const Tensor sum = fp64({0, 0});
  kernels.run(Add{.y = sum, .a = fp64({1, 2}), .b = fp64({3, 4})}, *stream_);
  kernels.run(Add{.y = sum, .a = fp64({1, 2}), .b = fp64({3, 4})}, *stream_);
  kernels.run(Add{.y = fp64({0}), .a = fp64({1}), .b = fp64({3})}, *stream_);
  EXPECT_EQ(values(sum), (std::vector<double>{4, 6}));
  ASSERT_EQ(kernels.by_call().size(), 2);
  EXPECT_EQ(kernels.by_call().at("add  y fp64 [2], a fp64 [2], b fp64 [2]").calls, 2);
  ASSERT_EQ(kernels.by_name().size(), 1);
  const CallTime time = kernels.by_name().at("add");
  EXPECT_EQ(time.calls, 3);
  EXPECT_EQ(time.bytes_moved, (2 + 2 + 1) * 3 * 8);
  EXPECT_GT(time.seconds, 0);
}

TEST_F(Decorators, PerturbOnlyTheChosenOutputOfTheChosenCall) {
  PerturbedKernels kernels(*reference_, "add", "y", 1.5);
  const Tensor sum = fp64({0, 0});
  kernels.run(Add{.y = sum, .a = fp64({1, 2}), .b = fp64({3, 4})}, *stream_);
  EXPECT_EQ(values(sum), (std::vector<double>{6, 9}));
  const Tensor copy = fp64({0, 0});
  kernels.run(Copy{.dst = copy, .src = sum}, *stream_);
  EXPECT_EQ(values(copy), values(sum));
  EXPECT_EQ(kernels.perturbed(), 1);
}

TEST_F(Decorators, PerturbTheChangeOfAnUpdatedTensor) {
  PerturbedKernels kernels(*reference_, "embedding backward", "dtable", 1.5);
  const Tensor dtable = fp64({100, 100}).reshape({2, 1});
  kernels.run(EmbeddingBackward{.dtable = dtable,
                                .dy = fp64({4}).reshape({1, 1}),
                                .ids = tensor_of(DType::kI32, {1}, std::vector<double>{1})},
              *stream_);
  EXPECT_EQ(values(dtable), (std::vector<double>{100, 106}));
}

TEST_F(Decorators, OfMetaAnswerAsTheBackEndThatTheyStandFor) {
  MetaKernels kernels(reference_.get());
  EXPECT_EQ(kernels.name(), "meta, as reference");
  EXPECT_EQ(kernels.row_tile(), reference_->row_tile());
}

}  // namespace
}  // namespace piton
