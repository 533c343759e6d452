// tests/golden/seeds_features: each feature of the documents that Piton replaces, with the tests
// that show it, or the reason why it is left out. The rules are first tested on made-up tables.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kChapters = 21;
constexpr std::string_view kLeftOut = "left out:";

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream text(line);
  for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
  return fields;
}

// Suite.Name of each test in `text`.
void add_tests(const std::string& text, std::set<std::string>& tests) {
  static const std::regex kTest(R"((^|\n)TEST(_F|_P)?\(\s*(\w+),\s*(\w+)\))");
  for (std::sregex_iterator test(text.begin(), text.end(), kTest), end; test != end; ++test)
    tests.insert((*test)[3].str() + "." + (*test)[4].str());
}

std::vector<std::string> table_faults(const std::string& table,
                                      const std::set<std::string>& tests) {
  std::vector<std::string> faults;
  std::set<int> chapters;
  std::set<std::string> rows;
  for (const std::string& line : lines_of(table)) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> fields = fields_of(line);
    const bool numbered = !fields.empty() && std::regex_match(fields[0], std::regex("[0-9]{1,2}"));
    if (fields.size() != 3 || !numbered || fields[1].empty()) {
      faults.push_back("\"" + line + "\": wanted number, feature and tests");
      continue;
    }
    const int chapter = std::stoi(fields[0]);
    if (chapter < 1 || chapter > kChapters) faults.push_back("no chapter " + fields[0]);
    chapters.insert(chapter);
    const std::string row = fields[0] + " " + fields[1];
    if (!rows.insert(row).second) faults.push_back(row + ": is there twice");
    if (fields[2].starts_with(kLeftOut)) {
      if (fields[2].find_first_not_of(' ', kLeftOut.size()) == std::string::npos)
        faults.push_back(row + ": left out without a reason");
      continue;
    }
    std::istringstream words(fields[2]);
    int shown = 0;
    for (std::string test; words >> test; ++shown) {
      if (!tests.contains(test)) faults.push_back(row + ": there is no test " + test);
    }
    if (shown == 0) faults.push_back(row + ": no test");
  }
  for (int chapter = 1; chapter <= kChapters; ++chapter) {
    if (!chapters.contains(chapter))
      faults.push_back("no row of chapter " + std::to_string(chapter));
  }
  return faults;
}

std::string rows_of_all_but(int left) {
  std::string table = "# a comment\n";
  for (int chapter = 1; chapter <= kChapters; ++chapter) {
    if (chapter != left) table += std::to_string(chapter) + "\tpumps\tPump.Turns commands/run\n";
  }
  return table;
}

TEST(SeedsFeatures, NameTestsThatExist) {
  std::set<std::string> tests{"commands/run"};
  add_tests("TEST(Pump, Turns) {\n}\nTEST_P(Valve,\n       Opens) {\n}\n// TEST(No, Test)\n",
            tests);
  EXPECT_THAT(tests, ElementsAre("Pump.Turns", "Valve.Opens", "commands/run"));
  EXPECT_THAT(table_faults(rows_of_all_but(0), tests), IsEmpty());
  EXPECT_THAT(table_faults(rows_of_all_but(4), tests), ElementsAre("no row of chapter 4"));
  EXPECT_THAT(
      table_faults(rows_of_all_but(0) + "3\tvalves\tValve.Opens Valve.Closes commands/walk\n"
                                        "3\tlids\tleft out: they are of another machine\n"
                                        "3\tbolts\tleft out: \n"
                                        "3\tpumps\tPump.Turns\n"
                                        "22\tropes\tPump.Turns\n"
                                        "5\tnuts\t \n"
                                        "5 screws\n",
                   tests),
      ElementsAre("3 valves: there is no test Valve.Closes",
                  "3 valves: there is no test commands/walk", "3 bolts: left out without a reason",
                  "3 pumps: is there twice", "no chapter 22", "5 nuts: no test",
                  "\"5 screws\": wanted number, feature and tests"));
}

TEST(SeedsFeatures, OfThisRepositoryNameTestsThatExist) {
  const std::filesystem::path root = PITON_SOURCE_DIR;
  std::set<std::string> tests;
  for (const auto& [path, text] : read_tree(root / "tests")) add_tests(text, tests);
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root / "tests" / "commands")) {
    if (entry.path().extension() == ".cmake")
      tests.insert("commands/" + entry.path().stem().string());
  }
  ASSERT_GT(tests.size(), 1000U);
  EXPECT_THAT(table_faults(read_text_file(root / "tests" / "golden" / "seeds_features"), tests),
              IsEmpty());
}

}  // namespace
}  // namespace piton::repo
