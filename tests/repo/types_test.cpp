// A type's name is defined once in a namespace. Two definitions under one name are undefined
// behavior that an optimizer hides: the linker keeps one of the two constructors. A type of an
// unnamed namespace hides no other one: a reader would take it for that. Nor do two headers define
// types of one name in different namespaces.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct FoundType {
  std::string space;  // "piton::"; without unnamed namespaces
  std::string name;
  bool unnamed = false;  // in an unnamed namespace
};

// Each type that `text` defines outside functions and other types. Relies on the form that
// .clang-format gives: no indentation inside namespaces.
std::vector<FoundType> types_of(const std::string& text) {
  std::vector<std::string> open;
  std::vector<FoundType> types;
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
      FoundType found{.name = match[2]};
      for (const std::string& part : open) {
        const std::size_t size = part.find_last_not_of(' ') + 1;
        if (size == 0) found.unnamed = true;
        if (size > 0) found.space += part.substr(0, size) + "::";
      }
      types.push_back(std::move(found));
    }
  }
  return types;
}

std::vector<std::string> double_faults(const SourceTree& tree) {
  std::map<std::string, std::string> first;
  std::vector<std::string> faults;
  for (const auto& [path, text] : tree) {
    for (const FoundType& type : types_of(text)) {
      if (type.unnamed) continue;
      const auto [at, added] = first.emplace(type.space + type.name, path);
      if (!added) faults.push_back(at->first + ": in " + at->second + " and in " + path);
    }
  }
  return faults;
}

// Types of headers that have the name of a type of another header, in another namespace.
std::vector<std::string> namesake_faults(const SourceTree& tree) {
  std::map<std::string, std::pair<std::string, std::string>> first;  // by name: space and path
  std::vector<std::string> faults;
  for (const auto& [path, text] : tree) {
    if (!is_header(path)) continue;
    for (const FoundType& type : types_of(text)) {
      if (type.unnamed) continue;
      const auto [at, added] = first.try_emplace(type.name, type.space, path);
      if (added || at->second.first == type.space) continue;
      faults.push_back(type.space + type.name + " of " + path + ": the name of " +
                       at->second.first + type.name + " of " + at->second.second);
    }
  }
  return faults;
}

// Types of unnamed namespaces that hide a type of the same name. Those of headers in namespace
// piton are seen everywhere, others in their own namespace.
std::vector<std::string> shadow_faults(const SourceTree& tree) {
  std::map<std::string, std::string> known;  // of headers
  for (const auto& [path, text] : tree) {
    if (!is_header(path)) continue;
    for (const FoundType& type : types_of(text)) {
      if (!type.unnamed) known.emplace(type.space + type.name, path);
    }
  }
  std::vector<std::string> faults;
  for (const auto& [path, text] : tree) {
    for (const FoundType& type : types_of(text)) {
      if (!type.unnamed) continue;
      for (const std::string& space : std::set<std::string>{"piton::", type.space}) {
        const auto hidden = known.find(space + type.name);
        if (hidden == known.end()) continue;
        faults.push_back(path + ": " + type.name + " hides " + hidden->first + " of " +
                         hidden->second + "; rename it");
      }
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

TEST(Types, OfUnnamedNamespacesHideNone) {
  const auto unnamed = [](const std::string& space, const std::string& type) {
    return "namespace " + space + " {\nnamespace {\nstruct " + type +
           " {\n};\n}  // namespace\n}  // namespace x\n";
  };
  EXPECT_THAT(
      shadow_faults({{"a/a.h", "namespace piton {\nstruct Block {\n};\n}  // namespace piton\n"},
                     {"a/a.cpp", "namespace piton {\nstruct Own {\n};\n}  // namespace piton\n"},
                     {"b/a.h", "namespace piton::cpu {\nclass Tile {\n};\n}  // namespace p\n"},
                     {"c/a.cpp", unnamed("piton", "Block")},
                     {"c/b.cpp", unnamed("piton::cpu", "Block")},
                     {"c/c.cpp", unnamed("piton::cpu", "Tile")},
                     {"c/d.cpp", unnamed("piton", "Tile")},
                     {"c/e.cpp", unnamed("piton", "Own")}}),
      ElementsAre("c/a.cpp: Block hides piton::Block of a/a.h; rename it",
                  "c/b.cpp: Block hides piton::Block of a/a.h; rename it",
                  "c/c.cpp: Tile hides piton::cpu::Tile of b/a.h; rename it"));
}

TEST(Types, OfHeadersHaveDifferentNames) {
  EXPECT_THAT(namesake_faults(
                  {{"a/a.h", "namespace piton {\nstruct Block {\n};\n}  // namespace piton\n"},
                   {"a/b.h", "namespace piton {\nclass Block;\n}  // namespace piton\n"},
                   {"b/a.cpp", "namespace piton::cpu {\nclass Block {\n};\n}  // namespace p\n"},
                   {"b/a.h", "namespace piton::cpu {\nclass Block {\n};\n}  // namespace p\n"},
                   {"b/b.h", "namespace piton::cpu {\nclass Tile {\n};\n}  // namespace p\n"}}),
              ElementsAre("piton::cpu::Block of b/a.h: the name of piton::Block of a/a.h"));
  EXPECT_THAT(namesake_faults(read_tree(std::filesystem::path(PITON_SOURCE_DIR) / "src")),
              IsEmpty());
}

TEST(Types, HideNoneInThisRepository) {
  EXPECT_THAT(shadow_faults(read_tree(std::filesystem::path(PITON_SOURCE_DIR) / "src")), IsEmpty());
}

TEST(Types, AreDefinedOnceInThisRepository) {
  const SourceTree tree = read_tree(std::filesystem::path(PITON_SOURCE_DIR) / "src");
  ASSERT_GT(tree.size(), 10U);
  EXPECT_THAT(double_faults(tree), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
