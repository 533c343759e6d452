// Blocks of assembled tensors: the same bytes with threads and without, whatever the blocks are.
#include "checkpoint/assembly.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "support/errors.h"

namespace piton {
namespace {

// Element i of any tensor is i; a tensor named "bad" cannot be read.
class Counting final : public TensorSource {
 public:
  std::string where() const override { return "counting"; }
  std::vector<CanonicalTensor> tensors(TensorKind) const override { return {}; }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    ASSERT_EQ(dtype, DType::kF32);
    if (name == "bad") throw Error(Fault::kData, "bad: cannot be read");
    const std::int64_t columns = run.extent.ndim() > 1 ? run.extent[1] : 1;
    for (std::int64_t i = run.begin; i < run.end; ++i) {
      const std::int64_t row = run.start[0] + i / columns;
      const std::int64_t column = (run.extent.ndim() > 1 ? run.start[1] : 0) + i % columns;
      const float value = static_cast<float>(row * 10'000 + column);
      std::memcpy(dst + (i - run.begin) * 4, &value, 4);
    }
  }
};

// Rows of two tensors one behind the other; larger than a block; transposed; empty.
std::vector<TypedAssembly> all_kinds() {
  std::vector<TypedAssembly> tensors;
  tensors.push_back({{.name = "joined",
                      .shape = {7, 5},
                      .parts = {{"a", {3, 1}, {4, 5}, 3}, {"b", {0, 0}, {3, 5}, 0}}}});
  tensors.push_back({Assembly::of("none", {0, 5})});
  tensors.push_back({Assembly::of("large", {3000, 1001})});
  tensors.push_back({{.name = "turned",
                      .shape = {6, 4},
                      .transposed = true,
                      .parts = {{"a", {1, 2}, {4, 6}, 0}}}});
  tensors.push_back({Assembly::of("last", {9})});
  return tensors;
}

std::map<std::size_t, std::vector<float>> taken(ThreadPool* threads) {
  Counting source;
  const std::vector<TypedAssembly> tensors = all_kinds();
  std::map<std::size_t, std::vector<float>> values;
  std::size_t last = 0;
  assemble(source, tensors, threads, [&](std::size_t i, std::span<const std::byte> bytes) {
    EXPECT_GE(i, last);
    last = i;
    std::vector<float>& to = values[i];
    const std::size_t before = to.size();
    to.resize(before + bytes.size() / 4);
    std::memcpy(to.data() + before, bytes.data(), bytes.size());
  });
  return values;
}

TEST(Assemble, GivesTheBytesOfEveryTensorInOrder) {
  ThreadPool pool(2);
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    const std::map<std::size_t, std::vector<float>> values = taken(threads);
    ASSERT_EQ(values.size(), 4U);
    const std::vector<float>& joined = values.at(0);
    ASSERT_EQ(joined.size(), 35U);
    EXPECT_EQ(joined[4], 4);                // b's row 0
    EXPECT_EQ(joined[15], 3 * 10'000 + 1);  // a's row 3, from column 1 on
    const std::vector<float>& large = values.at(2);
    ASSERT_EQ(large.size(), 3'003'000U);
    for (std::size_t i = 0; i < large.size(); ++i)
      ASSERT_EQ(large[i], static_cast<float>(i / 1001 * 10'000 + i % 1001)) << i;
    const std::vector<float>& turned = values.at(3);
    ASSERT_EQ(turned.size(), 24U);
    EXPECT_EQ(turned[1 * 4 + 2], (1 + 2) * 10'000 + 2 + 1);
    EXPECT_EQ(values.at(4).back(), 80'000);
  }
}

TEST(Assemble, EndsWithTheErrorOfEitherSide) {
  ThreadPool pool(2);
  Counting source;
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    std::vector<TypedAssembly> tensors = all_kinds();
    tensors.push_back({Assembly::of("bad", {3})});
    const auto ignore = [](std::size_t, std::span<const std::byte>) {};
    EXPECT_EQ(message_of(Fault::kData, [&] { assemble(source, tensors, threads, ignore); }),
              "bad: cannot be read");
    const auto full = [](std::size_t i, std::span<const std::byte>) {
      if (i == 2) throw Error(Fault::kData, "the disk is full");
    };
    EXPECT_EQ(message_of(Fault::kData, [&] { assemble(source, tensors, threads, full); }),
              "the disk is full");
  }
}

TEST(DtypeOf, HoldsAllParts) {
  EXPECT_EQ(wider_dtype(DType::kBF16, DType::kBF16), DType::kBF16);
  EXPECT_EQ(wider_dtype(DType::kBF16, DType::kF16), DType::kF32);
  const Assembly joined{.shape = {2, 1},
                        .parts = {{"a", {0, 0}, {1, 1}, 0}, {"b", {0, 0}, {1, 1}, 1}}};
  EXPECT_EQ(dtype_of(joined, {{"a", DType::kBF16}, {"b", DType::kF32}}), DType::kF32);
}

}  // namespace
}  // namespace piton
