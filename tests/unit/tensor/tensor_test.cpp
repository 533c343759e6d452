// Views have the right elements, and views that would need a copy are refused.
#include "tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "support/errors.h"
#include "support/tensors.h"

namespace piton {
namespace {

using test::values;

// 0, 1, 2, ... in the given shape.
Tensor counted(const Shape& shape) {
  const Tensor tensor = host_tensor(DType::kF32, shape);
  std::iota(tensor.data<float>(), tensor.data<float>() + tensor.elements(), 0.0F);
  return tensor;
}

TEST(Shape, CountsElementsAndReadsFromTheEnd) {
  const Shape shape{4, 3, 5};
  EXPECT_EQ(shape.elements(), 60);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{3, 0}.elements()), 0);
  EXPECT_EQ(to_string(shape), "[4, 3, 5]");
  EXPECT_TRUE((shape == Shape{4, 3, 5}));
  EXPECT_FALSE((shape == Shape{4, 3}));
}

TEST(Shape, RefusesSizesWhoseProductCannotBeCounted) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 60;
  EXPECT_EQ((Shape{std::int64_t{1} << 28, std::int64_t{1} << 28}.elements()),
            std::int64_t{1} << 56);
  for (const Shape& shape :
       {Shape{kHuge, 8}, Shape{kHuge}, Shape{0, kHuge, kHuge}, Shape{2, -1},
        Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}, Shape{3, kHuge, kHuge, kHuge}}) {
    EXPECT_THAT(message_of(Fault::kUsage, [&] { (void)shape.elements(); }),
                testing::HasSubstr("a tensor of " + to_string(shape)));
    EXPECT_THAT(message_of(Fault::kUsage, [&] { (void)host_tensor(DType::kF64, shape); }),
                testing::HasSubstr("at most 2^56 elements"));
  }
}

TEST(ShapeDeathTest, HoldsAtMostSixDims) {
  EXPECT_DEATH((Shape{1, 1, 1, 1, 1, 1, 1}), "at most 6 dims");
}

TEST(Tensor, IsZeroedAlignedAndRowMajor) {
  const Tensor tensor = host_tensor(DType::kBF16, {3, 4});
  EXPECT_EQ(values(tensor), std::vector<double>(12, 0));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64, 0);
  EXPECT_EQ(tensor.stride(0), 4);
  EXPECT_EQ(tensor.bytes(), 24);
  EXPECT_EQ(to_string(tensor), "bf16 [3, 4]");
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, SlicesAndSelectsAreViews) {
  const Tensor tensor = counted({3, 4});
  EXPECT_EQ(values(tensor.slice(0, 1, 2)), (std::vector<double>{4, 5, 6, 7, 8, 9, 10, 11}));
  const Tensor columns = tensor.slice(1, 1, 2);
  EXPECT_EQ(values(columns), (std::vector<double>{1, 2, 5, 6, 9, 10}));
  EXPECT_FALSE(columns.contiguous());
  EXPECT_EQ(values(tensor.select(1, 2)), (std::vector<double>{2, 6, 10}));
  EXPECT_EQ(values(tensor.select(-2, 0)), (std::vector<double>{0, 1, 2, 3}));
  test::set_value(columns, 0, 50);
  EXPECT_EQ(tensor.data<float>()[1], 50);
}

TEST(Tensor, SwapsDims) {
  const Tensor swapped = counted({2, 3, 2}).swap_dims(0, -2);
  EXPECT_EQ(swapped.shape(), Shape({3, 2, 2}));
  EXPECT_EQ(values(swapped), (std::vector<double>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
}

TEST(Tensor, ReshapesWhereStridesAllowIt) {
  const Tensor tensor = counted({2, 3, 4});
  EXPECT_EQ(values(tensor.reshape({4, 6})), values(tensor));
  EXPECT_EQ(values(tensor.reshape({1, 24, 1})), values(tensor));
  EXPECT_EQ(values(tensor.flatten()), values(tensor));
  // Columns 4 .. 11 of rows of 12: rows stay apart, columns can be split and merged again.
  const Tensor part = counted({2, 12}).slice(1, 4, 8);
  const Tensor heads = part.reshape({2, 2, 4});
  EXPECT_EQ(values(heads), values(part));
  EXPECT_EQ(heads.stride(0), 12);
  EXPECT_EQ(heads.stride(1), 4);
  EXPECT_EQ(values(part.split_dim(1, 2)), values(part));
  EXPECT_EQ(values(heads.reshape({2, 8})), values(part));
  EXPECT_EQ(values(heads.reshape({2, 1, 8})), values(part));
  EXPECT_EQ(host_tensor(DType::kF32, {0, 3}).reshape({3, 0}).elements(), 0);
}

TEST(TensorDeathTest, ViewsThatWouldNeedACopyAreRefused) {
  const Tensor part = counted({2, 12}).slice(1, 4, 8);
  EXPECT_DEATH(part.reshape({16}), "takes a copy");
  EXPECT_DEATH(part.flatten(), "has gaps");
  EXPECT_DEATH(part.reshape({3, 5}), "\\[2, 8\\] as \\[3, 5\\]");
  EXPECT_DEATH(part.slice(0, 1, 2), "rows 1 \\+ 2");
  EXPECT_DEATH(part.data<double>(), "asked fp64 of fp32");
  EXPECT_DEATH(Tensor(part.storage(), 0, DType::kF32, {25}), "passes the end");
}

TEST(Tensor, KnowsWithWhomItSharesBytes) {
  const Tensor tensor = counted({4, 4});
  EXPECT_TRUE(tensor.slice(0, 0, 2).overlaps(tensor.slice(0, 1, 2)));
  EXPECT_FALSE(tensor.slice(0, 0, 2).overlaps(tensor.slice(0, 2, 2)));
  EXPECT_FALSE(tensor.overlaps(counted({4, 4})));
  EXPECT_FALSE(tensor.slice(0, 1, 0).overlaps(tensor));
}

TEST(Tensor, SharesItsStorageUntilTheLastViewGoes) {
  Tensor tensor = counted({8});
  const std::weak_ptr<Storage> storage = tensor.storage();
  Tensor view = tensor.slice(0, 2, 2);
  tensor = Tensor();
  EXPECT_FALSE(storage.expired());
  EXPECT_EQ(values(view), (std::vector<double>{2, 3}));
  view = Tensor();
  EXPECT_TRUE(storage.expired());
}

TEST(Tensor, KeepsItsPlaceInAnotherStorage) {
  const Tensor tensor = counted({2, 6}).slice(1, 2, 3);
  const Tensor copy = counted({2, 6});
  test::set_value(copy, 2, 70);
  EXPECT_EQ(values(tensor.with_storage(copy.storage())), (std::vector<double>{70, 3, 4, 8, 9, 10}));
}

}  // namespace
}  // namespace piton
