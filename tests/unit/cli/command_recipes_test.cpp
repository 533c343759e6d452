// The recipes say what they said before they inherited from one another.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "base/files/files.h"
#include "train/run/pretrain_options.h"

namespace piton {
namespace {

// The sections of tests/golden/recipes.txt by the names in brackets.
std::map<std::string, std::string> golden() {
  std::istringstream file(
      read_text_file(std::string(PITON_SOURCE_DIR) + "/tests/golden/recipes.txt"));
  std::map<std::string, std::string> sections;
  std::string name;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (line.starts_with('[')) {
      name = line.substr(1, line.size() - 2);
    } else {
      sections[name] += line + "\n";
    }
  }
  return sections;
}

TEST(Recipes, HaveTheOptionsThatTheyHadInOneFile) {
  const auto sections = golden();
  int recipes = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(PITON_SOURCE_DIR) + "/recipes")) {
    if (entry.path().extension() != ".toml") continue;
    const std::string name = entry.path().stem().string();
    if (!sections.contains(name)) continue;  // made later, and in one file
    PretrainOptions read, wanted;
    OptionSet read_set, wanted_set;
    read.add_to(read_set);
    wanted.add_to(wanted_set);
    read_set.read_toml(entry.path());
    wanted_set.read_toml_text(sections.at(name), "golden");
    EXPECT_EQ(read_set.to_toml(), wanted_set.to_toml()) << name;
    ++recipes;
  }
  EXPECT_EQ(recipes, static_cast<int>(sections.size()));
}

}  // namespace
}  // namespace piton
