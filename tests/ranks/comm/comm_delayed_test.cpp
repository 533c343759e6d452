// ranks: 2
// Collectives run in stream order. On a device with delayed work, a collective that starts before
// earlier work, or later work that starts before the collective has ended, would read old bytes.
#include <cstdio>
#include <cstring>
#include <vector>

#include "ranks/launched_world.h"
#include "support/delayed_device.h"

namespace piton {

int failures(World& world, Device& device, Communicator& group) {
  Arena arena(device);
  auto stream = device.make_stream();
  auto other = device.make_stream();
  const std::int64_t n = 70'000;
  const int me = world.rank();
  const int next = (me + 1) % world.size();
  const int before = (me + world.size() - 1) % world.size();
  const Tensor data = arena.allocate(DType::kF32, {n}, MemoryKind::kActivations);
  const Tensor in = arena.allocate(DType::kF32, {n}, MemoryKind::kActivations);
  const Tensor all = arena.allocate(DType::kF32, {n * world.size()}, MemoryKind::kActivations);
  std::vector<float> host(n);
  std::vector<float> back(n * world.size());
  int failed = 0;
  for (int round = 0; round < 10; ++round) {
    for (float& x : host) x = static_cast<float>(me * 100 + round);
    device.upload(host.data(), data, *stream);
    const Event received = group.receive(in, before, round, *other);
    const Event sent = group.send(data, next, round, *stream);
    const Event gathered = group.all_gather(all, data, *stream);
    stream->wait(sent);
    stream->wait(gathered);
    const Event reduced = group.all_reduce(data, Reduction::kSum, *stream);
    other->wait(received);
    other->wait(reduced);
    float sum = 0;
    for (int m = 0; m < world.size(); ++m) sum += static_cast<float>(m * 100 + round);
    device.download(data, back.data(), *other);
    failed += back[0] != sum || back[n - 1] != sum;
    device.download(in, back.data(), *other);
    failed += back[0] != static_cast<float>(before * 100 + round) || back[n - 1] != back[0];
    device.download(all, back.data(), *other);
    for (int m = 0; m < world.size(); ++m) {
      failed += back[n * m] != static_cast<float>(m * 100 + round);
      failed += back[n * (m + 1) - 1] != static_cast<float>(m * 100 + round);
    }
    stream->wait(other->record());
  }
  stream->synchronize();
  return failed;
}

int run() {
  DelayedDevice device(11);
  auto world = ranks::make_launched_world(device, {.timeout_seconds = 60});
  std::vector<int> ranks;
  for (int rank = 0; rank < world->size(); ++rank) ranks.push_back(rank);
  auto group = world->make_group(ranks, "everyone");
  int failed = failures(*world, device, *group);
  if (failed > 0) std::fprintf(stderr, "[rank %d] %d wrong values\n", world->rank(), failed);
  for (const std::string& its : group->gather_bytes(std::to_string(failed))) failed += its != "0";
  return failed > 0;
}

}  // namespace piton

int main() { return piton::run(); }
