// A file as a device: what it holds, the order of its streams, and failures of the disk.
#include "device/file_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>

#include "device/host_device.h"
#include "device/meta_device.h"
#include "device/offload_target.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace piton {
namespace {

using test::values;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::int64_t kSegment = 1 << 16;

int open_files() {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

Tensor numbers(float first, std::int64_t count) {
  Tensor tensor = host_tensor(DType::kF32, {count});
  for (std::int64_t i = 0; i < count; ++i) tensor.data<float>()[i] = first + static_cast<float>(i);
  return tensor;
}

TEST(FileDevice, HoldsWhatIsUploaded) {
  const TempFolder dir;
  HostDevice host;
  FileDevice file(dir / "new/folder", host);
  EXPECT_THAT(file.name(), HasSubstr("new/folder"));
  Arena arena(file, kSegment);
  const auto stream = host.make_stream();
  const Tensor a = arena.allocate(DType::kF32, {5}, MemoryKind::kOptimizer);
  const Tensor b =
      arena.allocate(DType::kF32, {100'000}, MemoryKind::kOptimizer);  // a segment more
  EXPECT_EQ(file.host_address(a), nullptr);
  EXPECT_EQ(a.place(), file.place());
  file.upload(numbers(1, 5).raw(), a, *stream);
  file.upload(numbers(7, 100'000).raw(), b, *stream);
  const Tensor back = host_tensor(DType::kF32, {5});
  file.download(a, back.raw(), *stream);
  EXPECT_THAT(values(back), ElementsAre(1, 2, 3, 4, 5));
  file.download(b.slice(0, 99'995, 5), back.raw(), *stream);
  EXPECT_THAT(values(back), ElementsAre(100'002, 100'003, 100'004, 100'005, 100'006));
  file.zero(a.slice(0, 1, 2), *stream);
  file.download(a, back.raw(), *stream);
  EXPECT_THAT(values(back), ElementsAre(1, 0, 0, 4, 5));
  file.zero_new(b, *stream);
  const Tensor all = host_tensor(DType::kF32, {100'000});
  file.download(b, all.raw(), *stream);
  EXPECT_THAT(values(all), Each(0));
  file.download(a, back.raw(), *stream);
  EXPECT_THAT(values(back), ElementsAre(1, 0, 0, 4, 5)) << "the neighbor is as it was";
}

TEST(FileDevice, LeavesNoNameAndNoOpenFile) {
  const TempFolder dir;
  HostDevice host;
  const int before = open_files();
  {
    FileDevice file(dir.path(), host);
    Arena arena(file, kSegment);
    const Tensor tensor = arena.allocate(DType::kU8, {kSegment}, MemoryKind::kOptimizer);
    const auto stream = file.make_stream();
    const Tensor here = host_tensor(DType::kU8, {kSegment});
    file.copy(tensor, here, *stream);
    stream->synchronize();
    EXPECT_TRUE(fs::is_empty(dir.path())) << "a killed process would leave it";
    EXPECT_EQ(open_files(), before + 1);
  }
  EXPECT_EQ(open_files(), before);
}

TEST(FileDevice, CopiesBehindTheHostAndInTheOrderOfEvents) {
  const TempFolder dir;
  HostDevice host;
  FileDevice file(dir.path(), host);
  Arena arena(file, kSegment);
  const Tensor away = arena.allocate(DType::kF32, {3}, MemoryKind::kOptimizer);
  const auto writes = file.make_stream();
  const auto reads = file.make_stream();
  std::atomic<bool> open = false;
  writes->enqueue([&] { open.wait(false); });
  const Tensor there = numbers(4, 3);
  file.copy(away, there, *writes);
  const Event written = writes->record();
  reads->wait(written);
  const Tensor back = host_tensor(DType::kF32, {3});
  file.copy(back, away, *reads);
  const Event read = reads->record();
  EXPECT_FALSE(written.complete());
  EXPECT_FALSE(read.complete());
  open = true;
  open.notify_all();
  read.wait();
  EXPECT_THAT(values(back), ElementsAre(4, 5, 6));
}

// What fails, by the name of the call; the rest succeeds.
FileFaults failing(std::string call, int code) {
  return [call = std::move(call), code](std::string_view made) { return made == call ? code : 0; };
}

TEST(FileDevice, SaysWhyItCannotBeMadeOrGrow) {
  const TempFolder dir;
  HostDevice host;
  EXPECT_THAT(
      message_of(Fault::kData, [&] { FileDevice(dir.path(), host, failing("create", EACCES)); }),
      HasSubstr("cannot create a file for offloaded tensors in it: Permission denied"));
  std::ofstream(dir / "taken") << "x";
  EXPECT_THAT(message_of(Fault::kData, [&] { FileDevice(dir / "taken", host); }),
              HasSubstr("taken"));
  FileDevice full(dir.path(), host, failing("reserve", ENOSPC));
  Arena arena(full, kSegment);
  const std::string message =
      message_of(Fault::kData, [&] { arena.allocate(DType::kF32, {3}, MemoryKind::kOptimizer); });
  EXPECT_THAT(message, HasSubstr("reserve 65536 bytes for offloaded tensors: the disk is full"));
  EXPECT_THAT(message, HasSubstr(dir.path().string()));
}

TEST(FileDevice, GivesAFailureToWhoeverWaits) {
  const TempFolder dir;
  for (const auto& [call, word] : {std::pair("write", "write"), {"read", "read"}}) {
    HostDevice host;
    FileDevice file(dir.path(), host, failing(call, EIO));
    Arena arena(file, kSegment);
    const Tensor away = arena.allocate(DType::kF32, {3}, MemoryKind::kOptimizer);
    const Tensor here = numbers(1, 3);
    const auto stream = file.make_stream();
    const bool out = std::string_view(call) == "write";
    file.copy(out ? away : here, out ? here : away, *stream);
    bool ran = false;
    stream->enqueue([&] { ran = true; });
    const std::string wanted = fmt::format("cannot {} offloaded tensors: Input/output error", word);
    EXPECT_THAT(message_of(Fault::kData, [&] { stream->synchronize(); }), HasSubstr(wanted));
    EXPECT_THAT(message_of(Fault::kData, [&] { stream->record(); }), HasSubstr(wanted));
    EXPECT_FALSE(ran) << "what comes behind it may need it";
    const auto compute = host.make_stream();
    EXPECT_THAT(message_of(Fault::kData,
                           [&] {
                             out ? file.upload(here.raw(), away, *compute)
                                 : file.download(away, here.raw(), *compute);
                           }),
                HasSubstr(wanted));
  }
}

// A plan counts what it would hold, and makes no file.
TEST(OffloadTarget, CountsWhatItHolds) {
  const TempFolder dir;
  HostDevice host;
  MetaDevice meta;
  for (Device* device : {static_cast<Device*>(&host), static_cast<Device*>(&meta)}) {
    const auto target = OffloadTarget::file(*device, dir / "file");
    const Tensor tensor = target->arena().allocate(DType::kF32, {1000}, MemoryKind::kOptimizer);
    EXPECT_EQ(target->peak_bytes(), 4032);
    EXPECT_EQ(tensor.place().kind, device == &host ? DeviceKind::kFile : DeviceKind::kMeta);
    fs::remove_all(dir / "file");
  }
  EXPECT_FALSE(fs::exists(dir / "file"));
}

}  // namespace
}  // namespace piton
