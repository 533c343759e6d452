// Every #include in src is of a lower layer, as listed in src/LAYERS, and CMakeLists.txt links what
// is included.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "repo/layers.h"
#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kSealedFloor = 4;  // implementations of the seams: only the root "api" names them

// The folder of a file, as src/LAYERS knows it: a folder inside a sealed one belongs to it, and so
// does one called vector, which is compiled for several instruction sets, to the one above; and
// kernels/recurrent, calls of one kind, to kernels.
std::string folder_of(const std::string& path, const std::map<std::string, double>& floors) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "" : path.substr(0, slash);
  for (const auto& [name, floor] : floors) {
    if (floor == kSealedFloor && folder.starts_with(name + "/")) return name;
    if (folder == name + "/vector") return name;
    if (name == "kernels" && folder == "kernels/recurrent") return name;
  }
  return folder;
}

// True for kernels/no_cuda and kernels/cuda: the first is linked where the second is not built.
bool stands_in_for(const std::string& folder, const std::string& other) {
  const std::size_t name = other.rfind('/') + 1;
  return folder == other.substr(0, name) + "no_" + other.substr(name);
}

std::string with_floor(const std::string& name, double floor) {
  std::ostringstream text;
  text << name << " (floor " << floor << ")";
  return text.str();
}

// One message for each broken rule.
std::vector<std::string> layering_faults(const SourceTree& tree,
                                         const std::map<std::string, double>& floors) {
  std::vector<std::string> faults;
  const std::regex include("^\\s*#\\s*include\\s*\"([^\"]+)\"");
  std::set<std::string> unlisted;
  for (const auto& [path, text] : tree) {
    const std::string folder = folder_of(path, floors);
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
      const std::string other = folder_of(target, floors);
      const auto theirs = floors.find(other);
      if (theirs == floors.end()) {
        faults.push_back(at_line(path, i, target + " is in no folder of src/LAYERS"));
      } else if (stands_in_for(folder, other)) {
        continue;
      } else if (other != folder && theirs->second >= own->second) {
        faults.push_back(at_line(
            path, i,
            with_floor(folder, own->second) + " includes " + with_floor(target, theirs->second)));
      } else if (other != folder && theirs->second == kSealedFloor && folder != "api") {
        faults.push_back(at_line(path, i, folder + " names " + other + "; only api may"));
      }
    }
  }
  return faults;
}

// Headers of CUDA are included in its own folders, and not in those of their headers that api
// reads.
std::vector<std::string> cuda_faults(const SourceTree& tree) {
  std::vector<std::string> faults;
  std::string read_by_api;
  for (const auto& [path, text] : tree) {
    if (path.starts_with("api/")) read_by_api += text;
  }
  const std::regex include(
      "^\\s*#\\s*include\\s*<(cu(da|blas|dnn|rand|b/)|nccl|cooperative_groups|mma)");
  for (const auto& [path, text] : tree) {
    const bool own = path.starts_with("kernels/cuda/") || path.starts_with("device/cuda/") ||
                     path.starts_with("comm/nccl/");
    if (own && read_by_api.find("\"" + path + "\"") == std::string::npos) continue;
    const std::vector<std::string> lines = lines_of(text);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (std::regex_search(lines[i], include))
        faults.push_back(at_line(path, i, "shows CUDA's types"));
    }
  }
  return faults;
}

// The folders that each folder is linked to by CMakeLists.txt.
using Links = std::map<std::string, std::set<std::string>>;

// Of piton_folder(NAME DEPENDS folders... LIBS libraries...), and of the program:
// target_link_libraries(piton PRIVATE piton_FOLDER ...).
Links read_links(const std::string& text, const std::map<std::string, double>& floors) {
  static const std::regex comment("#[^\n]*");
  static const std::regex call("(piton_folder|target_link_libraries)\\(([^)]*)\\)");
  const std::string code = std::regex_replace(text, comment, "");
  std::map<std::string, std::string> folder_of_target;
  for (const auto& [folder, floor] : floors) {
    std::string target = "piton_" + folder;
    std::replace(target.begin(), target.end(), '/', '_');
    folder_of_target[target] = folder;
  }
  Links links;
  for (std::sregex_iterator it(code.begin(), code.end(), call), end; it != end; ++it) {
    std::istringstream words((*it)[2].str());
    std::string name;
    words >> name;
    const bool program = (*it)[1] == "target_link_libraries";
    if (program && name != "piton") continue;
    std::set<std::string>& lower = links[program ? "cli" : name];
    bool depends = program;
    for (std::string word; words >> word;) {
      if (word == "DEPENDS" || word == "LIBS") {
        depends = word == "DEPENDS";
      } else if (depends && program) {
        const auto folder = folder_of_target.find(word);
        if (folder != folder_of_target.end()) lower.insert(folder->second);
      } else if (depends) {
        lower.insert(word);
      }
    }
  }
  return links;
}

// What the folder is linked to, directly or through others.
std::set<std::string> all_links(const std::string& folder, const Links& links) {
  std::set<std::string> all;
  std::vector<std::string> next{folder};
  while (!next.empty()) {
    const auto found = links.find(next.back());
    next.pop_back();
    if (found == links.end()) continue;
    for (const std::string& lower : found->second) {
      if (all.insert(lower).second) next.push_back(lower);
    }
  }
  return all;
}

// The library links targets, not folders: cmake/library.cmake.
constexpr const char* kUnlinked = "library";

// Folders below cli that are no libraries are compiled into the program, as cli is.
std::string linked_as(const std::string& folder, const Links& links) {
  return folder.starts_with("cli/") && !links.contains(folder) ? "cli" : folder;
}

std::vector<std::string> link_faults(const SourceTree& tree, const Links& links,
                                     const std::map<std::string, double>& floors) {
  std::vector<std::string> faults;
  const std::regex include("(^|\n)\\s*#\\s*include\\s*\"([^\"]+)\"");
  for (const auto& [folder, floor] : floors) {
    if (folder != kUnlinked && !links.contains(linked_as(folder, links))) {
      faults.push_back(folder + " is in src/LAYERS, but not in CMakeLists.txt");
    }
  }
  for (const auto& [folder, lower_ones] : links) {
    const auto own = floors.find(folder);
    for (const std::string& lower : lower_ones) {
      const auto theirs = floors.find(lower);
      if (own == floors.end() || theirs == floors.end()) {
        faults.push_back(folder + " DEPENDS " + lower + ": not in src/LAYERS");
      } else if (theirs->second >= own->second) {
        faults.push_back(with_floor(folder, own->second) + " DEPENDS " +
                         with_floor(lower, theirs->second));
      }
    }
  }
  std::map<std::string, std::set<std::string>> linked;
  for (const auto& [folder, lower] : links) linked[folder] = all_links(folder, links);
  std::set<std::string> reported;
  for (const auto& [path, text] : tree) {
    const std::string folder = linked_as(folder_of(path, floors), links);
    if (!links.contains(folder)) continue;
    for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
      const std::string other = linked_as(folder_of((*it)[2], floors), links);
      if (other == folder || stands_in_for(folder, other) || linked[folder].contains(other))
        continue;
      const std::string fault =
          folder + " includes " + other + ", which it does not DEPEND on in CMakeLists.txt";
      if (reported.insert(fault).second) faults.push_back(path + ": " + fault);
    }
  }
  return faults;
}

const char* const kFloors =
    "# comment\n0  base\n1  tensor text\n3  kernels\n"
    "4  kernels/cpu kernels/no_cpu kernels/meta\n5  ops\n10 api\n";

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

TEST(Layering, ReadsFoldersAndTheirContents) {
  const std::vector<Layer> layers =
      read_layers("# a comment\n1.1  text/unicode  # characters\n2 a b\n");
  ASSERT_EQ(layers.size(), 3U);
  EXPECT_EQ(layers[0].floor, "1.1");
  EXPECT_EQ(layers[0].folder, "text/unicode");
  EXPECT_EQ(layers[0].contents, "characters");
  EXPECT_EQ(layers[2].folder, "b");
  EXPECT_EQ(layers[2].contents, "");
}

TEST(Layering, KnowsFloorsBetweenTwoFloors) {
  const auto floors = read_floors("1 text\n1.1 text/unicode\n1.2 text/models\n");
  EXPECT_THAT(layering_faults({{"text/models/a.h", "#include \"text/unicode/b.h\"\n"},
                               {"text/unicode/b.h", "#include \"text/models/a.h\"\n"}},
                              floors),
              ElementsAre("text/unicode/b.h:1: text/unicode (floor 1.1) includes text/models/a.h "
                          "(floor 1.2)"));
}

TEST(Layering, ListsNoFolderThatIsNotThere) {
  for (const auto& [folder, floor] :
       read_floors(read_text_file(std::filesystem::path(PITON_SOURCE_DIR) / "src/LAYERS"))) {
    EXPECT_TRUE(
        std::filesystem::is_directory(std::filesystem::path(PITON_SOURCE_DIR) / "src" / folder))
        << folder;
  }
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

TEST(Layering, CountsFoldersInsideASealedOneAsPartOfIt) {
  EXPECT_THAT(faults_of({{"ops/a.cpp", "#include \"ops/vector/x.h\"\n"},
                         {"ops/vector/x.cpp", "#include \"kernels/k.h\"\n"}}),
              IsEmpty());
  EXPECT_THAT(faults_of({{"kernels/cpu/a.cpp", "#include \"kernels/cpu/vector/x.h\"\n"},
                         {"kernels/cpu/vector/x.cpp", "#include \"kernels/k.h\"\n"},
                         {"kernels/meta/a.cpp", "#include \"kernels/cpu/vector/x.h\"\n"}}),
              ElementsAre("kernels/meta/a.cpp:1: kernels/meta (floor 4) includes "
                          "kernels/cpu/vector/x.h (floor 4)"));
}

TEST(Layering, LetsAFolderStandInForOneThatIsNotBuilt) {
  EXPECT_THAT(faults_of({{"kernels/no_cpu/a.cpp", "#include \"kernels/cpu/x.h\"\n"},
                         {"kernels/cpu/a.cpp", "#include \"kernels/no_cpu/x.h\"\n"},
                         {"kernels/no_cpu/b.cpp", "#include \"kernels/meta/x.h\"\n"}}),
              ElementsAre("kernels/cpu/a.cpp:1: kernels/cpu (floor 4) includes "
                          "kernels/no_cpu/x.h (floor 4)",
                          "kernels/no_cpu/b.cpp:1: kernels/no_cpu (floor 4) includes "
                          "kernels/meta/x.h (floor 4)"));
}

TEST(Cuda, ShowsItsTypesInItsOwnFoldersOnly) {
  EXPECT_THAT(
      cuda_faults({{"api/a.cpp", "#include \"device/cuda/device.h\"\n"},
                   {"device/a.h", "// a\n#include <cuda_runtime_api.h>\n"},
                   {"device/cuda/check.h", "#include <cuda_runtime_api.h>\n"},
                   {"device/cuda/device.h", "#include <cublas_v2.h>\n"},
                   {"ops/a.cpp", "#include <nccl.h>\n#include <cmath>\n#include <curl.h>\n"}}),
      ElementsAre("device/a.h:2: shows CUDA's types", "device/cuda/device.h:1: shows CUDA's types",
                  "ops/a.cpp:1: shows CUDA's types"));
}

TEST(Layering, CatchesFoldersAndFilesOutsideTheList) {
  EXPECT_THAT(faults_of({{"extra/a.h", ""},
                         {"extra/b.h", ""},
                         {"ops/a.h", "#include \"b.h\"\n#include \"../base/b.h\"\n"}}),
              ElementsAre("folder \"extra\" is not listed in src/LAYERS",
                          "ops/a.h:1: b.h is in no folder of src/LAYERS",
                          "ops/a.h:2: ../base/b.h is in no folder of src/LAYERS"));
}

TEST(Links, AgreeWithFloorsAndIncludes) {
  const auto floors =
      read_floors("0 base\n1 tensor text\n1.1 text/files\n2 ops\n3 library cli\n4 cli/inspect\n");
  const auto faults = [&](const std::string& cmake) {
    return link_faults({{"ops/a.cpp", "// a\n#include \"ops/a.h\"\n#include \"base/b.h\"\n"},
                        {"ops/b.cpp", "#include \"text/files/c.h\"\n"},
                        {"cli/inspect/a.cpp", "#include \"cli/b.h\"\n"},
                        {"cli/main.cpp", "#include \"ops/a.h\"\n"}},
                       read_links(cmake, floors), floors);
  };
  const std::string lower =
      "piton_folder(base LIBS fmt::fmt)\npiton_folder(tensor DEPENDS base)\n# piton_folder(x)\n"
      "piton_folder(text DEPENDS base)\npiton_folder(text/files DEPENDS text LIBS tensor)\n";
  const std::string program = "target_link_libraries(piton PRIVATE piton_ops spdlog::spdlog)\n";
  EXPECT_THAT(
      faults(lower + "piton_folder(ops DEPENDS tensor\n             text/files)\n" + program),
      IsEmpty());
  EXPECT_THAT(
      faults(lower + "piton_folder(ops DEPENDS tensor)\n"
                     "target_link_libraries(piton PRIVATE piton_text_files)\n"),
      ElementsAre("cli/main.cpp: cli includes ops, which it does not DEPEND on in CMakeLists.txt",
                  "ops/b.cpp: ops includes text/files, which it does not DEPEND on in "
                  "CMakeLists.txt"));
  EXPECT_THAT(faults("piton_folder(base DEPENDS tensor)\npiton_folder(tensor DEPENDS text more)\n"
                     "piton_folder(text)\npiton_folder(ops DEPENDS base text/files)\n" +
                     program),
              ElementsAre("text/files is in src/LAYERS, but not in CMakeLists.txt",
                          "base (floor 0) DEPENDS tensor (floor 1)",
                          "tensor DEPENDS more: not in src/LAYERS",
                          "tensor (floor 1) DEPENDS text (floor 1)"));
}

TEST(Links, OfThisRepositoryAgreeWithFloorsAndIncludes) {
  const std::filesystem::path root = PITON_SOURCE_DIR;
  const auto floors = read_floors(read_text_file(root / "src/LAYERS"));
  const Links links = read_links(read_text_file(root / "CMakeLists.txt"), floors);
  ASSERT_GT(links.size(), 20U);
  EXPECT_THAT(link_faults(read_tree(root / "src"), links, floors), IsEmpty());
}

TEST(Layering, HoldsInThisRepository) {
  const std::filesystem::path src = std::filesystem::path(PITON_SOURCE_DIR) / "src";
  const SourceTree tree = read_tree(src);
  ASSERT_GT(tree.size(), 10U);
  EXPECT_THAT(layering_faults(tree, read_floors(read_text_file(src / "LAYERS"))), IsEmpty());
  EXPECT_THAT(cuda_faults(tree), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
