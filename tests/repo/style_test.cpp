// Rules for every source file. Each rule is first tested on a made-up tree.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <set>

#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Faults = std::vector<std::string>;

constexpr std::size_t kMostFileLines = 500;

// Calls `look` with each line of each file's code, comments and literals blanked.
void for_each_code_line(
    const SourceTree& tree,
    const std::function<void(const std::string&, std::size_t, const std::string&)>& look) {
  for (const auto& [path, text] : tree) {
    const std::vector<std::string> lines = lines_of(code_only(text));
    for (std::size_t i = 0; i < lines.size(); ++i) look(path, i, lines[i]);
  }
}

Faults header_faults(const SourceTree& tree) {
  Faults faults;
  for (const auto& [path, text] : tree) {
    if (!is_header(path)) continue;
    if (!text.starts_with("// ")) faults.push_back(path + ": does not open with a comment");
    if (text.find("\n#pragma once\n") == text.npos)
      faults.push_back(path + ": has no #pragma once");
  }
  return faults;
}

TEST(Headers, OpenWithACommentAndArePragmaOnce) {
  EXPECT_THAT(header_faults({{"a/good.h", "// What it is.\n#pragma once\n"},
                             {"a/bare.h", "#pragma once\n"},
                             {"a/twice.h", "// What it is.\nint x;\n"},
                             {"a/b.cpp", "int x;\n"}}),
              ElementsAre("a/bare.h: does not open with a comment", "a/bare.h: has no #pragma once",
                          "a/twice.h: has no #pragma once"));
}

// A missing feature is another file, not a branch of the preprocessor.
Faults condition_faults(const SourceTree& tree) {
  Faults faults;
  const std::regex condition("^\\s*#\\s*(if|ifdef|ifndef|elif|else)\\b");
  for_each_code_line(tree, [&](const std::string& path, std::size_t i, const std::string& line) {
    if (path != "base/platform.h" && std::regex_search(line, condition)) {
      faults.push_back(at_line(path, i, "preprocessor condition outside base/platform.h"));
    }
  });
  return faults;
}

TEST(PreprocessorConditions, StandInOneHeader) {
  EXPECT_THAT(condition_faults({{"base/platform.h", "#ifdef A\n#endif\n"},
                                {"a/a.cpp", "// #if in a comment\nconst char* x = \"#if\";\n"},
                                {"a/b.cpp", "int x;\n # ifdef A\n#endif\n"}}),
              ElementsAre("a/b.cpp:2: preprocessor condition outside base/platform.h"));
}

// base/error.cpp is where an assertion prints and aborts; Communicator::abort ends this process,
// and by that all ranks. A child that was forked for a sandbox ends by _exit alone.
Faults output_faults(const SourceTree& tree) {
  Faults faults;
  const std::regex call(
      "std::(cout|cerr|clog|abort)\\b|"
      "(^|[^A-Za-z0-9_.>])(printf|fprintf|puts|fputs|perror|exit|_exit|quick_exit|_Exit|"
      "getenv|secure_getenv|setenv)\\s*\\(");
  for_each_code_line(tree, [&](const std::string& path, std::size_t i, const std::string& line) {
    if (path.starts_with("cli/") || path == "base/error.cpp" || path == "comm/single.cpp" ||
        path == "comm/ranks/engine.cpp" || path == "comm/nccl/world.cpp" ||
        path == "evaluate/python_sandbox.cpp" || path == "evaluate/sandbox_child.cpp") {
      return;
    }
    std::smatch match;
    if (std::regex_search(line, match, call)) {
      faults.push_back(at_line(path, i, "prints, exits or reads the environment outside cli"));
    }
  });
  return faults;
}

TEST(Libraries, NeitherPrintNorExitNorReadTheEnvironment) {
  EXPECT_THAT(
      output_faults({{"cli/main.cpp", "std::printf(\"x\");\n"},
                     {"a/good.cpp", "snprintf(x); fmt::print_to(y); pool.exit(); // exit(1)\n"},
                     {"a/b.cpp",
                      "std::cout << 1;\nstd::exit(1);\n\n::getenv(\"HOME\");\n"
                      "  printf(\"\");\n"}}),
      ElementsAre("a/b.cpp:1: prints, exits or reads the environment outside cli",
                  "a/b.cpp:2: prints, exits or reads the environment outside cli",
                  "a/b.cpp:4: prints, exits or reads the environment outside cli",
                  "a/b.cpp:5: prints, exits or reads the environment outside cli"));
}

// nlohmann's header alone takes a second to read and four to compile, and its parser again where it
// is called: base/json.h compiles both once.
Faults json_faults(const SourceTree& tree) {
  Faults faults;
  for_each_code_line(tree, [&](const std::string& path, std::size_t i, const std::string& line) {
    if (path != "base/json.h" && line.find("#include <nlohmann/json.hpp>") != std::string::npos) {
      faults.push_back(at_line(path, i, "include base/json.h instead"));
    }
    if (line.find("json::parse(") != std::string::npos) {
      faults.push_back(at_line(path, i, "call read_json instead"));
    }
  });
  return faults;
}

TEST(Json, IsCompiledByOneSource) {
  EXPECT_THAT(
      json_faults({{"base/json.h", "#include <nlohmann/json.hpp>\n"},
                   {"a/a.cpp", "#include \"a/a.h\"\n#include <nlohmann/json.hpp>\n"},
                   {"a/b.cpp", "const auto x = nlohmann::json::parse(text);\n"}}),
      ElementsAre("a/a.cpp:2: include base/json.h instead", "a/b.cpp:1: call read_json instead"));
}

// Names that say nothing are the second place to look for everything.
Faults name_faults(const SourceTree& tree) {
  Faults faults;
  const std::regex name("(^|[/_])(utils?|utilities|helpers?|misc|common|stuff)([/_.]|$)");
  for (const auto& [path, text] : tree) {
    if (std::regex_search(path, name)) faults.push_back(path + ": the name says nothing");
  }
  return faults;
}

TEST(Names, SayWhatIsInside) {
  EXPECT_THAT(
      name_faults({{"a/commonest.h", ""}, {"utils/a.h", ""}, {"a/string_util.cpp", ""}}),
      ElementsAre("a/string_util.cpp: the name says nothing", "utils/a.h: the name says nothing"));
}

Faults length_faults(const SourceTree& tree, std::size_t limit) {
  Faults faults;
  for (const auto& [path, text] : tree) {
    const std::size_t lines = lines_of(text).size();
    if (lines > limit) {
      faults.push_back(path + ": " + std::to_string(lines) + " lines; cut it by subject");
    }
  }
  return faults;
}

TEST(Files, HaveOneSubject) {
  EXPECT_THAT(length_faults({{"a/a.h", "1\n2\n"}, {"a/b.h", "1\n2\n3\n"}}, 2),
              ElementsAre("a/b.h: 3 lines; cut it by subject"));
}

// The number of files of each folder below `root`, which is "".
std::map<std::string, std::size_t> files_of_folders(const std::filesystem::path& root) {
  std::map<std::string, std::size_t> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    ++files[entry.path().parent_path().lexically_relative(root).generic_string()];
  }
  return files;
}

// Folders have few enough files to see them all at once.
Faults folder_faults(const std::map<std::string, std::size_t>& files, std::size_t limit) {
  Faults faults;
  for (const auto& [folder, count] : files) {
    if (count > limit)
      faults.push_back(folder + ": " + std::to_string(count) + " files; cut it by subject");
  }
  return faults;
}

TEST(Folders, ThatAreLargeAreFaults) {
  EXPECT_THAT(folder_faults({{"a", 2}, {"a/b", 1}, {"b", 3}, {"c", 1}}, 2),
              ElementsAre("b: 3 files; cut it by subject"));
}

Faults unfinished_faults(const SourceTree& tree) {
  Faults faults;
  const std::regex mark("\\b(TODO|FIXME|HACK)\\b");
  for (const auto& [path, text] : tree) {
    const std::vector<std::string> lines = lines_of(text);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (std::regex_search(lines[i], mark)) faults.push_back(at_line(path, i, "unfinished"));
    }
  }
  return faults;
}

TEST(Files, AreFinished) {
  EXPECT_THAT(unfinished_faults({{"a/a.h", "// x\n// TODO: clean up\n"}, {"b/b.h", "// TODOS\n"}}),
              ElementsAre("a/a.h:2: unfinished"));
}

TEST(CodeOnly, BlanksCommentsAndLiterals) {
  EXPECT_EQ(code_only("a // b\nc /* d\ne */ f"), "a     \nc     \n     f");
  EXPECT_EQ(code_only("x(\"a\\\"b\", 'c', 1'000);"), "x(\"    \", ' ', 1'000);");
  EXPECT_EQ(code_only("U'{' u8'}' 0xFF'FF"), "U' ' u8' ' 0xFF'FF");
  EXPECT_EQ(code_only("y = R\"(a\"b)\"; z"), "y =         ; z");
}

class ThisRepository : public testing::Test {
 protected:
  static std::filesystem::path root() { return PITON_SOURCE_DIR; }
  const SourceTree src_ = read_tree(root() / "src");
};

TEST_F(ThisRepository, HasHeadersThatSayWhatTheyAre) {
  EXPECT_THAT(header_faults(src_), IsEmpty());
}
TEST_F(ThisRepository, HasConditionsInOneHeader) { EXPECT_THAT(condition_faults(src_), IsEmpty()); }
TEST_F(ThisRepository, PrintsAndExitsInCliAlone) { EXPECT_THAT(output_faults(src_), IsEmpty()); }
TEST_F(ThisRepository, CompilesJsonOnce) {
  EXPECT_THAT(json_faults(src_), IsEmpty());
  EXPECT_THAT(json_faults(read_tree(root() / "tests")), IsEmpty());
}
TEST_F(ThisRepository, HasTellingNames) { EXPECT_THAT(name_faults(src_), IsEmpty()); }
TEST_F(ThisRepository, HasShortFiles) {
  EXPECT_THAT(length_faults(src_, kMostFileLines), IsEmpty());
}
TEST_F(ThisRepository, HasSmallFolders) {
  EXPECT_THAT(folder_faults(files_of_folders(root() / "src"), 40), IsEmpty());
  EXPECT_THAT(folder_faults(files_of_folders(root() / "tests"), 40), IsEmpty());
}
TEST_F(ThisRepository, IsFinished) { EXPECT_THAT(unfinished_faults(src_), IsEmpty()); }

TEST_F(ThisRepository, KeepsItsTestsToTheSameNames) {
  const SourceTree tests = read_tree(root() / "tests");
  EXPECT_THAT(name_faults(tests), IsEmpty());
  EXPECT_THAT(header_faults(tests), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
