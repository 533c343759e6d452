// Limits the length of functions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kMostLines = 80;

struct FoundFunction {
  std::string head;  // without what follows its parameters' end
  std::size_t first_line = 0;
  std::size_t lines = 0;
};

// Every function and lambda that is not inside of another one. `code`: comments and literals
// blanked (code_only). What opens a brace with parentheses before it is a function, unless it is a
// class, a namespace or an initial value.
std::vector<FoundFunction> functions_of(std::string code) {
  static const std::regex directive("(^|\\n)[ \\t]*#[^\\n]*");
  static const std::regex scope(
      "^(template\\s*<[^{]*>\\s*)?(class|struct|enum|union|namespace|extern)\\b");
  for (std::sregex_iterator it(code.begin(), code.end(), directive), end; it != end; ++it) {
    for (std::ptrdiff_t i = it->position(); i < it->position() + it->length(); ++i) {
      if (code[static_cast<std::size_t>(i)] != '\n') code[static_cast<std::size_t>(i)] = ' ';
    }
  }
  const auto line_of = [&](std::size_t at) {
    return static_cast<std::size_t>(
        std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  };
  std::vector<FoundFunction> found;
  std::size_t start = 0;  // of what may be the head of a function
  std::size_t depth = 0;
  constexpr std::size_t kOutside = std::string::npos;
  std::size_t function_depth = kOutside;  // braces around the function that is read
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code[i] == ';' && function_depth == kOutside) start = i + 1;
    if (code[i] == '{') {
      const std::size_t begin = std::min(code.find_first_not_of(" \n", start), i);
      std::string head = code.substr(begin, i - begin);
      head.erase(head.find_last_not_of(" \n") + 1);
      if (function_depth == kOutside && head.find('(') != head.npos && !head.ends_with("=") &&
          !std::regex_search(head, scope)) {
        function_depth = depth;
        found.push_back({head.substr(0, head.find('(')), line_of(begin), 0});
      }
      ++depth;
      start = i + 1;
    }
    if (code[i] == '}' && depth > 0) {
      --depth;
      if (function_depth == depth) {
        found.back().lines = line_of(i) - found.back().first_line + 1;
        function_depth = kOutside;
      }
      start = i + 1;
    }
  }
  return found;
}

std::vector<std::string> function_faults(const SourceTree& tree, std::size_t limit) {
  std::vector<std::string> faults;
  for (const auto& [path, text] : tree) {
    for (const FoundFunction& function : functions_of(code_only(text))) {
      if (function.lines <= limit) continue;
      faults.push_back(at_line(
          path, function.first_line,
          function.head + ": " + std::to_string(function.lines) + " lines; cut it by subject"));
    }
  }
  return faults;
}

TEST(Functions, AreFoundWhereverTheyStand) {
  const auto heads = [](const std::string& text) {
    std::vector<std::string> heads;
    for (const FoundFunction& function : functions_of(code_only(text))) {
      heads.push_back(function.head + " " + std::to_string(function.first_line) + "+" +
                      std::to_string(function.lines));
    }
    return heads;
  };
  EXPECT_THAT(heads("#include <a>\nnamespace a {\n\nint one() {\n  if (x) { y(); }\n}\n"
                    "class B {\n  B() : x_{1}, y_(2) {}\n  int two(int a = 3) const {\n}\n};\n}"),
              ElementsAre("int one 3+3", "B 7+1", ", y_ 7+1", "int two 8+2"));
  EXPECT_THAT(
      heads("constexpr int kTable[] = {f(1),\n 2};\nconst auto g = [](int x) {\n  return x;\n"
            "};\nstruct C : D<int> {\n int x = f();\n};"),
      ElementsAre("const auto g = [] 2+3"));
  EXPECT_THAT(heads("char x = '{';\nvoid f() {\n  // }\n  g(\"}\");\n}"),
              ElementsAre("void f 1+4"));
}

TEST(Functions, ThatAreLongAreFaults) {
  EXPECT_THAT(function_faults({{"a/a.h", "int f() {\n1;\n2;\n}\nint g() {\n}\n"}}, 3),
              ElementsAre("a/a.h:1: int f: 4 lines; cut it by subject"));
}

TEST(Functions, OfThisRepositoryHaveOneSubject) {
  const SourceTree tree = read_tree(std::filesystem::path(PITON_SOURCE_DIR) / "src");
  std::size_t count = 0;
  for (const auto& [path, text] : tree) count += functions_of(code_only(text)).size();
  EXPECT_GT(count, 2000U) << "functions are found";
  EXPECT_THAT(function_faults(tree, kMostLines), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
