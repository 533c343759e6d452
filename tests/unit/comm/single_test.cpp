#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "comm/communicator.h"
#include "device/host_device.h"
#include "device/meta_device.h"
#include "support/delayed_device.h"

namespace piton {
namespace {

Tensor numbers(std::int64_t count) {
  const Tensor t = host_tensor(DType::kF32, {count});
  for (std::int64_t i = 0; i < count; ++i) t.data<float>()[i] = static_cast<float>(i) + 1;
  return t;
}

TEST(SingleCommunicator, CollectivesCopyOrDoNothing) {
  HostDevice device;
  auto world = make_single_world(device);
  const int self[] = {0};
  auto group = world->make_group(self, "tensor");
  auto stream = device.make_stream();
  EXPECT_EQ(group->name(), "tensor");
  EXPECT_EQ(group->size(), 1);
  const Tensor mine = numbers(5);
  const Tensor out = host_tensor(DType::kF32, {5});
  group->all_gather(out, mine, *stream).wait();
  EXPECT_EQ(std::memcmp(out.raw(), mine.raw(), 20), 0);
  std::memset(out.raw(), 0, 20);
  group->reduce_scatter(out, mine, *stream).wait();
  EXPECT_EQ(std::memcmp(out.raw(), mine.raw(), 20), 0);
  group->all_reduce(mine, Reduction::kSum, *stream).wait();
  group->reduce_scatter(mine, mine, *stream).wait();
  group->broadcast(mine, 0, *stream).wait();
  group->all_gather(mine, mine, *stream).wait();
  EXPECT_EQ(std::memcmp(out.raw(), mine.raw(), 20), 0);
  RowCounts counts(1);
  counts.at(0, 0) = 2;
  const Tensor rows = out.reshape({5, 1});
  std::memset(rows.raw(), 0, 20);
  group->all_to_all_rows(rows, mine.reshape({5, 1}), counts, *stream).wait();
  EXPECT_EQ(std::memcmp(out.raw(), mine.raw(), 8), 0);
  EXPECT_EQ(out.data<float>()[2], 0);
  EXPECT_EQ(group->gather_bytes("me"), std::vector<std::string>{"me"});
  group->barrier();
  EXPECT_EQ(group->traffic().collectives, 0);
}

TEST(SingleCommunicator, MessagesToOneselfMatchByTagInOrder) {
  HostDevice device;
  auto group = make_single_communicator(device, "pipeline");
  auto stream = device.make_stream();
  const Tensor early = host_tensor(DType::kF32, {3});
  const Event received = group->receive(early, 0, 7, *stream);
  EXPECT_FALSE(received.complete());
  const Tensor a = numbers(3);
  const Tensor b = numbers(6).slice(0, 3, 3);
  group->send(a, 0, 8, *stream).wait();
  group->send(b, 0, 8, *stream).wait();
  group->send(b, 0, 7, *stream).wait();
  received.wait();
  EXPECT_EQ(std::memcmp(early.raw(), b.raw(), 12), 0);
  group->receive(early, 0, 8, *stream).wait();
  EXPECT_EQ(std::memcmp(early.raw(), a.raw(), 12), 0);
  group->receive(early, 0, 8, *stream).wait();
  EXPECT_EQ(std::memcmp(early.raw(), b.raw(), 12), 0);
}

// On a device whose work runs late, a copy that does not wait for the stream finds old bytes.
TEST(SingleCommunicator, WorksInTheOrderOfTheStream) {
  DelayedDevice device(7);
  Arena arena(device);
  auto group = make_single_communicator(device, "data");
  auto stream = device.make_stream();
  const Tensor mine = arena.allocate(DType::kF32, {1000}, MemoryKind::kActivations);
  const Tensor out = arena.allocate(DType::kF32, {1000}, MemoryKind::kActivations);
  const Tensor host = numbers(1000);
  std::vector<float> back(1000);
  device.upload(host.raw(), mine, *stream);
  const Event gathered = group->all_gather(out, mine, *stream);
  auto other = device.make_stream();
  other->wait(gathered);
  device.download(out, back.data(), *other);
  EXPECT_EQ(std::memcmp(back.data(), host.raw(), 4000), 0);
  // And in that of the events.
  device.zero(out, *stream);
  for (int i = 0; i < 20; ++i) device.upload(host.raw(), mine, *other);
  device.zero(mine, *other);
  const Event zeroed = other->record();
  const Event copied = group->all_gather(out, mine, After(*stream, {zeroed}));
  other->wait(copied);
  device.download(out, back.data(), *other);
  EXPECT_EQ(std::ranges::count(back, 0.0F), 1000);
  device.upload(host.raw(), mine, *stream);
  device.zero(out, *stream);
  const Event sent = group->send(mine, 0, 1, *stream);
  const Event received = group->receive(out, 0, 1, *other);
  other->wait(received);
  other->wait(sent);
  device.download(out, back.data(), *other);
  EXPECT_EQ(std::memcmp(back.data(), host.raw(), 4000), 0);
}

TEST(SingleCommunicator, TouchesNoMemoryThatIsNotThere) {
  MetaDevice device;
  Arena arena(device);
  auto group = make_single_communicator(device, "data");
  auto stream = device.make_stream();
  const Tensor mine = arena.allocate(DType::kF32, {1000}, MemoryKind::kActivations);
  const Tensor out = arena.allocate(DType::kF32, {1000}, MemoryKind::kActivations);
  group->all_gather(out, mine, *stream).wait();
  group->send(mine, 0, 1, *stream).wait();
  group->receive(out, 0, 1, *stream).wait();
}

TEST(SingleCommunicator, SymmetricMemoryIsItsOwnPeer) {
  HostDevice device;
  auto group = make_single_communicator(device, "data");
  auto memory = group->allocate_symmetric(100);
  EXPECT_EQ(memory->mine().bytes(), 100);
  EXPECT_EQ(memory->peer(0).raw(), memory->mine().raw());
  memory->signal(0, 3);
  memory->signal(0, 3);
  memory->wait(3, 2);
}

}  // namespace
}  // namespace piton
