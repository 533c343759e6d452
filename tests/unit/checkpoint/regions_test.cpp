// The regions that ranks hold, the rank that writes each, and the files of a save.
#include "checkpoint/regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/collective.h"
#include "checkpoint/disk.h"
#include "device/host_device.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace piton {
namespace {

using testing::ElementsAre;

TEST(Spread, GivesTheLargestFirstToTheLeastLoaded) {
  EXPECT_THAT(spread({1, 1, 1, 1, 4}, 2), ElementsAre(1, 1, 1, 1, 0));
  EXPECT_THAT(spread({5, 9, 3, 3}, 2), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(spread({}, 3), testing::IsEmpty());
}

TEST(HoldingsOf, HaveTheSmallestPiecesAndNoEmptyOnes) {
  Parameter parameter;
  parameter.shape = {3};
  const auto piece = [](const char* name, std::int64_t extent, std::int64_t row) {
    return Piece{
        .name = name, .global = {extent}, .start = {0}, .extent = {extent}, .local_row = row};
  };
  parameter.pieces = {piece("two", 2, 0), piece("none", 0, 2), piece("one", 1, 2)};
  const std::vector<Holding> all = holdings_of({parameter, 0, 3}, "", DType::kF32, 7);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].tensor.name, "two");
  EXPECT_EQ(all[1].tensor.name, "one");
  EXPECT_EQ(all[1].run().size(), 1);
  EXPECT_EQ(all[1].source_offset, 2);
}

TEST(HostBytes, OfTheHostAreNotCopied) {
  HostDevice device;
  const auto stream = device.make_stream();
  const Tensor tensor = host_tensor(DType::kF32, {4});
  EXPECT_EQ(HostBytes(tensor, device, *stream).data(), tensor.raw());
}

TEST(Disk, MakesAFileOfItsSizeAndNeedsNoStandardInput) {
  TempFolder folder;
  const Disk disk;
  disk.create(folder / "sized", 5000);
  EXPECT_EQ(std::filesystem::file_size(folder / "sized"), 5000U);
  // The first descriptor that is free is then 0, which is no failure.
  const int input = ::dup(STDIN_FILENO);
  ASSERT_GE(input, 0);
  ::close(STDIN_FILENO);
  EXPECT_NO_THROW(disk.create(folder / "without", 10));
  ::dup2(input, STDIN_FILENO);
  ::close(input);
  EXPECT_EQ(std::filesystem::file_size(folder / "without"), 10U);
}

}  // namespace
}  // namespace piton
