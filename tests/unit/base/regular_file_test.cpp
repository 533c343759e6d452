#include "base/files/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/files/files.h"
#include "base/files/interrupted.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;

TEST(RegularFile, ReadsAtAnyPlace) {
  const TempFolder dir;
  write_text_file(dir / "f", "0123456789");
  const RegularFile file(dir / "f");
  std::array<char, 4> part{};
  file.read_at(3, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(std::string_view(part.data(), 4), "3456");
  EXPECT_EQ(file.size_bytes(), 10);
  EXPECT_EQ(read_regular_file(dir / "f", 10), "0123456789");
  EXPECT_THAT(message_of(Fault::kData, [&] { read_regular_file(dir / "f", 9); }),
              HasSubstr("too long: got 10 bytes, wanted at most 9"));
}

TEST(RegularFile, ThatIsCutShortWhileItIsOpenIsAnErrorThatNamesIt) {
  const TempFolder dir;
  write_text_file(dir / "f", std::string(100'000, 'x'));
  const RegularFile file(dir / "f");
  const std::string stamp = file.stamp();
  std::filesystem::resize_file(dir / "f", 5000);
  std::vector<std::byte> out(10);
  file.read_at(4990, out);
  EXPECT_THAT(
      message_of(Fault::kData, [&] { file.read_at(4995, out); }),
      HasSubstr("f: cut short while it was in use: got 5000 bytes, wanted those from 5000 to "
                "5005"));
  EXPECT_THAT(message_of(Fault::kData, [&] { file.read_at(9000, out); }),
              HasSubstr("got 5000 bytes, wanted those from 9000 to 9010"));
  EXPECT_NE(file.stamp(), stamp);
}

TEST(RegularFile, ThatTheSystemCannotReadIsAnErrorWithThePlace) {
  // Address 4096 of this process has no memory, which this file reports as an error of the device.
  const RegularFile file("/proc/self/mem");
  std::vector<std::byte> out(16);
  EXPECT_THAT(message_of(Fault::kData, [&] { file.read_at(4096, out); }),
              HasSubstr("/proc/self/mem: cannot read bytes 4096 to 4112: Input/output error"));
}

TEST(RegularFile, IsNoPipeFolderOrDeviceAndNobodyWaitsForOne) {
  const TempFolder dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of(Fault::kData, [&] { RegularFile(dir / "pipe"); }),
              HasSubstr("pipe: cannot read: got a pipe, wanted a file"));
  EXPECT_THAT(message_of(Fault::kData, [&] { MappedFile(dir / "pipe"); }), HasSubstr("pipe"));
  EXPECT_THAT(message_of(Fault::kData, [&] { RegularFile(dir.path()); }), HasSubstr("a folder"));
  EXPECT_THAT(message_of(Fault::kData, [] { RegularFile("/dev/zero"); }), HasSubstr("a device"));
  EXPECT_THAT(message_of(Fault::kData, [&] { RegularFile(dir / "none"); }),
              HasSubstr("No such file"));
}

TEST(UntilUninterrupted, RepeatsOnEintrAlone) {
  int calls = 0;
  EXPECT_EQ(until_uninterrupted([&] {
              errno = EINTR;
              return ++calls < 5 ? -1 : 7;
            }),
            7);
  EXPECT_EQ(calls, 5);
  calls = 0;
  EXPECT_EQ(until_uninterrupted([&] {
              ++calls;
              errno = EIO;
              return -1;
            }),
            -1);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(errno, EIO);
}

}  // namespace
}  // namespace piton
