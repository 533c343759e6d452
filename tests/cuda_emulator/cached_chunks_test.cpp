// Attention to a cache by chunks of keys: against the reference over several chunks, and the bits
// of a row next to others.
#include "kernels/cuda/attention/cached_chunks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "ops/call_cases.h"
#include "ops/call_runner.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace piton::cuda {
namespace {

struct CachedText {
  std::int64_t rows;
  std::int64_t keys;
};

struct HeadSizes {
  std::int64_t heads;
  std::int64_t key_heads;
  std::int64_t d;
};

class CachedChunks : public testing::Test {
 protected:
  CachedChunks() : device_(make_device()), kernels_(make_kernels(*device_)) {}

  // Texts of up to 640 tokens; all have the same ten pages, in an order that is not theirs.
  CachedAttention attention(const std::vector<CachedText>& texts, const HeadSizes& sizes,
                            bool coded = false) {
    constexpr std::int64_t kPages = 10;
    std::vector<double> begins{0}, lengths, table;
    for (const CachedText& text : texts) {
      begins.push_back(begins.back() + static_cast<double>(text.rows));
      lengths.push_back(static_cast<double>(text.keys));
      for (std::int64_t i = 0; i < kPages; ++i)
        table.push_back(static_cast<double>(i * 7 % kPages));
    }
    const auto b = std::ssize(texts);
    const auto n = static_cast<std::int64_t>(begins.back());
    const auto cache = [&] {
      const Shape shape{kPages, sizes.key_heads, kCachePage, sizes.d};
      return (coded ? source_.integers(shape, 0, 255, DType::kU8)
                    : source_.normal(DType::kBF16, shape))
          .swap_dims(1, 2);
    };
    CachedAttention call{.out = source_.normal(DType::kBF16, {n, sizes.heads, sizes.d}),
                         .q = source_.normal(DType::kBF16, {n, sizes.heads, sizes.d}),
                         .keys = cache(),
                         .values = cache(),
                         .begins = test::tensor_of(DType::kI32, {b + 1}, begins),
                         .lengths = test::tensor_of(DType::kI32, {b}, lengths),
                         .table = test::tensor_of(DType::kI32, {b, kPages}, table),
                         .scale = 1 / std::sqrt(static_cast<double>(sizes.d))};
    if (coded) call.key_scales = scales(sizes), call.value_scales = scales(sizes);
    return call;
  }

  Tensor scales(const HeadSizes& sizes) {
    const Tensor all = source_.normal(DType::kF32, {10, sizes.key_heads, kCachePage});
    for (std::int64_t i = 0; i < all.elements(); ++i)
      all.data<float>()[i] = std::abs(all.data<float>()[i]) / 127;
    return all.swap_dims(1, 2);
  }

  test::TensorSource source_{29};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Kernels> kernels_;
};

TEST_F(CachedChunks, AgreeWithTheReference) {
  std::vector<test::CallCase> cases;
  const auto add = [&](std::string name, const CachedAttention& call) {
    ASSERT_TRUE(has_few_queries(call)) << name;
    const std::int64_t terms = call.q.dim(2) + 640;
    cases.push_back({.name = std::move(name),
                     .call = call,
                     .terms = terms,
                     .narrowest = DType::kBF16,
                     .rounded_terms = terms});
  };
  const HeadSizes grouped{8, 1, 64}, single{2, 2, 128}, odd{6, 2, 20};
  // Ends of chunks, and of steps within one.
  add("one row a text", attention({{1, 640}, {1, 1}, {1, 128}, {1, 129}, {1, 257}}, grouped));
  add("wide heads", attention({{1, 600}, {1, 77}}, single));
  add("heads that are no vectors", attention({{1, 300}}, odd));
  add("codes", attention({{1, 500}, {3, 140}}, grouped, /*coded=*/true));
  add("codes of wide heads", attention({{1, 333}}, single, /*coded=*/true));
  add("codes that are no vectors", attention({{1, 300}}, odd, /*coded=*/true));
  add("several tiles of queries", attention({{5, 400}, {1, 130}, {11, 11}}, grouped));
  CachedAttention window = attention({{4, 640}}, grouped);
  window.window_before = 130;  // most chunks have no visible key, one has some
  window.soft_cap = 2;
  add("window and cap", window);
  CachedAttention slopes = attention({{2, 400}}, single);
  slopes.slopes = test::tensor_of(DType::kF32, {2}, std::vector<double>{0.5, 0.01});
  add("slopes", slopes);
  emulator::GuardedKernels guarded(*kernels_);
  test::expect_agreement(guarded, *device_, cases);
}

TEST_F(CachedChunks, GiveARowTheSameBitsNextToAnyOthers) {
  test::CallRunner runner(*kernels_, *device_);
  const std::vector<CachedText> texts{{1, 300}, {5, 515}, {1, 90}};
  const CachedAttention all = attention(texts, {4, 1, 64});
  const auto whole = std::get<CachedAttention>(runner.run(all));
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    // The text alone, read row by row, in a table that ends with it.
    for (std::int64_t row = 0; row < texts[i].rows; ++row) {
      const std::int64_t keys = texts[i].keys - texts[i].rows + row + 1;
      CachedAttention one = all;
      one.out = all.out.slice(0, begin + row, 1);
      one.q = all.q.slice(0, begin + row, 1);
      one.begins = test::tensor_of(DType::kI32, {2}, std::vector<double>{0, 1});
      one.lengths =
          test::tensor_of(DType::kI32, {1}, std::vector<double>{static_cast<double>(keys)});
      std::vector<double> pages;
      for (std::int64_t page = 0; page < (keys + kCachePage - 1) / kCachePage; ++page)
        pages.push_back(static_cast<double>(page * 7 % 10));
      one.table = test::tensor_of(DType::kI32, {1, std::ssize(pages)}, pages);
      const auto alone = std::get<CachedAttention>(runner.run(one));
      EXPECT_TRUE(test::bit_equal(alone.out, whole.out.slice(0, begin + row, 1)))
          << "text " << i << ", row " << row;
    }
    begin += texts[i].rows;
  }
}

// With more texts and heads than there are counters of arrivals: two launches, the second one of
// the text that has several chunks.
TEST_F(CachedChunks, OfManyHeadsAreSeveralLaunches) {
  constexpr std::int64_t kHeads = 1024;
  std::vector<CachedText> texts(kArrivals / kHeads, {1, 1});
  texts.push_back({1, 190});
  CachedAttention call = attention(texts, {kHeads, kHeads, 8});
  std::vector<double> pages;  // two chunks
  for (std::size_t i = 0; i < texts.size(); ++i) pages.insert(pages.end(), {4, 0, 9});
  call.table = test::tensor_of(DType::kI32, {std::ssize(texts), 3}, pages);
  emulator::GuardedKernels guarded(*kernels_);
  const std::uint32_t before = emulator::launches();
  test::expect_agreement(guarded, *device_,
                         {{.name = "many heads",
                           .call = call,
                           .terms = 198,
                           .narrowest = DType::kBF16,
                           .rounded_terms = 198}});
  EXPECT_EQ(emulator::launches() - before, 2U);
}

TEST_F(CachedChunks, ShowAQueryThatIsNotFinite) {
  test::CallRunner runner(*kernels_, *device_);
  CachedAttention call = attention({{2, 300}}, {2, 1, 64});
  test::set_value(call.q, 3, std::numeric_limits<double>::quiet_NaN());  // row 0, head 0
  const auto done = std::get<CachedAttention>(runner.run(call));
  for (std::int64_t i = 0; i < done.out.elements(); ++i)
    EXPECT_EQ(std::isnan(test::value_at(done.out, i)), i < 64) << i;
}

TEST_F(CachedChunks, LeaveManyRowsAndOtherTypesToTheTiles) {
  EXPECT_FALSE(has_few_queries(attention({{17, 40}}, {2, 1, 64})));
  EXPECT_FALSE(has_few_queries(attention({{1, 40}}, {2, 1, 136})));
  CachedAttention wide = attention({{1, 40}}, {2, 1, 64});
  wide.q = source_.normal(DType::kF32, {1, 2, 64});
  EXPECT_FALSE(has_few_queries(wide));
}

}  // namespace
}  // namespace piton::cuda
