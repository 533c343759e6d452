// Communication in a trace: collectives of a group follow one another, waits are those of the host.
#include "comm/traced_world.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/json.h"
#include "device/host_device.h"
#include "support/thread_world.h"

namespace piton {
namespace {

using nlohmann::json;

json events_of(const TraceEvents& events, TraceEvents::Time zero) {
  std::string text = "[0";
  events.write_json(0, "test", zero, [&](std::string_view more) { text += more; });
  return read_json<nlohmann::json>(text + "]");
}

TEST(TracedWorld, RecordsCollectivesOneAfterTheOtherAndWhatIsWaitedFor) {
  constexpr std::array<int, 2> kRanks{0, 1};
  const TraceEvents::Time zero = TraceEvents::Clock::now();
  test::run_ranks(2, [&](World& world) {
    const auto events = std::make_shared<TraceEvents>();
    const std::unique_ptr<World> traced = make_traced_world(world, events);
    const std::unique_ptr<Communicator> group = traced->make_group(kRanks, "data");
    HostDevice device;
    const std::unique_ptr<Stream> stream = device.make_stream();
    const Tensor numbers = host_tensor(DType::kF32, {8});
    group->all_reduce(numbers, Reduction::kSum, *stream).wait();
    EXPECT_EQ(events->size(), 0) << "not recording yet";
    events->set_recording(true);
    std::vector<Event> both;
    for (int i = 0; i < 2; ++i) {
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      both.push_back(group->all_reduce(numbers, Reduction::kSum, *stream));
    }
    for (const Event& event : both) event.wait();
    group->barrier();
    if (world.rank() == 1) return;  // the late one
    double last_end = 0;
    int collectives = 0, waits = 0;
    for (const json& event : events_of(*events, zero)) {
      if (event == 0 || event.at("ph") != "X") continue;
      const double begin = event.at("ts"), length = event.at("dur");
      if (event.at("cat") == "wait") {
        ++waits;
        continue;
      }
      EXPECT_EQ(event.at("name"), "all-reduce");
      EXPECT_EQ(event.at("args").at("detail"), "fp32 [8]");
      EXPECT_GE(begin, last_end - 0.002) << "two at a time";
      EXPECT_GT(length, 0);
      last_end = begin + length;
      ++collectives;
    }
    EXPECT_EQ(collectives, 2);
    EXPECT_GE(waits, 1);
  });
}

TEST(TracedWorld, RecordsAnExchangeOfRows) {
  constexpr std::array<int, 2> kRanks{0, 1};
  test::run_ranks(2, [&](World& world) {
    const auto events = std::make_shared<TraceEvents>();
    events->set_recording(true);
    const std::unique_ptr<World> traced = make_traced_world(world, events);
    const std::unique_ptr<Communicator> group = traced->make_group(kRanks, "expert");
    HostDevice device;
    const std::unique_ptr<Stream> stream = device.make_stream();
    RowCounts counts(2);
    counts.at(0, 1) = counts.at(1, 0) = 2;
    const Tensor mine = host_tensor(DType::kF32, {3, 4});
    for (int i = 0; i < 12; ++i) mine.data<float>()[i] = static_cast<float>(world.rank() + 1);
    const Tensor got = host_tensor(DType::kF32, {3, 4});
    group->all_to_all_rows(got, mine, counts, *stream).wait();
    EXPECT_EQ(got.data<float>()[7], static_cast<float>(2 - world.rank()));
    EXPECT_EQ(got.data<float>()[8], 0);
    EXPECT_EQ(group->traffic().all_to_all_bytes, 2 * 4 * 4);
    group->barrier();
    int exchanges = 0;
    for (const json& event : events_of(*events, TraceEvents::Clock::now())) {
      if (event == 0 || event.at("ph") != "X" || event.at("cat") != "communication") continue;
      EXPECT_EQ(event.at("name"), "all-to-all");
      EXPECT_EQ(event.at("args").at("detail"), "fp32 [3, 4]");
      ++exchanges;
    }
    EXPECT_EQ(exchanges, 1);
  });
}

// As on the thread of a save that is at work when a trace begins.
TEST(TracedWorld, RecordsNoWaitThatBeganBeforeTheTrace) {
  constexpr std::array<int, 2> kRanks{0, 1};
  std::atomic<int> arrived = 0;
  std::atomic<bool> recording = false;
  test::ThreadWorldState state;
  state.observe = [&](const std::string&, const std::string&) { ++arrived; };
  test::run_ranks(
      2,
      [&](World& world) {
        const auto events = std::make_shared<TraceEvents>();
        const std::unique_ptr<World> traced = make_traced_world(world, events);
        const std::unique_ptr<Communicator> group = traced->make_group(kRanks, "save");
        if (world.rank() == 1) {
          while (!recording) std::this_thread::yield();
          group->barrier();
          return;
        }
        std::thread save([&] { group->barrier(); });
        while (arrived == 0) std::this_thread::yield();
        events->set_recording(true);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // longer than what is no wait
        recording = true;
        save.join();
        EXPECT_EQ(events->size(), 0);
      },
      &state);
}

TEST(TracedWorld, RecordsNothingOfAGroupOfOne) {
  HostDevice device;
  const auto world = make_single_world(device);
  const auto events = std::make_shared<TraceEvents>();
  events->set_recording(true);
  const std::unique_ptr<World> traced = make_traced_world(*world, events);
  const std::array<int, 1> own{0};
  const std::unique_ptr<Communicator> group = traced->make_group(own, "self");
  const std::unique_ptr<Stream> stream = device.make_stream();
  group->all_reduce(host_tensor(DType::kF32, {8}), Reduction::kSum, *stream).wait();
  group->gather_bytes("x");
  EXPECT_EQ(events->size(), 0);
}

}  // namespace
}  // namespace piton
