// Memory, copies and streams of a GPU. Tests that need a GPU are skipped if there is none.
#include "device/cuda/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "support/errors.h"
#include "support/tensors.h"

namespace piton::cuda {
namespace {

using testing::HasSubstr;

TEST(CudaDevices, AreRefusedWhereThereIsNone) {
  const int devices = cuda_devices();
  ASSERT_GE(devices, 0);
  // Without a driver the message names it; with one, the devices there are.
  EXPECT_THAT(message_of(Fault::kUsage, [&] { make_device(devices); }), HasSubstr("nvidia-smi"));
}

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
    device_ = make_device();
    stream_ = device_->make_stream();
    arena_.emplace(*device_, std::int64_t{1} << 20);
  }

  Tensor numbers(std::int64_t count) {
    return arena_->allocate(DType::kI32, {count}, MemoryKind::kWorkspace);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::optional<Arena> arena_;
};

TEST_F(CudaDevice, HoldsWhatIsUploaded) {
  // One number; pieces of which the last is short; more pieces (six) than there are pinned buffers.
  for (const std::int64_t count :
       {std::int64_t{1}, std::int64_t{3'500'001}, std::int64_t{6'000'000}}) {
    const Tensor tensor = numbers(count);
    std::vector<std::int32_t> up(static_cast<std::size_t>(count));
    std::iota(up.begin(), up.end(), 1);
    const std::vector<std::int32_t> expected = up;
    device_->upload(up.data(), tensor, *stream_);
    std::fill(up.begin(), up.end(), -7);  // the buffer may be reused at once
    std::vector<std::int32_t> down(up.size());
    device_->download(tensor, down.data(), *stream_);
    EXPECT_TRUE(down == expected) << count << " numbers";
    EXPECT_EQ(device_->host_address(tensor), nullptr);
    EXPECT_TRUE(tensor.place() == device_->place());
  }
}

TEST_F(CudaDevice, ZeroesWhatItIsGivenAndNoMore) {
  const Tensor tensor = numbers(4);
  const std::int32_t up[4] = {1, 2, 3, 4};
  device_->upload(up, tensor, *stream_);
  device_->zero(tensor.slice(0, 1, 2), *stream_);
  std::int32_t down[4] = {};
  device_->download(tensor, down, *stream_);
  EXPECT_THAT(down, testing::ElementsAre(1, 0, 0, 4));
}

TEST_F(CudaDevice, RefusesMoreMemoryThanThereIsAndGoesOn) {
  const std::int64_t bytes = std::int64_t{1} << 50;
  EXPECT_THAT(message_of(Fault::kMemory, [&] { device_->allocate(bytes); }),
              HasSubstr(std::to_string(bytes) + " bytes asked"));
  device_->release(device_->allocate(64), 64);
}

TEST_F(CudaDevice, RunsHostWorkInTheOrderOfItsStream) {
  std::atomic<bool> go = false;
  std::vector<int> seen;
  stream_->enqueue([&] {
    go.wait(false);
    seen.push_back(1);
  });
  stream_->enqueue([&] { seen.push_back(2); });
  const Event event = stream_->record();
  EXPECT_FALSE(event.complete());
  go = true;
  go.notify_all();
  event.wait();
  EXPECT_TRUE(event.complete());
  EXPECT_THAT(seen, testing::ElementsAre(1, 2));
}

// Without the wait the second stream reads zeros: the first is held back for 50 ms.
TEST_F(CudaDevice, LetsAStreamWaitForAnEventOfAnother) {
  const auto second = device_->make_stream();
  const Tensor tensor = numbers(4);
  device_->zero(tensor, *stream_);
  stream_->enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  const std::int32_t up[4] = {5, 6, 7, 8};
  device_->upload(up, tensor, *stream_);
  second->wait(stream_->record());
  std::int32_t down[4] = {};
  device_->download(tensor, down, *second);
  EXPECT_THAT(down, testing::ElementsAre(5, 6, 7, 8));
}

TEST_F(CudaDevice, WaitsForEventsOfOtherOrigin) {
  class Flag final : public Fence {
   public:
    bool complete() const override { return waited; }
    void wait() override { waited = true; }
    bool waited = false;
  };
  const auto flag = std::make_shared<Flag>();
  stream_->wait(Event(flag));
  stream_->wait(Event());
  stream_->synchronize();
  EXPECT_TRUE(flag->waited);
}

TEST_F(CudaDevice, HandsOnWhatHostWorkThrows) {
  stream_->enqueue([] { throw Error(Fault::kData, "from a stream"); });
  EXPECT_EQ(message_of(Fault::kData, [&] { stream_->synchronize(); }), "from a stream");
}

}  // namespace
}  // namespace piton::cuda
