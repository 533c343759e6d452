// Attention to a cache of latents: against the reference at the edges of its tiles, steps and
// chunks, and the bits of a row next to others.
#include "kernels/cuda/attention/latents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "ops/call_cases.h"
#include "ops/call_runner.h"
#include "support/compare.h"
#include "support/errors.h"
#include "support/tensors.h"

namespace piton::cuda {
namespace {

struct LatentText {
  std::int64_t rows;
  std::int64_t keys;
};

struct LatentHeads {
  std::int64_t heads;
  std::int64_t latents;
  std::int64_t others;
};

class EmulatedLatents : public testing::Test {
 protected:
  EmulatedLatents() : device_(make_device()), kernels_(make_kernels(*device_)) {}

  // Texts of up to 640 tokens; all have the same ten pages, in an order that is not theirs.
  CachedAttention attention(DType dtype, const std::vector<LatentText>& texts,
                            const LatentHeads& sizes, bool coded = false) {
    std::vector<double> begins{0}, lengths, table;
    for (const LatentText& text : texts) {
      begins.push_back(begins.back() + static_cast<double>(text.rows));
      lengths.push_back(static_cast<double>(text.keys));
      for (std::int64_t i = 0; i < kPages; ++i)
        table.push_back(static_cast<double>(i * 7 % kPages));
    }
    const auto b = std::ssize(texts);
    const auto n = static_cast<std::int64_t>(begins.back());
    const std::int64_t d = sizes.latents + sizes.others;
    const Shape shape{kPages, 1, kCachePage, d};
    CachedAttention call{
        .out = source_.normal(dtype, {n, sizes.heads, sizes.latents}),
        .lse = source_.normal(DType::kF32, {sizes.heads, n}),
        .q = source_.normal(dtype, {n, sizes.heads, d}),
        .keys = (coded ? source_.integers(shape, 0, 255, DType::kU8) : source_.normal(dtype, shape))
                    .swap_dims(1, 2),
        .begins = test::tensor_of(DType::kI32, {b + 1}, begins),
        .lengths = test::tensor_of(DType::kI32, {b}, lengths),
        .table = test::tensor_of(DType::kI32, {b, kPages}, table),
        .scale = 1 / std::sqrt(static_cast<double>(d))};
    if (coded) call.key_scales = scales(), call.value_scales = scales();
    return call;
  }

  Tensor scales() {
    const Tensor all = source_.normal(DType::kF32, {kPages, 1, kCachePage});
    for (std::int64_t i = 0; i < all.elements(); ++i)
      all.data<float>()[i] = std::abs(all.data<float>()[i]) / 127;
    return all.swap_dims(1, 2);
  }

  static constexpr std::int64_t kPages = 10;
  test::TensorSource source_{31};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Kernels> kernels_;
};

TEST_F(EmulatedLatents, AgreeWithTheReference) {
  std::vector<test::CallCase> cases;
  const auto add = [&](const std::string& name, const CachedAttention& call) {
    const std::int64_t terms = call.q.dim(2) + 640;
    cases.push_back({.name = name + ", " + std::string(piton::name(call.q.dtype())),
                     .call = call,
                     .terms = terms,
                     .narrowest = call.q.dtype(),
                     .rounded_terms = terms});
  };
  const LatentHeads lite{16, 512, 64}, small{4, 48, 16}, odd{5, 33, 6};
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    // Of a narrow tile, whose next step is copied while one is used.
    add("one row of a text", attention(dtype, {{1, 300}}, lite));
    // Ends of chunks and of steps; several tiles of a text, the last of which is not full.
    add("texts of all sizes",
        attention(dtype, {{1, 640}, {9, 9}, {1, 128}, {3, 129}, {1, 33}, {11, 257}}, small));
    add("rows that are no vectors", attention(dtype, {{1, 300}, {7, 80}}, odd));
    add("codes", attention(dtype, {{1, 500}, {9, 140}}, small, /*coded=*/true));
    add("codes that are no vectors", attention(dtype, {{1, 300}}, odd, /*coded=*/true));
    CachedAttention window = attention(dtype, {{4, 640}, {1, 20}}, small);
    window.window_before = 130;  // most chunks have no visible key, one has some
    window.soft_cap = 2;
    add("window and cap", window);
  }
  add("the widest rows", attention(DType::kF16, {{1, 70}}, {3, kMostLatents, 128}));
  emulator::GuardedKernels guarded(*kernels_);
  test::expect_agreement(guarded, *device_, cases);
}

TEST_F(EmulatedLatents, GiveARowTheSameBitsNextToAnyOtherTexts) {
  test::CallRunner runner(*kernels_, *device_);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const std::vector<LatentText> texts{{1, 300}, {5, 515}, {1, 90}};
    const CachedAttention all = attention(dtype, texts, {8, 40, 8});
    const auto whole = std::get<CachedAttention>(runner.run(all));
    std::int64_t begin = 0;
    for (const LatentText& text : texts) {
      // The text alone, in a table that ends with it: the tile of one row is a narrow one.
      const std::int64_t pages = (text.keys + kCachePage - 1) / kCachePage;
      CachedAttention one = all;
      one.out = all.out.slice(0, begin, text.rows);
      one.q = all.q.slice(0, begin, text.rows);
      one.lse = source_.normal(DType::kF32, {8, text.rows});
      one.begins =
          test::tensor_of(DType::kI32, {2}, std::vector<double>{0, static_cast<double>(text.rows)});
      one.lengths =
          test::tensor_of(DType::kI32, {1}, std::vector<double>{static_cast<double>(text.keys)});
      std::vector<double> table;
      for (std::int64_t page = 0; page < pages; ++page)
        table.push_back(static_cast<double>(page * 7 % kPages));
      one.table = test::tensor_of(DType::kI32, {1, pages}, table);
      const auto alone = std::get<CachedAttention>(runner.run(one));
      EXPECT_TRUE(test::bit_equal(alone.out, whole.out.slice(0, begin, text.rows)))
          << text.rows << " rows";
      begin += text.rows;
    }
  }
}

TEST_F(EmulatedLatents, ShowAQueryThatIsNotFinite) {
  test::CallRunner runner(*kernels_, *device_);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    CachedAttention call = attention(dtype, {{2, 300}}, {2, 48, 16});
    test::set_value(call.q, 64 + 3, std::numeric_limits<double>::quiet_NaN());  // row 0, head 1
    const auto done = std::get<CachedAttention>(runner.run(call));
    for (std::int64_t i = 0; i < done.out.elements(); ++i)
      EXPECT_EQ(std::isnan(test::value_at(done.out, i)), i / 48 == 1) << i;
  }
}

TEST_F(EmulatedLatents, WiderThanTheMemoryOfABlockAreRefused) {
  EXPECT_TRUE(kernels_->attends_to_latents(512, 64));
  EXPECT_FALSE(kernels_->attends_to_latents(520, 64));
  EXPECT_FALSE(kernels_->attends_to_latents(512, 136));
  test::CallRunner runner(*kernels_, *device_);
  for (const LatentHeads& sizes : {LatentHeads{1, 520, 8}, {1, 512, 136}}) {
    const CachedAttention call = attention(DType::kBF16, {{1, 1}}, sizes);
    EXPECT_THAT(message_of(Fault::kUsage, [&] { runner.run(call); }),
                testing::HasSubstr("wanted fp32, bf16 or fp16 and at most 512 in 640; use "
                                   "--kernels cpu"));
  }
}

// Texts of few queries are divided, and what their blocks leave is bounded.
TEST(LatentChunks, AreAtLeast128KeysAndAtMost128BlocksOfAText) {
  for (const std::int64_t queries : {1, 16, 33, 128, 1000, 4096, 5000}) {
    const std::int64_t tiles = (queries + kLatentTile - 1) / kLatentTile;
    for (const std::int64_t keys : {1, 127, 128, 129, 1000, 16384, 16385, 163840}) {
      const LatentChunks chunks = latent_chunks(queries, keys);
      EXPECT_EQ(chunks.keys % kLatentChunk, 0);
      EXPECT_GE(chunks.keys * chunks.count, keys);
      EXPECT_LT(chunks.keys * (chunks.count - 1), keys);
      EXPECT_LE(tiles * chunks.count, std::max<std::int64_t>(tiles, kLatentTextBlocks));
      if (keys <= 128 || tiles > kLatentTextBlocks / 2) {
        EXPECT_EQ(chunks.count, 1);
      }
    }
  }
  EXPECT_EQ(latent_chunks(16, 4096).count, 32);
  EXPECT_EQ(latent_chunks(128, 4096).count, 32);
  EXPECT_EQ(latent_chunks(128, 32768).count, 32);
}

}  // namespace
}  // namespace piton::cuda
