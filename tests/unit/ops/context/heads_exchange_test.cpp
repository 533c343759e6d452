// How much of the exchanges of heads, and of the gathers of keys, attention hides if heads travel
// in slices: by the clock of ranks that do not exist, on a device without memory.
#include <gtest/gtest.h>

#include <memory>

#include "comm/virtual/simulated_clock.h"
#include "comm/virtual/world.h"
#include "device/meta_device.h"
#include "kernels/meta/kernels.h"
#include "ops/context/context_attention.h"
#include "support/counting_kernels.h"

namespace piton::heads_exchange_test {
namespace {

constexpr int kRanks = 2;
constexpr std::int64_t kRows = 4096;  // of the sample, on all ranks
constexpr std::int64_t kHeads = 32, kGroups = 16, kHeadSize = 64;

// Links on which an exchange of all heads takes `share` of the time of attention, forward.
LinkTimes times(bool gathers, int slices, double share, bool backward) {
  MetaDevice device;
  // Operations of attention on this rank: two products of half of all pairs.
  const double operations = 2 * 2.0 * kHeads * kHeadSize * kRows * kRows / 2 / kRanks;
  const double bytes = 2.0 * kRows / kRanks * kHeadSize *
                       (gathers ? 2 * kGroups : (2.0 * kHeads + 2 * kGroups) / kRanks);
  const double speed = 1e12;
  const LinkSpeed link{.bytes_per_second = bytes / (share * operations / speed)};
  SimulatedClock clock({.within_hosts = link, .between_hosts = link, .ranks_of_host = kRanks});
  const auto world = make_virtual_world(0, kRanks, &clock);
  const auto all = make_group_of_all(*world, "context");
  MetaKernels meta;
  CountingKernels kernels(meta);
  kernels.after = [&](const KernelCall& call) { clock.advance(flops(call) / speed); };
  Arena arena(device);
  // Room, since an arena waits for memory of a collective that is under way before it grows, and
  // grows by less in builds with sanitizers.
  arena.allocate(DType::kBF16, {std::int64_t{1} << 28}, MemoryKind::kActivations);
  const auto stream = device.make_stream();
  ResidentWeights weights(kernels, arena);
  Tape tape;
  Context context{.kernels = kernels,
                  .stream = *stream,
                  .device = device,
                  .arena = arena,
                  .weights = weights,
                  .tape = backward ? &tape : nullptr};
  const auto rows = [&](std::int64_t heads) {
    const Tensor tensor = context.activation(DType::kBF16, {1, kRows / kRanks, heads, kHeadSize});
    return backward ? tape.leaf(tensor) : Value{tensor};
  };
  const AttentionRows parts{rows(kHeads), rows(kGroups), rows(kGroups)};
  ContextPlaces places;
  if (gathers) places.rows.query_positions = context.activation(DType::kI32, {1, kRows / kRanks});
  const Value out = attend_over_ranks(context, parts, places, {.scale = 1},
                                      {.group = all.get(),
                                       .heads = gathers ? nullptr : all.get(),
                                       .keys = gathers ? all.get() : nullptr,
                                       .gathers = gathers,
                                       .slices = slices});
  if (backward) {
    tape.seed(out, context.activation(DType::kBF16, out.tensor.shape()));
    tape.backward(context, Tape::Mode::kWhole);
  }
  return clock.times();
}

double shown(bool gathers, int slices, double share, bool backward) {
  const LinkTimes of = times(gathers, slices, share, backward);
  return of.waited_seconds / of.transfers_seconds;
}

// Of P slices the first one on the way there is waited for, and the last one on the way back.
TEST(SlicedHeads, AreWaitedForAtBothEndsAlone) {
  for (const bool gathers : {false, true}) {
    for (const bool backward : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}", gathers ? "gathered" : "exchanged",
                               backward ? "forward and backward" : "forward"));
      EXPECT_NEAR(shown(gathers, 1, 0.5, backward), 1, 1e-6);
      for (const int slices : {2, 4, 8})
        EXPECT_NEAR(shown(gathers, slices, 0.5, backward), 1.0 / slices, 1e-6) << slices;
      // Of 8 and 16 MiB; nobody says how many.
      EXPECT_NEAR(shown(gathers, 0, 0.5, backward), 0.25, 1e-6);
    }
  }
}

}  // namespace
}  // namespace piton::heads_exchange_test
