// Limits the length of functions and the number of their parameters.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kMostLines = 80;
constexpr std::size_t kMostParameters = 5;

// `code` without the lines of the preprocessor.
std::string without_directives(std::string code) {
  static const std::regex directive("(^|\\n)[ \\t]*#[^\\n]*(\\\\\\n[^\\n]*)*");
  for (std::sregex_iterator it(code.begin(), code.end(), directive), end; it != end; ++it) {
    for (std::ptrdiff_t i = it->position(); i < it->position() + it->length(); ++i) {
      if (code[static_cast<std::size_t>(i)] != '\n') code[static_cast<std::size_t>(i)] = ' ';
    }
  }
  return code;
}

std::size_t line_of(const std::string& code, std::size_t at) {
  return static_cast<std::size_t>(
      std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

struct FoundFunction {
  std::string head;  // without what follows its parameters' end
  std::size_t first_line = 0;
  std::size_t lines = 0;
};

// Every function and lambda that is not inside of another one. `code`: comments and literals
// blanked (code_only). What opens a brace with parentheses before it is a function, unless it is a
// class, a namespace or an initial value.
std::vector<FoundFunction> functions_of(std::string code) {
  static const std::regex scope(
      "^(template\\s*<[^{]*>\\s*)?(class|struct|enum|union|namespace|extern)\\b");
  code = without_directives(std::move(code));
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
        found.push_back({head.substr(0, head.find('(')), line_of(code, begin), 0});
      }
      ++depth;
      start = i + 1;
    }
    if (code[i] == '}' && depth > 0) {
      --depth;
      if (function_depth == depth) {
        found.back().lines = line_of(code, i) - found.back().first_line + 1;
        function_depth = kOutside;
      }
      start = i + 1;
    }
  }
  return found;
}

struct FoundParameters {
  std::string name;  // of the function; "lambda" for one
  std::size_t line = 0;
  std::size_t count = 0;
};

// The bracket that closes the one at `open`, or the end of `code`.
std::size_t closing(const std::string& code, std::size_t open) {
  std::size_t depth = 0;
  for (std::size_t i = open; i < code.size(); ++i) {
    if (std::string_view("([{").find(code[i]) != std::string_view::npos) ++depth;
    if (std::string_view(")]}").find(code[i]) != std::string_view::npos && --depth == 0) return i;
  }
  return code.size();
}

// The number of parameters between the parenthesis at `open` and its partner. "<" opens a list of
// template arguments if it follows a name.
std::size_t parameters_at(const std::string& code, std::size_t open) {
  const std::size_t end = closing(code, open);
  if (code.find_first_not_of(" \n", open + 1) >= end) return 0;
  std::size_t count = 1;
  std::size_t angles = 0;
  for (std::size_t i = open + 1; i < end; ++i) {
    if (std::string_view("([{").find(code[i]) != std::string_view::npos) i = closing(code, i);
    if (code[i] == '<' && std::isalnum(static_cast<unsigned char>(code[i - 1]))) ++angles;
    if (code[i] == '>' && angles > 0) --angles;
    if (code[i] == ',' && angles == 0) ++count;
  }
  return count;
}

// False inside of a list of template arguments, as of std::function<void(int)>.
bool angles_balance(const std::string& head) {
  return std::count(head.begin(), head.end(), '<') == std::count(head.begin(), head.end(), '>');
}

// The functions and constructors that `code` declares or defines in namespaces and classes; then
// the lambdas, wherever they are. `code`: comments and literals blanked (code_only).
std::vector<FoundParameters> parameters_of(std::string code) {
  static const std::regex scope(
      "^(template\\s*<[^{]*>\\s*)?(class|struct|union|namespace|extern)\\b");
  static const std::regex name_before("(operator\\s*[^\\w\\s]+|~?\\w+)\\s*$");
  static const std::regex no_name("^(static_assert|alignas|decltype|explicit|requires|noexcept)");
  code = without_directives(std::move(code));
  std::vector<FoundParameters> found;
  bool has_parameters = false;  // what is read now
  std::size_t start = 0;        // of what is read now
  const auto restart = [&](std::size_t at) {
    start = at;
    has_parameters = false;
  };
  for (std::size_t i = 0; i < code.size(); ++i) {
    const std::size_t begin = std::min(code.find_first_not_of(" \n", start), i);
    const std::string head = code.substr(begin, i - begin);
    if (code[i] == ';' || code[i] == '}') restart(i + 1);
    if (code[i] == '(') {
      std::smatch name;
      if (!has_parameters && std::regex_search(head, name, name_before) &&
          (name.str().starts_with("operator") ||
           (head.find('=') == head.npos && angles_balance(head))) &&
          !std::regex_search(name.str(), no_name)) {
        found.push_back({name[1], line_of(code, begin), parameters_at(code, i)});
        has_parameters = true;
      }
      i = closing(code, i);
    } else if (code[i] == '{') {
      if (!has_parameters && std::regex_search(head, scope)) {
        restart(i + 1);
        continue;
      }
      i = closing(code, i);
      // The value of a member before the body of a constructor is not the body.
      const std::size_t next = code.find_first_not_of(" \n", i + 1);
      if (next != code.npos && code[next] != ',' && code[next] != '{') restart(i + 1);
    }
  }
  static const std::regex lambda("\\](\\()");
  static const std::regex body("^\\s*(mutable|noexcept|->|\\{)");
  for (std::sregex_iterator it(code.begin(), code.end(), lambda), end; it != end; ++it) {
    const std::size_t open = static_cast<std::size_t>(it->position(1));
    const std::size_t close = std::min(closing(code, open), code.size() - 1);
    if (std::regex_search(code.substr(close + 1, 20), body)) {
      found.push_back({"lambda", line_of(code, open), parameters_at(code, open)});
    }
  }
  return found;
}

// Kernels may have more: their inner loops are called with strides and sizes. So may functions of
// the C interface, "piton_...": it is fixed.
std::vector<std::string> parameter_faults(const SourceTree& tree, std::size_t limit) {
  std::vector<std::string> faults;
  for (const auto& [path, text] : tree) {
    if (path.starts_with("kernels/")) continue;
    for (const FoundParameters& function : parameters_of(code_only(text))) {
      if (function.count <= limit || function.name.starts_with("piton_")) continue;
      faults.push_back(at_line(path, function.line,
                               function.name + ": " + std::to_string(function.count) +
                                   " parameters; take a struct with named fields"));
    }
  }
  return faults;
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

TEST(Parameters, AreCountedOfFunctionsConstructorsAndLambdas) {
  const auto counts = [](const std::string& text) {
    std::vector<std::string> counts;
    for (const FoundParameters& function : parameters_of(code_only(text))) {
      counts.push_back(function.name + " " + std::to_string(function.line + 1) + ": " +
                       std::to_string(function.count));
    }
    return counts;
  };
  EXPECT_THAT(counts("#define X(a, b, c)\nnamespace a {\nint one(int, std::map<int, int> b);\n"
                     "template <class A, class B>\nvoid two() { one(1, 2, 3); }\n"
                     "class B {\n public:\n  explicit B(int a = 1, int b = f(1, 2), T c = {1, 2})"
                     "\n    : x_{1, 2}, y_(2, 3) { z(1, 2); }\n"
                     "  bool operator==(const B& other) const = default;\n  ~B();\n"
                     "  int z = f(1, 2);\n  std::function<void(int, int)> call;\n};\n}"),
              ElementsAre("one 3: 2", "two 4: 0", "B 7: 3", "operator== 10: 1", "~B 11: 0"));
  EXPECT_THAT(counts("int table[] = {f(1, 2)};\nstatic_assert(g(1), \"x\");\n"
                     "void h(int a) {\n  sort([](int x, int y) -> bool { return x < y; });\n"
                     "  calls[1](2, 3);\n}\nint last(std::span<const int> x, int);"),
              ElementsAre("h 3: 1", "last 7: 2", "lambda 4: 2"));
}

TEST(Parameters, AboveTheLimitAreFaultsOutsideKernels) {
  const std::string text = "int f(int a, int b);\nint g(int a,\n int b, int c);\n";
  EXPECT_THAT(parameter_faults({{"a/a.h", text},
                                {"a/b.h", "int piton_f(int a, int b, int c);\n"},
                                {"kernels/cpu/a.h", text}},
                               2),
              ElementsAre("a/a.h:2: g: 3 parameters; take a struct with named fields"));
}

TEST(Functions, OfThisRepositoryHaveOneSubject) {
  const SourceTree tree = read_tree(std::filesystem::path(PITON_SOURCE_DIR) / "src");
  std::size_t count = 0;
  for (const auto& [path, text] : tree) count += functions_of(code_only(text)).size();
  EXPECT_GT(count, 2000U) << "functions are found";
  EXPECT_THAT(function_faults(tree, kMostLines), IsEmpty());
  EXPECT_THAT(parameter_faults(tree, kMostParameters), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
