// ranks: 2
// Heads that travel in slices, on a device with delayed work: attention that does not wait for its
// slice, or a slice that leaves too early, computes with other numbers.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "comm/sequence_stretches.h"
#include "kernels/reference/kernels.h"
#include "ops/context/context_attention.h"
#include "ranks/launched_world.h"
#include "support/delayed_device.h"
#include "support/delayed_kernels.h"

namespace piton {
namespace {

constexpr std::int64_t kRows = 16, kHeads = 8, kGroups = 8, kHeadSize = 16;

std::vector<float> numbers(std::int64_t count, int seed) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(std::sin(static_cast<float>(seed * 131 + 7 * i)));
  return all;
}

struct Delayed {
  Device& device;
  Kernels& kernels;
  Communicator& ranks;
};

// The output, and the gradients of q, k and v.
std::vector<float> attention(const Delayed& on, bool gathers, int slices) {
  Arena arena(on.device);
  const auto stream = on.device.make_stream();
  ResidentWeights weights(on.kernels, arena);
  Tape tape;
  Context context{.kernels = on.kernels,
                  .stream = *stream,
                  .device = on.device,
                  .arena = arena,
                  .weights = weights,
                  .tape = &tape,
                  .training = true};
  const auto drawn = [&](std::int64_t heads, int seed) {
    const Tensor tensor = context.activation(DType::kF32, {1, kRows, heads, kHeadSize});
    const std::vector<float> values = numbers(tensor.elements(), seed + 5 * on.ranks.rank());
    on.device.upload(values.data(), tensor, *stream);
    return tensor;
  };
  const Value leaves[] = {tape.leaf(drawn(kHeads, 1)), tape.leaf(drawn(kGroups, 2)),
                          tape.leaf(drawn(kGroups, 3))};
  ContextPlaces places;
  if (gathers) {
    std::vector<std::int32_t> positions;
    const SequenceStretches mine{on.ranks.rank(), on.ranks.size()};
    for (const int stretch : {mine.first(), mine.second()}) {
      for (std::int64_t i = 0; i < kRows / 2; ++i)
        positions.push_back(static_cast<std::int32_t>(stretch * kRows / 2 + i));
    }
    places.rows.query_positions = context.activation(DType::kI32, {1, kRows});
    on.device.upload(positions.data(), places.rows.query_positions, *stream);
  }
  const Value out =
      attend_over_ranks(context, {leaves[0], leaves[1], leaves[2]}, places, {.scale = 0.3},
                        {.group = &on.ranks,
                         .heads = gathers ? nullptr : &on.ranks,
                         .keys = gathers ? &on.ranks : nullptr,
                         .gathers = gathers,
                         .slices = slices});
  tape.seed(out, drawn(kHeads, 4).reshape(out.tensor.shape()));
  tape.backward(context, Tape::Mode::kWhole);
  std::vector<float> all;
  const auto add = [&](const Tensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    on.device.download(tensor, values.data(), *stream);
    all.insert(all.end(), values.begin(), values.end());
  };
  add(out.tensor);
  for (const Value& leaf : leaves) add(tape.take_gradient(leaf, context));
  stream->synchronize();
  return all;
}

int failures(const Delayed& on) {
  int failed = 0;
  for (const bool gathers : {false, true}) {
    const std::vector<float> whole = attention(on, gathers, 1);
    for (const float value : whole) failed += std::isfinite(value) ? 0 : 1;
    for (int round = 0; round < 3; ++round) {
      for (const int slices : {2, 4, 8}) failed += attention(on, gathers, slices) == whole ? 0 : 1;
    }
  }
  return failed;
}

int run() {
  DelayedDevice device(12);
  auto world = ranks::make_launched_world(device, {.timeout_seconds = 60});
  const auto group = make_group_of_all(*world, "everyone");
  const auto reference = make_reference_kernels();
  DelayedKernels kernels(*reference, device);
  int failed = failures({device, kernels, *group});
  if (failed > 0) std::fprintf(stderr, "[rank %d] %d wrong values\n", world->rank(), failed);
  for (const std::string& its : group->gather_bytes(std::to_string(failed))) failed += its != "0";
  return failed > 0;
}

}  // namespace
}  // namespace piton

int main() { return piton::run(); }
