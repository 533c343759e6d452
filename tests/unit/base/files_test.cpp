#include "base/files/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <vector>

#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

int files_in(const std::filesystem::path& folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat about {};
  EXPECT_EQ(::stat(path.c_str(), &about), 0);
  return about.st_mode & 0777;
}

TEST(AtomicFile, AppearsWholeAtCommitAndNotBefore) {
  const TempFolder folder;
  const auto path = folder / "a.txt";
  AtomicFile file(path);
  file.write("hello");
  EXPECT_FALSE(std::filesystem::exists(path));
  file.commit();
  EXPECT_EQ(read_text_file(path), "hello");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, LeavesNoTraceWithoutCommit) {
  const TempFolder folder;
  write_text_file(folder / "a.txt", "old");
  {
    AtomicFile file(folder / "a.txt");
    file.write("new");
  }
  EXPECT_EQ(read_text_file(folder / "a.txt"), "old");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, ReplacesWhatWasThere) {
  const TempFolder folder;
  write_text_file(folder / "a.txt", "a longer old text");
  write_text_file(folder / "a.txt", "new");
  EXPECT_EQ(read_text_file(folder / "a.txt"), "new");
}

TEST(AtomicFile, WritesLargeAndSmallPiecesInOrderAndOverEarlierOnes) {
  const TempFolder folder;
  std::string expected;
  AtomicFile file(folder / "a.bin");
  for (const std::size_t size : {3, 300'000, 5, 262'143, 1, 262'144, 1'000'000, 7}) {
    const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
    file.write(piece);
    expected += piece;
    EXPECT_EQ(file.size_bytes(), static_cast<std::int64_t>(expected.size()));
  }
  for (const std::int64_t offset :
       {std::int64_t{0}, std::int64_t{262'140}, file.size_bytes() - 4}) {
    file.write_at(offset, bytes_of("HEAD"));
    expected.replace(static_cast<std::size_t>(offset), 4, "HEAD");
  }
  file.write("tail");
  file.commit();
  EXPECT_TRUE(read_text_file(folder / "a.bin") == expected + "tail");
}

TEST(AtomicFile, HasItsModeWhateverTheUmask) {
  const TempFolder folder;
  for (const mode_t mask : {mode_t{0}, mode_t{077}}) {
    const mode_t before = ::umask(mask);
    const auto inner = folder / std::to_string(mask) / "deep";
    write_text_file(inner / "a.txt", "x");
    ::umask(before);
    EXPECT_EQ(mode_of(inner / "a.txt"), 0640U);
    EXPECT_EQ(mode_of(inner), 0750U);
    EXPECT_EQ(mode_of(inner.parent_path()), 0750U);
  }
}

TEST(AtomicFile, InAFolderThatIsAFileSaysSo) {
  const TempFolder folder;
  write_text_file(folder / "a", "x");
  EXPECT_THAT(message_of(Fault::kData, [&] { AtomicFile file(folder / "a" / "b"); }),
              HasSubstr("a: cannot create folder: Not a directory"));
  EXPECT_THAT(message_of(Fault::kData, [&] { AtomicFile file(folder.path()); }),
              HasSubstr("Is a directory"));
}

// A limit on the size of files simulates a full disk.
TEST(AtomicFile, ThatCannotGrowSaysSoAndLeavesTheOldFile) {
  const TempFolder folder;
  write_text_file(folder / "a", "old");
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1000, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text(2000, 'x');
  const std::string message =
      message_of(Fault::kData, [&] { write_text_file(folder / "a", text); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("a: cannot write: File too large"));
  EXPECT_EQ(read_text_file(folder / "a"), "old");
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(AtomicFile, MovesWithItsBytes) {
  const TempFolder folder;
  AtomicFile first(folder / "a");
  first.write("one ");
  AtomicFile second = std::move(first);
  second.write("two");
  second.commit();
  EXPECT_EQ(read_text_file(folder / "a"), "one two");
}

TEST(CreateFolders, IsFineWithWhatIsThere) {
  const TempFolder folder;
  create_folders(folder / "a/b/c/");
  create_folders(folder / "a/b");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
}

TEST(ReadTextFile, NamesThePathAndTheReason) {
  const TempFolder folder;
  EXPECT_THAT(message_of(Fault::kData, [&] { read_text_file(folder / "none.json"); }),
              HasSubstr("none.json: cannot open: No such file or directory"));
  EXPECT_THAT(message_of(Fault::kData, [&] { read_text_file(folder.path()); }),
              HasSubstr("cannot read: Is a directory"));
}

TEST(ReadTextFile, RefusesMoreThanItsLimit) {
  const TempFolder folder;
  write_text_file(folder / "a", "12345");
  EXPECT_EQ(read_text_file(folder / "a", 5), "12345");
  EXPECT_THAT(message_of(Fault::kData, [&] { read_text_file(folder / "a", 4); }),
              HasSubstr("a: too long: got 5 bytes, wanted at most 4"));
}

TEST(ReadTextFile, ReadsFilesWithoutASize) {
  EXPECT_THAT(read_text_file("/proc/self/status"), HasSubstr("Name:"));
}

TEST(MappedFile, ShowsTheBytes) {
  const TempFolder folder;
  write_text_file(folder / "a", "mapped");
  write_text_file(folder / "empty", "");
  MappedFile file(folder / "a");
  EXPECT_EQ(file.text(), "mapped");
  MappedFile other(folder / "empty");
  EXPECT_EQ(other.bytes().size(), 0U);
  other = std::move(file);
  EXPECT_EQ(other.text(), "mapped");
  EXPECT_EQ(other.path(), folder / "a");
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const TempFolder folder;
  EXPECT_THAT(message_of(Fault::kData, [&] { MappedFile file(folder / "none"); }),
              HasSubstr("No such file"));
  EXPECT_THAT(message_of(Fault::kData, [&] { MappedFile file("/dev/null"); }),
              HasSubstr("wanted a file"));
}

}  // namespace
}  // namespace piton
