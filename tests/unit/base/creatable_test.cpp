#include "base/files/creatable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "support/errors.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;

// What check_creatable() says to a user who is not root.
std::string refusal_of_user(const std::filesystem::path& file) {
  int said[2];
  EXPECT_EQ(::pipe(said), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(1);
      check_creatable(file);
    } catch (const Error& error) {
      text = error.what();
    }
    ::_exit(::write(said[1], text.data(), text.size()) == std::ssize(text) ? 0 : 1);
  }
  ::close(said[1]);
  std::array<char, 512> text{};
  const ssize_t got = ::read(said[0], text.data(), text.size());
  ::close(said[0]);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

TEST(CheckCreatable, FindsOutBeforeAnythingIsWritten) {
  if (has_thread_sanitizer()) GTEST_SKIP() << "forks";
  const TempFolder dir;
  const std::filesystem::path open = dir / "open";
  std::filesystem::create_directory(open);
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0555));
  std::filesystem::permissions(open, std::filesystem::perms(0777));
  EXPECT_EQ(refusal_of_user(open / "new/folders/file"), "");
  EXPECT_TRUE(std::filesystem::is_empty(open));
  const std::string file = (dir / "file").string();
  EXPECT_EQ(refusal_of_user(file), file + ": cannot create: Permission denied");
  const std::string deep = (dir / "a/b/file").string();
  EXPECT_EQ(refusal_of_user(deep), deep + ": cannot create: Permission denied");
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
  std::ofstream(file) << "x";
  EXPECT_THAT(message_of(Fault::kData, [&] { check_creatable(dir / "file/in/it"); }),
              HasSubstr("Not a directory"));
}

}  // namespace
}  // namespace piton
