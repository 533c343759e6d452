#include "base/shell_word.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

namespace piton {
namespace {

std::string word_of_shell(const std::string& written) {
  const std::string command = "printf %s " + written;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(::popen(command.c_str(), "r"),
                                                            ::pclose);
  std::array<char, 64> read{};
  return {read.data(), std::fread(read.data(), 1, read.size(), out.get())};
}

TEST(ShellWord, IsReadByAShellAsTheText) {
  for (const char* text : {"run", "runs/my model", "it's", "$HOME", "~", "a;b", "*", "\"q\"", "#x",
                           "a\\b", "\xc3\xa9t\xc3\xa9", "(1)", "a&b", "!x", "'"})
    EXPECT_EQ(word_of_shell(shell_word(text)), text);
}

TEST(ShellWord, OfPlainTextHasNoQuotes) {
  EXPECT_EQ(shell_word("/a/b-1_c.d,e:2=3+4%5@x"), "/a/b-1_c.d,e:2=3+4%5@x");
  EXPECT_EQ(shell_word("my run"), "'my run'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace piton
