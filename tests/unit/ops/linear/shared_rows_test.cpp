// How much of the communication of a column and a row linear, forward and backward, is hidden under
// their products: measured on ranks that do not exist, whose links carry so many bytes a second
// without using a core. And memory that cannot be shared is refused.
#include "ops/linear/shared_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "comm/virtual/world.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "ops/linear/linear.h"
#include "support/errors.h"
#include "support/instruction_sets.h"
#include "support/sanitizers.h"
#include "support/tensors.h"

namespace piton {
namespace {

constexpr std::int64_t kTokens = 2048;
constexpr std::int64_t kWidth = 512;
constexpr std::int64_t kInner = 2048;  // of both ranks together

struct Hidden {
  double share = 0;  // of the time of all transfers
  double transfers_seconds = 0;
};

Hidden hidden(LinearStrategy strategy, double bytes_per_second = 2e9) {
  HostDevice device;
  const LinkSpeed link{.latency_seconds = 2e-6, .bytes_per_second = bytes_per_second};
  LinkClock clock({.within_hosts = link, .between_hosts = link, .ranks_of_host = 2});
  const auto world = make_virtual_world(0, 2, &clock);
  const auto group = make_group_of_all(*world, "tensor");
  ThreadPool threads(1);
  const auto kernels = make_cpu_kernels(threads, test::chosen_isa());
  Arena arena(device);
  // Leaves one segment for all that follows: with sanitizers a new one takes time.
  static_cast<void>(arena.allocate(DType::kF32, {16 << 20}, MemoryKind::kWorkspace));
  const auto stream = device.make_stream();
  ResidentWeights weights(*kernels, arena);
  SharedRows shared(*group, device, kTokens * kWidth * 4);
  const auto parameter = [&](const char* name, const Shape& shape) {
    Parameter made;
    made.name = name;
    made.shape = shape;
    made.value = arena.allocate(DType::kF32, shape, MemoryKind::kParameters);
    made.gradient = arena.allocate(DType::kF32, shape, MemoryKind::kGradients);
    device.zero(made.value, *stream);
    device.zero(made.gradient, *stream);
    return made;
  };
  Parameter up = parameter("up", {kInner / 2, kWidth});
  Parameter down = parameter("down", {kWidth, kInner / 2});
  Tape tape;
  Context context{.kernels = *kernels,
                  .stream = *stream,
                  .device = device,
                  .arena = arena,
                  .weights = weights,
                  .tape = &tape};
  const auto zeros = [&](std::int64_t rows) {
    const Tensor made = context.activation(DType::kF32, {rows, kWidth});
    device.zero(made, *stream);
    return made;
  };
  const std::int64_t own = strategy.sequence_parallel ? kTokens / 2 : kTokens;
  const Value x = tape.leaf(zeros(own));
  const Value between =
      column_linear(context, x, {up, *group, strategy, &shared}, {.output = DType::kF32});
  const Value y = row_linear(context, between, {down, *group, strategy, &shared}, {});
  tape.seed(y, zeros(own));
  tape.backward(context, Tape::Mode::kWhole);
  static_cast<void>(tape.take_gradient(x, context));
  const LinkTimes times = clock.times();
  return {1 - times.waited_seconds / times.transfers_seconds, times.transfers_seconds};
}

TEST(Linears, ShowTheCommunicationThatIsNotHidden) {
  if (has_thread_sanitizer()) GTEST_SKIP() << "computing takes too long to wait for a link";
  // So slow that packing weights at the same time is short on any machine.
  constexpr double kSlow = 2e7;
  const Hidden whole = hidden({.sequence_parallel = true}, kSlow);
  // Gathers of x, x again and dy, reduce-scatters of y and dx: half of the tensor each.
  EXPECT_NEAR(whole.transfers_seconds, 5 * (kTokens * kWidth * 4 / 2) / kSlow, 1e-4);
  // x and y are waited for.
  EXPECT_LT(whole.share, 0.8);
}

TEST(SlicedLinears, HideNineTenthsOfTheirCommunication) {
  EXPECT_GE(hidden({.slices = 4, .sequence_parallel = true}).share, 0.9);
  EXPECT_GE(hidden({.slices = 8}).share, 0.9);
}

TEST(SharedRows, HideNineTenthsOfTheCommunication) {
  EXPECT_GE(hidden({.slices = kFused, .sequence_parallel = true}).share, 0.9);
  EXPECT_GE(
      hidden({.slices = kFused, .sequence_parallel = true, .fused_column_backward = true}).share,
      0.9);
  EXPECT_GE(hidden({.slices = kFused}).share, 0.9);
}

TEST(SharedRows, RefuseTooManyRanks) {
  HostDevice device;
  const auto world = make_virtual_world(0, 22);
  const auto group = make_group_of_all(*world, "tensor");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { SharedRows(*group, device, 64); }),
              testing::HasSubstr("--fused-linears: 22 tensor ranks, wanted at most 21"));
}

}  // namespace
}  // namespace piton
