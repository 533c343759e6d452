// The products of adapters are computed while x is gathered (MindSpeed-LLM's --lora-fusion): shown
// on ranks that do not exist, whose links carry 2 GB/s without using a core.
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/virtual/world.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "ops/linear/linear.h"
#include "support/sanitizers.h"

namespace piton {
namespace {

constexpr std::int64_t kGatheredRows = 8192;
constexpr std::int64_t kColumns = 512;

// The share of the time of all transfers of a forward pass that is hidden under products. `rank`:
// of the adapter; 0: there is none.
double hidden_share(std::int64_t rank) {
  HostDevice device;
  LinkClock clock({.within_hosts = {.latency_seconds = 2e-6, .bytes_per_second = 2e9},
                   .between_hosts = {.latency_seconds = 2e-6, .bytes_per_second = 2e9},
                   .ranks_of_host = 2});
  const auto world = make_virtual_world(0, 2, &clock);
  const auto group = make_group_of_all(*world, "tensor");
  ThreadPool threads(1);
  const auto kernels = make_cpu_kernels(threads);
  Arena arena(device);
  const auto stream = device.make_stream();
  ResidentWeights weights(*kernels, arena);
  const auto parameter = [&](const char* name, const Shape& shape) {
    Parameter made;
    made.name = name;
    made.shape = shape;
    made.value = arena.allocate(DType::kF32, shape, MemoryKind::kParameters);
    device.zero(made.value, *stream);
    return made;
  };
  Parameter weight = parameter("weight", {kColumns / 2, kColumns});
  Parameter a = parameter("a", {std::max<std::int64_t>(rank, 1), kColumns});
  Parameter b = parameter("b", {kColumns / 2, std::max<std::int64_t>(rank, 1)});
  weight.trainable = false;
  Context context{
      .kernels = *kernels, .stream = *stream, .device = device, .arena = arena, .weights = weights};
  const Tensor x = context.activation(DType::kF32, {kGatheredRows / 2, kColumns});
  device.zero(x, *stream);
  SplitWeight split{weight, *group, {.sequence_parallel = true}};
  if (rank > 0) split.adapters.push_back({.a = a, .b = b});
  column_linear(context, {x}, split, {.output = DType::kF32});
  const LinkTimes times = clock.times();
  EXPECT_GT(times.transfers_seconds, 1e-3);
  return 1 - times.waited_seconds / times.transfers_seconds;
}

TEST(ColumnLinear, GathersXWhileItsAdaptersMultiply) {
  if (has_thread_sanitizer()) GTEST_SKIP() << "computing takes too long to wait for a link";
  // Nothing else to compute meanwhile. On a busy machine time passes anyway.
  double least = 1;
  for (int i = 0; i < 20 && least >= 0.4; ++i) least = std::min(least, hidden_share(0));
  EXPECT_LT(least, 0.4);
  EXPECT_GE(hidden_share(192), 0.5);  // x is there when A x is; what is sent of A x is waited for
}

}  // namespace
}  // namespace piton
