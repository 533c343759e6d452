// A type's name is defined once in a namespace. Two definitions under one name are undefined
// behavior that an optimizer hides: the linker keeps one of the two constructors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// "namespace::Name" of each type that `text` defines outside functions, other types and unnamed
// namespaces. Relies on the form that .clang-format gives: no indentation inside namespaces.
std::vector<std::string> types_of(const std::string& text) {
  std::vector<std::string> open;
  std::vector<std::string> types;
  const std::regex opening("^namespace ?([A-Za-z0-9_:(), ]*)\\{");
  const std::regex type(
      "^(class|struct|enum class|union) ([A-Za-z0-9_]+)( final)?( :[^:].*| ?)\\{");
  for (const std::string& line : lines_of(code_only(text))) {
    std::smatch match;
    if (std::regex_search(line, match, opening)) {
      open.push_back(match[1]);
    } else if (line.starts_with("}") && line.find_first_not_of("} ") == line.npos &&
               !open.empty() && line.size() > 1) {
      open.pop_back();  // "}  // namespace", its comment blanked
    } else if (std::regex_search(line, match, type)) {
      std::string name;
      bool unnamed = false;
      for (const std::string& part : open) {
        unnamed = unnamed || part.empty();
        name += part.substr(0, part.find_last_not_of(' ') + 1) + "::";
      }
      if (!unnamed) types.push_back(name + match[2].str());
    }
  }
  return types;
}

std::vector<std::string> double_faults(const SourceTree& tree) {
  std::map<std::string, std::string> first;
  std::vector<std::string> faults;
  for (const auto& [path, text] : tree) {
    for (const std::string& type : types_of(text)) {
      const auto [at, added] = first.emplace(type, path);
      if (!added) faults.push_back(type + ": in " + at->second + " and in " + path);
    }
  }
  return faults;
}

TEST(Types, AreDefinedOnceInANamespace) {
  EXPECT_THAT(
      double_faults({{"a/a.h", "namespace piton {\nstruct Block {\n};\n}  // namespace piton\n"},
                     {"a/b.cpp",
                      "namespace piton {\nnamespace {\nstruct Block {\n};\n}  // namespace\n"
                      "struct Head {\n};\n}  // namespace piton\n"},
                     {"b/a.h", "namespace piton::cpu {\nstruct Block {\n};\n}  // namespace p\n"},
                     {"b/b.h", "namespace piton {\nclass Head final : public Base {\n};\n"},
                     {"c/a.h", "namespace piton {\nclass Block;\nclass Block {\n};\n}  // n\n"}}),
      ElementsAre("piton::Head: in a/b.cpp and in b/b.h", "piton::Block: in a/a.h and in c/a.h"));
}

TEST(Types, AreDefinedOnceInThisRepository) {
  const SourceTree tree = read_tree(std::filesystem::path(PITON_SOURCE_DIR) / "src");
  ASSERT_GT(tree.size(), 10U);
  EXPECT_THAT(double_faults(tree), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
