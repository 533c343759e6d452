#include "comm/rendezvous/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "comm/rendezvous/messages.h"
#include "processes/forked_ranks.h"

namespace piton {
namespace {

using test::RankEnd;
using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kPeerCode = static_cast<int>(Fault::kPeer);
constexpr int kUsageCode = static_cast<int>(Fault::kUsage);
constexpr double kLong = 60;  // seconds

MeetingPlace place(int port, int rank, int size) {
  return {.address = "127.0.0.1", .port = port, .rank = rank, .size = size};
}

std::vector<int> all_of(int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(Rendezvous, GathersTextsOfAnyLengthInTheOrderOfRanks) {
  const int port = test::free_port();
  const auto ends = run_ranks(4, [&](int rank) {
    Rendezvous ranks(place(port, rank, 4), kLong);
    std::string got;
    for (int call = 0; call < 3; ++call) {
      const std::string mine(static_cast<std::size_t>(rank * 100000),
                             static_cast<char>('a' + call));
      for (const std::string& one : ranks.gather("all", all_of(4), mine)) {
        got += std::to_string(one.size()) + (one.empty() ? "" : one.substr(0, 1)) + " ";
      }
    }
    return got;
  });
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.code, 0) << end.text;
    EXPECT_EQ(end.text,
              "0 100000a 200000a 300000a 0 100000b 200000b 300000b 0 100000c 200000c 300000c ");
  }
}

TEST(Rendezvous, OfPartsOfTheRanksDoNotWaitForTheOthers) {
  const int port = test::free_port();
  const auto ends = run_ranks(4, [&](int rank) {
    Rendezvous ranks(place(port, rank, 4), kLong);
    const std::vector<int> pair = rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    std::string got;
    for (const std::string& one : ranks.gather("pair", pair, std::to_string(rank))) got += one;
    return got;
  });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ends[static_cast<std::size_t>(rank)].text, rank % 2 == 0 ? "02" : "13");
  }
}

TEST(Rendezvous, TellsAllRanksThatOneIsLost) {
  const int port = test::free_port();
  const auto ends = run_ranks(
      3,
      [&](int rank) -> std::string {
        Rendezvous ranks(place(port, rank, 3), kLong);
        if (rank == 1) ::_exit(9);
        ranks.gather("all", all_of(3), "");
        return "";
      },
      std::chrono::seconds(20));
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ends[static_cast<std::size_t>(rank)].code, kPeerCode);
    EXPECT_THAT(ends[static_cast<std::size_t>(rank)].text, HasSubstr("rank 1 is lost"));
  }
}

TEST(Rendezvous, TellsTheOthersThatRankZeroIsLost) {
  const int port = test::free_port();
  const auto ends = run_ranks(
      2,
      [&](int rank) -> std::string {
        Rendezvous ranks(place(port, rank, 2), kLong);
        if (rank == 0) ::_exit(9);
        ranks.gather("all", all_of(2), "");
        return "";
      },
      std::chrono::seconds(20));
  EXPECT_EQ(ends[1].code, kPeerCode);
  EXPECT_THAT(ends[1].text, HasSubstr("rank 0 is lost"));
}

TEST(Rendezvous, TellsRanksThatWaitForOthersThatRankZeroIsLost) {
  const RankListener rank_zero(0);
  std::thread ends([&] {
    const RankConnection rank_one = rank_zero.accept();
    FrameBuffer hello;
    rank_one.receive(hello);
    rank_one.send(MessageWriter(MessageKind::kAccepted).bytes());
  });
  EXPECT_THAT([&] { Rendezvous(place(rank_zero.port(), 1, 3), kLong); },
              testing::ThrowsMessage<Error>(HasSubstr("rank 0 is lost")));
  ends.join();
}

TEST(Rendezvous, TellsAllRanksWhyOneHasFailed) {
  const int port = test::free_port();
  const auto ends = run_ranks(3, [&](int rank) -> std::string {
    Rendezvous ranks(place(port, rank, 3), kLong);
    if (rank == 2) {
      ranks.fail(4, "out of memory");
      return "";
    }
    ranks.gather("all", all_of(3), "");
    return "";
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ends[static_cast<std::size_t>(rank)].code, kPeerCode);
    EXPECT_THAT(ends[static_cast<std::size_t>(rank)].text,
                HasSubstr("rank 2 has failed (exit code 4): out of memory"));
  }
}

TEST(Rendezvous, NamesTheRanksThatDoNotComeInTime) {
  const int port = test::free_port();
  const auto start = run_ranks(2, [&](int rank) -> std::string {
    Rendezvous ranks(place(port, rank, 4), 0.5);
    return "";
  });
  for (const RankEnd& end : start) {
    EXPECT_EQ(end.code, kPeerCode);
    EXPECT_THAT(end.text, HasSubstr("not all of 4 ranks have come within 0.5 s: missing 2, 3"));
  }
  const int other = test::free_port();
  const auto gather = run_ranks(3, [&](int rank) -> std::string {
    Rendezvous ranks(place(other, rank, 3), 0.5);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    ranks.gather("all", all_of(3), "");
    return "";
  });
  EXPECT_EQ(gather[0].code, kPeerCode);
  EXPECT_THAT(gather[0].text, AllOf(HasSubstr("all of ranks 0, 1, 2, call 0"),
                                    HasSubstr("has waited 0.5 s for ranks 1 (")));
}

TEST(Rendezvous, RefusesRanksThatDoNotFit) {
  const int port = test::free_port();
  const auto ends = run_ranks(4, [&](int process) -> std::string {
    // Two of rank 1, and one of another run; the last one comes late.
    if (process == 3) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    if (process == 2) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const MeetingPlace mine = process == 2   ? place(port, 1, 3)
                              : process == 3 ? place(port, 1, 2)
                                             : place(port, process, 2);
    Rendezvous ranks(mine, kLong);
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    return "joined";
  });
  EXPECT_EQ(ends[0].text, "joined");
  EXPECT_EQ(ends[1].text, "joined");
  EXPECT_EQ(ends[2].code, kUsageCode);
  EXPECT_THAT(ends[2].text, HasSubstr("rank 1 is one of 3 ranks, and rank 0 is one of 2"));
  EXPECT_EQ(ends[3].code, kUsageCode);
  EXPECT_THAT(ends[3].text, HasSubstr("two processes are rank 1 of 2"));
}

TEST(Rendezvous, RefusesAPortInUseAndAnUnknownHost) {
  const RankListener other(0);
  EXPECT_THAT([&] { Rendezvous(place(other.port(), 0, 2), 1); },
              testing::ThrowsMessage<Error>(AllOf(HasSubstr("in use"), HasSubstr("MASTER_PORT"))));
  MeetingPlace nowhere = place(1, 1, 2);
  nowhere.address = "no-such-host.invalid";
  EXPECT_THAT([&] { Rendezvous(nowhere, 0.1); },
              testing::ThrowsMessage<Error>(HasSubstr("no-such-host.invalid")));
}

TEST(Rendezvous, IsNotDisturbedByStrangers) {
  const int port = test::free_port();
  const auto ends = run_ranks(3, [&](int process) -> std::string {
    if (process == 2) {  // speaks HTTP to the port, and leaves a connection open
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      const RankConnection http = connect_to("127.0.0.1", port, limit);
      http.send("GET / HTTP/1.1");
      const RankConnection silent = connect_to("127.0.0.1", port, limit);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      return "";
    }
    if (process == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    Rendezvous ranks(place(port, process, 2), kLong);
    std::string got;
    for (const std::string& one : ranks.gather("all", all_of(2), std::to_string(process))) {
      got += one;
    }
    return got;
  });
  EXPECT_EQ(ends[0].text, "01");
  EXPECT_EQ(ends[1].text, "01");
}

}  // namespace
}  // namespace piton
