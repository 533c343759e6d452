// Every #include of src goes down, as src/LAYERS has it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kSealedFloor = 4;  // implementations of the seams: only the root "api" names them

std::map<std::string, int> read_floors(const std::string& text) {
  std::map<std::string, int> floors;
  for (const std::string& line : lines_of(text)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    int floor = 0;
    words >> floor;
    for (std::string folder; words >> folder;) floors[folder] = floor;
  }
  return floors;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}

// One message for each broken rule.
std::vector<std::string> layering_faults(const SourceTree& tree,
                                         const std::map<std::string, int>& floors) {
  std::vector<std::string> faults;
  const std::regex include("^\\s*#\\s*include\\s*\"([^\"]+)\"");
  std::set<std::string> unlisted;
  for (const auto& [path, text] : tree) {
    const std::string folder = folder_of(path);
    const auto own = floors.find(folder);
    if (own == floors.end()) {
      if (unlisted.insert(folder).second) {
        faults.push_back("folder \"" + folder + "\" is not listed in src/LAYERS");
      }
      continue;
    }
    const std::vector<std::string> lines = lines_of(text);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_search(lines[i], match, include)) continue;
      const std::string target = match[1];
      const std::string other = folder_of(target);
      const auto theirs = floors.find(other);
      if (theirs == floors.end()) {
        faults.push_back(at_line(path, i, target + " is in no folder of src/LAYERS"));
      } else if (other != folder && theirs->second >= own->second) {
        faults.push_back(at_line(path, i,
                                 folder + " (floor " + std::to_string(own->second) + ") includes " +
                                     target + " (floor " + std::to_string(theirs->second) + ")"));
      } else if (other != folder && theirs->second == kSealedFloor && folder != "api") {
        faults.push_back(at_line(path, i, folder + " names " + other + "; only api may"));
      }
    }
  }
  return faults;
}

const char* const kFloors =
    "# comment\n0  base\n1  tensor text\n3  kernels\n4  kernels/cpu kernels/meta\n5  ops\n10 api\n";

std::vector<std::string> faults_of(const SourceTree& tree) {
  return layering_faults(tree, read_floors(kFloors));
}

TEST(Layering, AllowsIncludesOfLowerFloorsAndOfTheOwnFolder) {
  EXPECT_THAT(faults_of({{"tensor/a.h", "#include \"base/b.h\"\n#include \"tensor/c.h\"\n"},
                         {"kernels/cpu/a.cpp", "#include \"kernels/k.h\"\n#include <vector>\n"},
                         {"api/a.cpp", "#include \"kernels/cpu/a.h\"\n"}}),
              IsEmpty());
}

TEST(Layering, CatchesAnIncludeOfAHigherFloor) {
  EXPECT_THAT(faults_of({{"base/a.h", "// a\n  #  include \"ops/x.h\"  // why\n"}}),
              ElementsAre("base/a.h:2: base (floor 0) includes ops/x.h (floor 5)"));
}

TEST(Layering, CatchesAnIncludeOfASibling) {
  EXPECT_THAT(
      faults_of({{"tensor/a.h", "#include \"text/x.h\"\n"},
                 {"kernels/cpu/a.h", "#include \"kernels/meta/x.h\"\n"}}),
      ElementsAre("kernels/cpu/a.h:1: kernels/cpu (floor 4) includes kernels/meta/x.h (floor 4)",
                  "tensor/a.h:1: tensor (floor 1) includes text/x.h (floor 1)"));
}

TEST(Layering, KeepsTheSealedFoldersForTheApi) {
  EXPECT_THAT(faults_of({{"ops/a.cpp", "#include \"kernels/cpu/x.h\"\n"}}),
              ElementsAre("ops/a.cpp:1: ops names kernels/cpu; only api may"));
}

TEST(Layering, CatchesFoldersAndFilesOutsideTheList) {
  EXPECT_THAT(faults_of({{"extra/a.h", ""},
                         {"extra/b.h", ""},
                         {"ops/a.h", "#include \"b.h\"\n#include \"../base/b.h\"\n"}}),
              ElementsAre("folder \"extra\" is not listed in src/LAYERS",
                          "ops/a.h:1: b.h is in no folder of src/LAYERS",
                          "ops/a.h:2: ../base/b.h is in no folder of src/LAYERS"));
}

TEST(Layering, HoldsInThisRepository) {
  const std::filesystem::path src = std::filesystem::path(PITON_SOURCE_DIR) / "src";
  const SourceTree tree = read_tree(src);
  ASSERT_GT(tree.size(), 10U);
  EXPECT_THAT(layering_faults(tree, read_floors(read_text_file(src / "LAYERS"))), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
