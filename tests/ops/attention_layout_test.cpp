// Attention in every memory layout gives the same bits, forward and backward; and samples packed
// into one row give the results of separate samples.
#include "kernels/attention_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "base/threads.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "support/compare.h"
#include "support/instruction_sets.h"

namespace piton::test {
namespace {

constexpr std::int64_t kBatch = 2, kLength = 77, kHeads = 6, kGroups = 2, kWidth = 16;

// Results as [b, s, heads, d], row-major.
struct Results {
  Tensor out, lse, dq, dk, dv;
};

class AttentionLayouts : public ::testing::TestWithParam<std::tuple<DType, std::int64_t>> {
 protected:
  AttentionLayouts()
      : dtype_(std::get<0>(GetParam())),
        threads_(2),
        kernels_(make_cpu_kernels(threads_, test::chosen_isa())),
        stream_(device_.make_stream()),
        source_(3) {
    q_ = source_.normal(dtype_, {kBatch, kLength, kHeads, kWidth});
    dout_ = source_.normal(dtype_, {kBatch, kLength, kHeads, kWidth});
    k_ = source_.normal(dtype_, {kBatch, kLength, kGroups, kWidth});
    v_ = source_.normal(dtype_, {kBatch, kLength, kGroups, kWidth});
    mask_.window_before = 30;
    mask_.slopes =
        tensor_of(DType::kF32, {kHeads}, std::vector<double>{0.5, 0.25, 0.1, 0.05, 0.02, 0.01});
  }

  // Samples [first, first + count), laid out so.
  Results run(AttentionLayout layout, std::int64_t first, std::int64_t count,
              const AttentionMask& mask) {
    const auto empty = [&](std::int64_t heads) {
      const Shape shape = attention_shape(layout, count, kLength, heads, kWidth);
      return attention_view(host_tensor(dtype_, shape), layout, heads);
    };
    const auto laid_out = [&](const Tensor& rows, std::int64_t heads) {
      const Tensor view = empty(heads);
      assign(view, values(rows.slice(0, first, count)));
      return view;
    };
    AttentionForward forward{.out = empty(kHeads),
                             .q = laid_out(q_, kHeads),
                             .k = laid_out(k_, kGroups),
                             .v = laid_out(v_, kGroups),
                             .mask = mask,
                             .scale = 0.25,
                             .block_rows = std::get<1>(GetParam())};
    forward.lse = host_tensor(DType::kF32, {forward.q.dim(0), kHeads, forward.q.dim(1)});
    kernels_->run(forward, *stream_);
    const AttentionBackward backward{.dq = empty(kHeads),
                                     .dk = empty(kGroups),
                                     .dv = empty(kGroups),
                                     .dout = laid_out(dout_, kHeads),
                                     .out = forward.out,
                                     .lse = forward.lse,
                                     .q = forward.q,
                                     .k = forward.k,
                                     .v = forward.v,
                                     .mask = mask,
                                     .scale = 0.25,
                                     .block_rows = forward.block_rows};
    kernels_->run(backward, *stream_);
    const auto plain = [&](const Tensor& view, std::int64_t heads) {
      return tensor_of(dtype_, {count, kLength, heads, kWidth}, values(view));
    };
    return {plain(forward.out, kHeads), forward.lse, plain(backward.dq, kHeads),
            plain(backward.dk, kGroups), plain(backward.dv, kGroups)};
  }

  DType dtype_;
  ThreadPool threads_;
  HostDevice device_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
  TensorSource source_;
  Tensor q_, k_, v_, dout_;
  AttentionMask mask_;
};

TEST_P(AttentionLayouts, GiveTheSameBits) {
  const Results wanted = run(AttentionLayout::kBsnd, 0, kBatch, mask_);
  EXPECT_GT(std::fabs(values(wanted.dk)[5]), 0);
  for (const auto layout : {AttentionLayout::kSbh, AttentionLayout::kBsh, AttentionLayout::kBnsd}) {
    const Results got = run(layout, 0, kBatch, mask_);
    EXPECT_TRUE(bit_equal(got.out, wanted.out)) << static_cast<int>(layout);
    EXPECT_TRUE(bit_equal(got.lse, wanted.lse)) << static_cast<int>(layout);
    EXPECT_TRUE(bit_equal(got.dq, wanted.dq)) << static_cast<int>(layout);
    EXPECT_TRUE(bit_equal(got.dk, wanted.dk)) << static_cast<int>(layout);
    EXPECT_TRUE(bit_equal(got.dv, wanted.dv)) << static_cast<int>(layout);
  }
}

// One sample packed is that sample to the bit; of two the tiles fall elsewhere, which is rounding.
TEST_P(AttentionLayouts, PackedGiveTheSamplesOnTheirOwn) {
  const Results alone = run(AttentionLayout::kTnd, 1, 1, mask_);
  const Results second = run(AttentionLayout::kBsnd, 1, 1, mask_);
  EXPECT_TRUE(bit_equal(alone.out, second.out));
  EXPECT_TRUE(bit_equal(alone.dk, second.dk));
  AttentionMask mask = mask_;
  const std::vector<std::int64_t> ends{0, kLength, kLength, 2 * kLength};  // one of them is empty
  const std::vector<std::int32_t> segments = packed_segments(ends);
  ASSERT_EQ(segments[kLength - 1], 0);
  ASSERT_EQ(segments[kLength], 2);
  mask.query_segments = host_tensor(DType::kI32, {1, 2 * kLength});
  std::copy(segments.begin(), segments.end(), mask.query_segments.data<std::int32_t>());
  mask.key_segments = mask.query_segments;
  const Results packed = run(AttentionLayout::kTnd, 0, kBatch, mask);
  const Results apart = run(AttentionLayout::kBsnd, 0, kBatch, mask_);
  const Tolerance allowed = tolerance(dtype_, kLength + kWidth, 4 * kHeads / kGroups);
  EXPECT_TRUE(close(packed.out, apart.out, allowed));
  EXPECT_TRUE(close(packed.dq, apart.dq, allowed));
  EXPECT_TRUE(close(packed.dk, apart.dk, allowed));
  EXPECT_TRUE(close(packed.dv, apart.dv, allowed));
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionLayouts,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16,
                                                              DType::kF16),
                                            ::testing::Values(0, 32)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) > 0 ? "_triangle" : "");
                         });

TEST(PackedSegmentsDeathTest, WantCumulativeLengths) {
  EXPECT_DEATH(packed_segments(std::vector<std::int64_t>{1, 2}), "begin with 0");
  EXPECT_DEATH(packed_segments(std::vector<std::int64_t>{0, 5, 3}),
               "sample 1 of a packed row has -2 rows");
}

}  // namespace
}  // namespace piton::test
