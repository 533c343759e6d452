// A wrong argument is reported by name before any back end gets the call.
#include <gtest/gtest.h>

#include "device/host_device.h"
#include "device/meta_device.h"
#include "kernels/meta/kernels.h"

namespace piton {
namespace {

Tensor fp32(const Shape& shape) { return host_tensor(DType::kF32, shape); }
Tensor bf16(const Shape& shape) { return host_tensor(DType::kBF16, shape); }
Tensor int32(const Shape& shape) { return host_tensor(DType::kI32, shape); }

LinearForward linear(const Tensor& y, const Tensor& x, const Tensor& w) {
  return {
      .y = y, .x = x, .weight = {.tensor = w, .out = w.dim(0), .in = w.dim(1), .dtype = w.dtype()}};
}

TEST(KernelChecksDeathTest, NameTheCallTheTensorAndWhatWasWanted) {
  check(linear(fp32({2, 3}), fp32({2, 4}), fp32({3, 4})));
  EXPECT_DEATH(check(linear(fp32({2, 2}), fp32({2, 4}), fp32({3, 4}))),
               "linear forward: y is fp32 \\[2, 2\\], wanted \\[2, 3\\]");
  EXPECT_DEATH(check(linear(fp32({2, 3}), fp32({2, 4}), bf16({3, 4}))),
               "linear forward: the weight is bf16, wanted fp32");
  EXPECT_DEATH(check(linear(Tensor(), fp32({2, 4}), fp32({3, 4}))), "linear forward: y is missing");
  EXPECT_DEATH(check(linear(fp32({2, 3}), int32({2, 4}), fp32({3, 4}))), "wanted a floating type");
  LinearForward packed = linear(fp32({2, 3}), fp32({2, 4}), fp32({3, 4}));
  packed.weight.form = WeightForm::kBackward;
  EXPECT_DEATH(check(packed), "packed for the other direction");
}

TEST(KernelChecksDeathTest, RefuseMixedDevices) {
  MetaDevice device;
  Arena arena(device);
  const Tensor elsewhere = arena.allocate(DType::kF32, {2, 3}, MemoryKind::kWorkspace);
  EXPECT_DEATH(check(Copy{.dst = fp32({2, 3}), .src = elsewhere}),
               "copy: src is on another device");
}

TEST(KernelChecksDeathTest, RefuseLayoutsThatNoBackEndReads) {
  const Tensor wide = fp32({2, 8});
  check(linear(fp32({2, 3}), wide.slice(1, 0, 4), fp32({3, 4})));  // strided rows are fine
  EXPECT_DEATH(check(Add{.y = fp32({2, 4}), .a = wide.slice(1, 0, 4), .b = fp32({2, 4})}),
               "add: a fp32 \\[2, 4\\] has gaps");
  const Tensor columns = fp32({4, 2, 8}).select(2, 0);
  EXPECT_DEATH(check(linear(fp32({4, 3}), columns, fp32({3, 2}))), "not next to each other");
}

TEST(KernelChecksDeathTest, RefuseAccumulatorsThatAreTooNarrow) {
  EXPECT_DEATH(
      check(LinearBackwardWeight{.dweight = bf16({3, 4}), .dy = bf16({2, 3}), .x = bf16({2, 4})}),
      "dweight is bf16 \\[3, 4\\], wanted fp32");
}

TEST(KernelChecksDeathTest, RefuseImpossibleAttention) {
  AttentionForward call{.out = fp32({1, 2, 4, 8}),
                        .lse = fp32({1, 4, 2}),
                        .q = fp32({1, 2, 4, 8}),
                        .k = fp32({1, 2, 3, 8}),
                        .v = fp32({1, 2, 3, 8})};
  EXPECT_DEATH(check(call), "4 query heads on 3 key heads");
  call.k = call.v = fp32({1, 2, 2, 8});
  check(call);
  call.mask.query_segments = int32({1, 2});
  EXPECT_DEATH(check(call), "segments of queries without segments of keys");
  call.mask = {};
  call.dropout.probability = 1;
  EXPECT_DEATH(check(call), "probability 1");
  call.dropout.probability = 0.5;
  EXPECT_DEATH(check(call), "consumed_samples is missing");
}

TEST(KernelChecksDeathTest, RefuseATriangleOfWhatIsNotCausal) {
  AttentionForward call{.out = fp32({1, 4, 1, 2}),
                        .lse = fp32({1, 1, 4}),
                        .q = fp32({1, 4, 1, 2}),
                        .k = fp32({1, 4, 1, 2}),
                        .v = fp32({1, 4, 1, 2}),
                        .block_rows = 2};
  check(call);
  call.mask.causal = false;
  EXPECT_DEATH(check(call), "attention forward: keys behind a block of the triangle are not read");
  call.mask = {.query_begin = 1};
  EXPECT_DEATH(check(call), "from position 0 on");
  call.block_rows = -1;
  EXPECT_DEATH(check(call), "blocks of -1 rows");
}

TEST(KernelChecksDeathTest, RefuseACacheOfOtherPages) {
  EXPECT_DEATH(
      check(CacheAppend{.keys = fp32({1, 4, 1, 1}), .k = fp32({1, 1, 1}), .slots = int32({1})}),
      "cache append: pages of 4 rows, wanted 64");
  CacheAppend append{.keys = fp32({1, 64, 1, 4}),
                     .values = fp32({1, 64, 1, 4}),
                     .k = fp32({1, 1, 4}),
                     .v = fp32({1, 1, 4}),
                     .slots = int32({1}),
                     .q = fp32({1, 2, 4}),
                     .positions = int32({1}),
                     .cosine = fp32({9, 2}),
                     .sine = fp32({9, 2})};
  check(append);
  append.first_channel = 2;
  EXPECT_DEATH(check(append), "cache append: 4 channels from 2 on of 4");
  append.q = {};
  EXPECT_DEATH(check(append), "cache append: angles without queries");
  CachedAttention call{.out = fp32({3, 2, 8}),
                       .q = fp32({3, 2, 8}),
                       .keys = fp32({2, 64, 1, 8}),
                       .values = fp32({2, 64, 1, 8}),
                       .begins = int32({3}),
                       .lengths = int32({2}),
                       .table = int32({2, 5})};
  check(call);
  call.begins = int32({2});
  EXPECT_DEATH(check(call), "begins");
  call.begins = int32({3});
  call.table = int32({3, 5});
  EXPECT_DEATH(check(call), "for 2 samples");
}

TEST(KernelChecksDeathTest, RefuseLatentsThatAreNotTheBeginningOfOneKey) {
  CachedAttention call{.out = fp32({3, 2, 6}),
                       .q = fp32({3, 2, 8}),
                       .keys = fp32({2, 64, 1, 8}),
                       .begins = int32({3}),
                       .lengths = int32({2}),
                       .table = int32({2, 5}),
                       .pairs = 10};
  check(call);
  EXPECT_EQ(call.flops(), 2 * 2 * (8 + 6) * 10);
  call.slopes = fp32({2});
  EXPECT_DEATH(check(call), "slopes or a bias, and latents");
  call.slopes = {};
  call.values = fp32({2, 64, 1, 8});
  EXPECT_DEATH(check(call), "out");
  call.values = {};
  call.keys = fp32({2, 64, 2, 8});
  EXPECT_DEATH(check(call), "latents of 6 channels");
}

TEST(KernelChecksDeathTest, RefuseAGatedLinearOfUnequalHalves) {
  GatedLinear call{.y = fp32({2, 3}),
                   .x = fp32({2, 4}),
                   .weight = {.tensor = fp32({6, 4}), .out = 6, .in = 4, .dtype = DType::kF32}};
  check(call);
  EXPECT_EQ(call.flops(), 2 * 2 * 6 * 4);
  call.weight.out = 5;
  EXPECT_DEATH(check(call), "gated linear: 1 matrices of 5 rows");
}

TEST(KernelCalls, CountMultiplyAddsAsTwo) {
  const auto forward = linear(fp32({5, 3}), fp32({5, 4}), fp32({3, 4}));
  EXPECT_EQ(flops(forward), 2 * 5 * 3 * 4);
  EXPECT_EQ(
      flops(LinearBackwardWeight{.dweight = fp32({3, 4}), .dy = fp32({5, 3}), .x = fp32({5, 4})}),
      2 * 5 * 3 * 4);
  AttentionForward attention{.q = fp32({2, 6, 4, 8}), .k = fp32({2, 6, 2, 8})};
  const double square = 2.0 * 2 * 4 * 8 * 6 * 6;  // one product of all pairs
  EXPECT_EQ(flops(attention), 2 * square / 2);    // causal: half
  attention.mask.causal = false;
  EXPECT_EQ(flops(attention), 2 * square);
  attention.mask.window_before = attention.mask.window_after = 0;  // the diagonal
  EXPECT_EQ(flops(attention), 2 * square / 6);
  AttentionForward cached{.q = fp32({1, 1, 1, 1}), .k = fp32({1, 10, 1, 1})};
  cached.mask.query_begin = 6;  // sees keys 0 .. 6
  EXPECT_EQ(flops(cached), 2 * 2 * 7);
  EXPECT_EQ(flops(AttentionBackward{.q = cached.q, .k = cached.k, .mask = cached.mask}), 4 * 2 * 7);
}

TEST(KernelCalls, MoveUpdatedBytesTwice) {
  EXPECT_EQ(bytes_moved(Copy{.dst = bf16({8}), .src = fp32({8})}), 16 + 32);
  EXPECT_EQ(
      bytes_moved(EmbeddingBackward{.dtable = fp32({4, 2}), .dy = bf16({3, 2}), .ids = int32({3})}),
      2 * 32 + 12 + 12);
}

TEST(MetaKernels, CountWhatTheyDoNotCompute) {
  MetaDevice device;
  Arena arena(device);
  const auto stream = device.make_stream();
  const auto make = [&](const Shape& shape) {
    return arena.allocate(DType::kBF16, shape, MemoryKind::kActivations);
  };
  MetaKernels kernels;
  const auto call = linear(make({1000, 3000}), make({1000, 2000}), make({3000, 2000}));
  kernels.run(call, *stream);
  kernels.run(call, *stream);
  kernels.run(Add{.y = call.y, .a = call.y, .b = call.y}, *stream);
  EXPECT_EQ(kernels.counts().of("linear forward").calls, 2);
  EXPECT_EQ(kernels.counts().of("linear forward").flops, 2 * 2.0 * 1000 * 2000 * 3000);
  EXPECT_EQ(kernels.counts().of("add").bytes_moved, 3 * 2 * 1000 * 3000);
  EXPECT_EQ(kernels.counts().of("norm forward").calls, 0);
  EXPECT_EQ(kernels.counts().total().calls, 3);
  EXPECT_EQ(kernels.packed_bytes(WeightForm::kForward, 8, 8, DType::kF32), 0);
  EXPECT_EQ(kernels.row_tile(), 1);
  kernels.counts().clear();
  EXPECT_EQ(kernels.counts().total().calls, 0);
}

}  // namespace
}  // namespace piton
