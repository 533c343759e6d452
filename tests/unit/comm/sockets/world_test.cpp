#include "comm/sockets/world.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "comm/sockets/messages_over_tcp.h"
#include "device/host_device.h"
#include "processes/forked_ranks.h"

namespace piton {
namespace {

using test::RankEnd;
using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kPeerCode = static_cast<int>(Fault::kPeer);

// A world and the group of all its ranks.
struct Joined {
  Joined(int port, int rank, int size, const RankOptions& options)
      : world(make_socket_world(
            device, options, {.address = "127.0.0.1", .port = port, .rank = rank, .size = size})) {
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    group = world->make_group(all, "everyone");
    stream = device.make_stream();
  }

  HostDevice device;
  std::unique_ptr<World> world;
  std::unique_ptr<Communicator> group;
  std::unique_ptr<Stream> stream;
};

std::set<std::string> files_in_shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(SocketWorld, CountsTheRanksOfItsMachineItself) {
  const int port = test::free_port();
  for (const int per_host : {0, 1}) {
    const auto ends = run_ranks(3, [&](int rank) {
      Joined all(port, rank, 3, {.timeout_seconds = 60, .ranks_per_host = per_host});
      return fmt::format("{} of {}", all.world->host_rank(), all.world->host_size());
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ends[static_cast<std::size_t>(rank)].text, fmt::format("{} of 3", rank));
    }
  }
}

// A message that is larger than all buffers of the system, and came before its receive, after one
// of another tag.
TEST(SocketWorld, MessagesBetweenHostsWaitForTheirReceive) {
  const int port = test::free_port();
  const auto ends = run_ranks(2, [&](int rank) {
    Joined all(port, rank, 2, {.timeout_seconds = 60, .ranks_per_host = 1});
    constexpr std::int64_t kMany = 12'000'000;
    const Tensor large = host_tensor(DType::kF32, {kMany});
    const Tensor small = host_tensor(DType::kF32, {1});
    const Tensor nothing = host_tensor(DType::kF32, {0});
    std::string got;
    if (rank == 0) {
      for (std::int64_t i = 0; i < kMany; ++i) large.data<float>()[i] = static_cast<float>(i % 977);
      small.data<float>()[0] = 7;
      const Event sent = all.group->send(large, 1, 1, *all.stream);
      all.group->send(nothing, 1, 3, *all.stream).wait();
      all.group->send(small, 1, 2, *all.stream).wait();
      sent.wait();
    } else {
      all.group->receive(small, 0, 2, *all.stream).wait();  // arrives behind the large one
      all.group->receive(nothing, 0, 3, *all.stream).wait();
      all.group->receive(large, 0, 1, *all.stream).wait();
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < kMany; ++i) {
        wrong += large.data<float>()[i] != static_cast<float>(i % 977) ? 1 : 0;
      }
      got = fmt::format("{} and {} wrong", small.data<float>()[0], wrong);
    }
    all.group->barrier();
    return got;
  });
  EXPECT_EQ(ends[0].code, 0) << ends[0].text;
  EXPECT_EQ(ends[1].text, "7 and 0 wrong");
}

TEST(SocketWorld, ARankThatIsKilledIsNamedOnEveryHostAndLeavesNothing) {
  const std::set<std::string> before = files_in_shared_memory();
  for (const int per_host : {0, 1, 2}) {
    const int port = test::free_port();
    const auto ends = run_ranks(3, [&](int rank) {
      Joined all(port, rank, 3, {.timeout_seconds = 60, .ranks_per_host = per_host});
      const Tensor data = host_tensor(DType::kF32, {300'000});
      all.group->all_reduce(data, Reduction::kSum, *all.stream).wait();
      if (rank == 1) ::kill(::getpid(), SIGKILL);
      try {
        all.group->all_reduce(data, Reduction::kSum, *all.stream).wait();
      } catch (const Error& error) {
        const std::string text = error.what();
        all.world->fail(kPeerCode, text);
        return text;
      }
      return std::string("not noticed");
    });
    EXPECT_EQ(ends[1].code, -1);
    // The first survivor that notices may end before the other one has.
    EXPECT_THAT(ends[0].text + ends[2].text, HasSubstr("rank 1")) << per_host;
    for (const int rank : {0, 2}) {
      EXPECT_THAT(ends[static_cast<std::size_t>(rank)].text, HasSubstr("comm: rank "));
    }
  }
  for (const std::string& name : files_in_shared_memory()) {
    EXPECT_TRUE(before.contains(name) || name.find("piton ranks") == std::string::npos) << name;
  }
}

TEST(SocketWorld, SaysOfWhichRankTheMessageHasAnotherLength) {
  const int port = test::free_port();
  const auto ends = run_ranks(2, [&](int rank) {
    Joined all(port, rank, 2, {.timeout_seconds = 20, .ranks_per_host = 1});
    const Tensor data = host_tensor(DType::kF32, {rank == 0 ? 10 : 20});
    if (rank == 0) {
      all.group->send(data, 1, 5, *all.stream).wait();
    } else {
      all.group->receive(data, 0, 5, *all.stream).wait();
    }
    all.group->barrier();
    return std::string();
  });
  EXPECT_EQ(ends[1].code, kPeerCode);
  EXPECT_THAT(ends[1].text,
              HasSubstr("a message of 40 bytes came from rank 0 (tag 5), wanted 80 bytes"));
}

// A connection to `port` of this host that sends `bytes`.
void send_to(int port, const std::string& bytes) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  ::close(descriptor);
}

TEST(MessagesOverTcp, DoNotListenToStrangers) {
  MessagesOverTcp one(0, ReachedFrom::kThisHost);
  MessagesOverTcp other(1, ReachedFrom::kAnywhere);
  const std::vector<RankAddress> all = {
      {.host = "127.0.0.1", .port = one.own_address().port, .token = one.own_address().token},
      {.host = "127.0.0.1", .port = other.own_address().port, .token = other.own_address().token}};
  one.set_addresses(all);
  other.set_addresses(all);
  send_to(all[1].port, "GET / HTTP/1.1\r\nHost: of nobody\r\n\r\n");
  send_to(all[1].port, std::string(1000, '\0'));
  send_to(all[1].port, "x");
  std::array<std::byte, 100> sent{};
  std::array<std::byte, 100> received{};
  sent.fill(std::byte{42});
  const auto receives = other.receive({.channel = 9, .other = 0, .tag = 1}, received.data(), 100);
  for (int i = 0; i < 20; ++i) other.progress();
  EXPECT_FALSE(receives->done());
  const auto sends = one.send({.channel = 9, .other = 1, .tag = 1}, sent.data(), 100);
  for (int i = 0; i < 10000 && !(sends->done() && receives->done()); ++i) {
    one.progress();
    other.progress();
  }
  EXPECT_TRUE(receives->done());
  EXPECT_EQ(received, sent);
  EXPECT_FALSE(other.failure());
}

// Two channels, and two messages of one of them.
TEST(MessagesOverTcp, AreMatchedByChannelAndTagInTheirOrder) {
  MessagesOverTcp one(0, ReachedFrom::kThisHost);
  MessagesOverTcp other(1, ReachedFrom::kAnywhere);
  std::vector<RankAddress> all = {one.own_address(), other.own_address()};
  for (RankAddress& address : all) address.host = "127.0.0.1";
  one.set_addresses(all);
  other.set_addresses(all);
  const std::array<std::int64_t, 4> sent = {10, 11, 12, 13};
  std::array<std::int64_t, 4> received{};
  const auto bytes = [](auto& number) { return reinterpret_cast<std::byte*>(&number); };
  const MessagesOverTcp::Label labels[] = {{8, 1, 1}, {8, 1, 1}, {9, 1, 1}, {8, 1, 2}};
  std::vector<std::unique_ptr<Transfer>> open;
  for (std::size_t i = 0; i < 4; ++i) {
    open.push_back(one.send(labels[i], reinterpret_cast<const std::byte*>(&sent[i]), 8));
  }
  // The last one first: the others are then kept.
  const auto receive = [&](std::size_t i) {
    return other.receive({labels[i].channel, 0, labels[i].tag}, bytes(received[i]), 8);
  };
  open.push_back(receive(3));
  for (int i = 0; i < 10000 && !open.back()->done(); ++i) {
    one.progress();
    other.progress();
  }
  ASSERT_TRUE(open.back()->done());
  for (const std::size_t i : {2U, 0U, 1U}) {
    EXPECT_TRUE(receive(i)->done()) << i;
  }
  EXPECT_EQ(received, sent);
}

TEST(MessagesOverTcp, AreDroppedAfterAFailure) {
  MessagesOverTcp one(0, ReachedFrom::kThisHost);
  MessagesOverTcp other(1, ReachedFrom::kAnywhere);
  std::vector<RankAddress> all = {one.own_address(), other.own_address()};
  for (RankAddress& address : all) address.host = "127.0.0.1";
  one.set_addresses(all);
  other.set_addresses(all);
  std::int64_t received = 5;
  const std::int64_t sent = 6;
  const auto receives =
      other.receive({1, 0, 1}, reinterpret_cast<std::byte*>(&received), sizeof received);
  other.drop();
  const auto sends = one.send({1, 1, 1}, reinterpret_cast<const std::byte*>(&sent), sizeof sent);
  for (int i = 0; i < 100; ++i) {
    one.progress();
    other.progress();
  }
  EXPECT_FALSE(receives->done());
  EXPECT_EQ(received, 5);
  EXPECT_FALSE(other.receive({1, 0, 2}, reinterpret_cast<std::byte*>(&received), 8)->done());
}

}  // namespace
}  // namespace piton
