// Linears of several heads with parts of one weight, as attention to a cache of latents asks for
// them: together they have the bits of one call after another.
#include "kernels/cuda/linear/linear_parts.h"

#include <gtest/gtest.h>

#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "support/tensors.h"
#include "tensor/arena.h"

namespace piton::cuda {
namespace {

constexpr std::int64_t kHeads = 3, kOwn = 24, kValue = 16, kLatents = 40;

class EmulatedLinearParts : public testing::Test {
 protected:
  EmulatedLinearParts()
      : device_(make_device()),
        kernels_(make_kernels(*device_)),
        arena_(*device_),
        stream_(device_->make_stream()),
        weight_(on_device(source_.normal(DType::kBF16, {kHeads * (kOwn + kValue), kLatents}))),
        codes_({.kind = CodeKind::kInt8,
                .group = 8,
                .codes = on_device(
                    source_.integers({kHeads * (kOwn + kValue), kLatents}, 0, 255, DType::kU8)),
                .scales = on_device(
                    source_.normal(DType::kF32, {kHeads * (kOwn + kValue), kLatents / 8}))}) {}

  Tensor on_device(const Tensor& host) {
    const Tensor copy =
        arena_.allocate(host.dtype(), host.shape(), MemoryKind::kActivations, *stream_);
    device_->upload(host.raw(), copy, *stream_);
    stream_->synchronize();
    return copy;
  }
  // [n, kHeads, width]
  Tensor heads(std::int64_t n, std::int64_t width) {
    return on_device(source_.normal(DType::kBF16, {n, kHeads, width}));
  }
  // Rows of the weight of a head that make keys, and those that make values.
  WeightView keys_of(std::int64_t head) const { return rows(head * (kOwn + kValue), kOwn); }
  WeightView values_of(std::int64_t head) const {
    return rows(head * (kOwn + kValue) + kOwn, kValue);
  }
  WeightView coded_values_of(std::int64_t head) const {
    WeightView view = values_of(head);
    view.form = WeightForm::kCodes;
    view.codes = codes_;
    view.codes.codes = codes_.codes.slice(0, head * (kOwn + kValue) + kOwn, kValue);
    view.codes.scales = codes_.scales.slice(0, head * (kOwn + kValue) + kOwn, kValue);
    view.tensor = {};
    return view;
  }
  WeightView rows(std::int64_t begin, std::int64_t count) const {
    return {.tensor = weight_.slice(0, begin, count),
            .out = count,
            .in = kLatents,
            .dtype = DType::kBF16};
  }

  template <typename CallOf>
  static std::vector<CallChain> chains(const CallOf& call_of) {
    std::vector<CallChain> all(kHeads);
    for (std::int64_t head = 0; head < kHeads; ++head)
      all[static_cast<std::size_t>(head)].emplace_back(call_of(head));
    return all;
  }

  // `launches`: of kernels of this folder, which products of the library are not.
  void expect_together(const std::vector<CallChain>& chains, const Tensor& y,
                       std::uint32_t launches) {
    ASSERT_TRUE(linear_parts(chains));
    for (const CallChain& chain : chains) kernels_->run(chain[0], *stream_);
    stream_->synchronize();
    const std::vector<double> wanted = test::values(y);
    test::assign(y, std::vector<double>(wanted.size(), -7));
    emulator::GuardedKernels guarded(*kernels_);
    const std::uint32_t before = emulator::launches();
    guarded.run_chains(chains, *stream_);
    stream_->synchronize();
    EXPECT_EQ(test::values(y), wanted);
    EXPECT_EQ(emulator::launches() - before, launches);
  }

  test::TensorSource source_{37, /*awkward=*/false};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Kernels> kernels_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  Tensor weight_;
  WeightCodes codes_;
};

TEST_F(EmulatedLinearParts, HaveTheBitsOfOneCallAfterAnother) {
  for (const std::int64_t n : {1, 5, 16, 40}) {
    SCOPED_TRACE(n);
    const std::uint32_t launches = n <= 16 ? 1 : 0;
    const Tensor x = heads(n, kLatents);
    const Tensor y = heads(n, kValue);
    const auto forward = [&](std::int64_t head, const WeightView& weight) {
      return LinearForward{.y = y.select(1, head), .x = x.select(1, head), .weight = weight};
    };
    expect_together(chains([&](std::int64_t head) { return forward(head, values_of(head)); }), y,
                    launches);
    const auto coded =
        chains([&](std::int64_t head) { return forward(head, coded_values_of(head)); });
    if (n <= 16) {
      expect_together(coded, y, launches);
    } else {
      EXPECT_FALSE(linear_parts(coded)) << "expanded one by one";
    }
    const Tensor dy = heads(n, kOwn);
    const Tensor dx = heads(n, kLatents);
    expect_together(chains([&](std::int64_t head) {
                      return LinearBackwardInput{.dx = dx.select(1, head),
                                                 .dy = dy.select(1, head),
                                                 .weight = keys_of(head)};
                    }),
                    dx, 0);
  }
}

TEST_F(EmulatedLinearParts, AreNotThoseOfOtherChains) {
  const Tensor x = heads(4, kLatents);
  const Tensor y = heads(4, kValue);
  const auto forward = [&](std::int64_t head) {
    return LinearForward{.y = y.select(1, head), .x = x.select(1, head), .weight = values_of(head)};
  };
  const std::vector<CallChain> all = chains(forward);
  EXPECT_TRUE(linear_parts(all));
  EXPECT_FALSE(linear_parts({}));
  EXPECT_FALSE(linear_parts(std::span(all).first(1)));
  std::vector<CallChain> other = all;
  other[1].push_back(other[1][0]);
  EXPECT_FALSE(linear_parts(other)) << "two calls";
  other = all;
  std::swap(other[1], other[2]);
  EXPECT_FALSE(linear_parts(other)) << "other distances";
  other = all;
  std::get<LinearForward>(other[2][0]).residual = y.select(1, 2);
  EXPECT_FALSE(linear_parts(other)) << "a residual";
  other = all;
  std::get<LinearForward>(other[0][0]).weight = rows(8, kValue);
  EXPECT_FALSE(linear_parts(other)) << "another part of the weight";
  // Rows that begin elsewhere than at multiples of 16 bytes are aligned differently.
  const Tensor odd = heads(4, kLatents + 4).slice(2, 0, kLatents);
  EXPECT_FALSE(linear_parts(chains([&](std::int64_t head) {
    LinearForward call = forward(head);
    call.x = odd.select(1, head);
    return call;
  })));
}

}  // namespace
}  // namespace piton::cuda
