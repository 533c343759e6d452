// A unit test has the name of the source that it tests, and may add what of it: optimizer_test.cpp
// and optimizer_layouts_test.cpp test optimizer.h or optimizer.cpp.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string stem_of(const std::string& path) {
  const std::size_t begin = path.rfind('/') + 1;
  return path.substr(begin, path.rfind('.') - begin);
}

// True if `name` is `source`, or `source` and more words.
bool is_named_after(const std::string& name, const std::string& source) {
  return name == source || name.starts_with(source + "_");
}

// `tests`: paths below tests/unit. The tests of a folder may be in the folder of the same name, or
// in that of a folder above it.
std::vector<std::string> test_name_faults(const SourceTree& sources, const SourceTree& tests) {
  std::map<std::string, std::set<std::string>> names;  // by each folder that a source is below
  for (const auto& [path, text] : sources) {
    for (std::size_t slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1))
      names[path.substr(0, slash)].insert(stem_of(path));
  }
  std::vector<std::string> faults;
  for (const auto& [path, text] : tests) {
    if (!path.ends_with("_test.cpp")) continue;
    const std::string name = stem_of(path).substr(0, stem_of(path).size() - 5);
    const std::string folder = path.substr(0, path.rfind('/'));
    const auto& of_folder = names[folder];
    if (std::none_of(of_folder.begin(), of_folder.end(),
                     [&](const std::string& source) { return is_named_after(name, source); }))
      faults.push_back(path + ": no source of src/" + folder + " has this name");
  }
  return faults;
}

TEST(UnitTests, AreNamedAfterASource) {
  EXPECT_THAT(
      test_name_faults({{"a/lock.h", ""}, {"a/b/key.cpp", ""}}, {{"a/lock_test.cpp", ""},
                                                                 {"a/lock_of_two_test.cpp", ""},
                                                                 {"a/key_test.cpp", ""},
                                                                 {"a/b/key_test.cpp", ""},
                                                                 {"a/b/lock_test.cpp", ""},
                                                                 {"a/locked_test.cpp", ""},
                                                                 {"a/door.h", ""}}),
      ElementsAre("a/b/lock_test.cpp: no source of src/a/b has this name",
                  "a/locked_test.cpp: no source of src/a has this name"));
}

TEST(UnitTests, OfThisRepositoryAreNamedAfterASource) {
  const std::filesystem::path root = PITON_SOURCE_DIR;
  SourceTree tests = read_tree(root / "tests/unit");
  EXPECT_GT(tests.size(), 100U);
  EXPECT_THAT(test_name_faults(read_tree(root / "src"), tests), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
