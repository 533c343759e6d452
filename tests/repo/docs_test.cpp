// Rules for pages of documentation: what they say of files agrees with the files. Each rule is
// first tested on made-up pages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "repo/layers.h"
#include "repo/pages.h"
#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Faults = std::vector<std::string>;

const std::filesystem::path kRoot = PITON_SOURCE_DIR;

// The names that GitHub gives to the headings of a page: "## Known gaps" is "known-gaps".
std::set<std::string> anchors_of(const std::string& page) {
  std::set<std::string> anchors;
  bool fenced = false;
  for (const std::string& line : lines_of(page)) {
    fenced = fenced != line.starts_with("```");
    const std::size_t begin = line.find_first_not_of("# ");
    if (fenced || !line.starts_with("#") || begin == line.npos) continue;
    std::string anchor;
    for (const char c : line.substr(begin)) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == ' ' || c == '-') anchor += '-';
      if (std::isalnum(byte) || c == '_' || byte >= 0x80)
        anchor += static_cast<char>(std::tolower(byte));
    }
    anchors.insert(anchor);
  }
  return anchors;
}

// Links to files that `exists` does not know, and to headings that a page does not have.
template <typename Exists>
Faults link_faults(const SourceTree& pages, const Exists& exists) {
  Faults faults;
  const std::regex link("\\]\\(([^)\\s]+)\\)");
  for (const auto& [path, page] : pages) {
    const std::string text = without_code(page);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const std::string target = (*it)[1];
      if (target.find("://") != target.npos) continue;
      const std::size_t hash = std::min(target.find('#'), target.size());
      const std::filesystem::path folder = std::filesystem::path(path).parent_path();
      const std::string file =
          hash == 0 ? path : (folder / target.substr(0, hash)).lexically_normal().generic_string();
      const auto other = pages.find(file);
      if (other == pages.end() && !exists(file)) {
        faults.push_back(path + ": links to " + target + ", which does not exist");
      } else if (hash < target.size() && other != pages.end() &&
                 !anchors_of(other->second).contains(target.substr(hash + 1))) {
        faults.push_back(path + ": links to " + target + ", a heading that " + file + " lacks");
      }
    }
  }
  return faults;
}

bool nothing(const std::string&) { return false; }

TEST(Links, LeadToFilesAndHeadings) {
  EXPECT_THAT(link_faults({{"docs/a.md", "# A page\n## Its `x_y` and more\n"},
                           {"b.md",
                            "[a](docs/a.md) [b](docs/a.md#its-x_y-and-more) [c](#top)\n"
                            "`[d](e)`\n```\n[f](g)\n# top\n```\n[h](https://i.j/k)\n"},
                           {"docs/l.md", "[a](a.md#gone)\n[b](../b.md) [c](b.md)\n"}},
                          nothing),
              ElementsAre("b.md: links to #top, a heading that b.md lacks",
                          "docs/l.md: links to a.md#gone, a heading that docs/a.md lacks",
                          "docs/l.md: links to b.md, which does not exist"));
}

TEST(Links, OfThisRepositoryLeadSomewhere) {
  EXPECT_THAT(
      link_faults(read_pages(kRoot),
                  [](const std::string& file) { return std::filesystem::exists(kRoot / file); }),
      IsEmpty());
}

// Pages of docs that the README does not link to.
Faults unlinked_pages(const SourceTree& pages) {
  Faults faults;
  for (const auto& [path, page] : pages) {
    if (path.starts_with("docs/") && pages.at("README.md").find("(" + path) == std::string::npos)
      faults.push_back("README.md has no link to " + path);
  }
  return faults;
}

TEST(Readme, LinksToEveryPage) {
  EXPECT_THAT(
      unlinked_pages(
          {{"README.md", "[a](docs/a.md), docs/b.md"}, {"docs/a.md", ""}, {"docs/b.md", ""}}),
      ElementsAre("README.md has no link to docs/b.md"));
  EXPECT_THAT(unlinked_pages(read_pages(kRoot)), IsEmpty());
}

// Words between backticks that are paths of files: `nn/linear.h`, `parallel/schedule.{h,cpp}`.
// Words in capitals are names that the reader chooses: `comm/NAME`.
std::set<std::string> paths_in(const std::string& page) {
  std::set<std::string> paths;
  const std::regex path("`((?:[a-z0-9_.]+/)+[a-z0-9_]+)\\.(h|cpp|cu|py|cmake|sh|\\{h,cpp\\})`");
  for (std::sregex_iterator it(page.begin(), page.end(), path), end; it != end; ++it) {
    const std::string ending = (*it)[2];
    if (ending.front() != '{') {
      paths.insert((*it)[1].str() + "." + ending);
      continue;
    }
    for (const char* each : {".h", ".cpp"}) paths.insert((*it)[1].str() + each);
  }
  return paths;
}

// Files that a page names and `exists` knows neither in the root nor in src.
template <typename Exists>
Faults path_faults(const SourceTree& pages, const Exists& exists) {
  Faults faults;
  for (const auto& [path, page] : pages) {
    for (const std::string& file : paths_in(page)) {
      if (!exists(file) && !exists("src/" + file))
        faults.push_back(path + ": names " + file + ", which does not exist");
    }
  }
  return faults;
}

TEST(Paths, AreThoseOfFiles) {
  EXPECT_THAT(
      path_faults(
          {{"a.md", "`nn/linear.h` `tools/b.{h,cpp}` `c.h` `nn/NAME.cpp` `piton x/y.h`"}},
          [](const std::string& file) { return file == "src/nn/linear.h" || file == "tools/b.h"; }),
      ElementsAre("a.md: names tools/b.cpp, which does not exist"));
}

TEST(Paths, OfThisRepositoryAreThoseOfFiles) {
  SourceTree pages = read_pages(kRoot);
  pages.erase("CHANGELOG.md");  // these two tell of files that are gone
  pages.erase("docs/mutants.md");
  pages.erase("docs/coming_from_megatron.md");  // these two tell of Megatron-LM's files
  pages.erase("docs/megatron_flags.md");
  EXPECT_THAT(
      path_faults(pages,
                  [](const std::string& file) { return std::filesystem::exists(kRoot / file); }),
      IsEmpty());
}

// Characters, not bytes.
std::size_t columns_of(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// Lines that are too long to be read in an editor. Rows of tables and indented or fenced blocks
// cannot be divided.
Faults width_faults(const SourceTree& pages) {
  constexpr std::size_t kColumns = 120;
  Faults faults;
  for (const auto& [path, page] : pages) {
    const std::vector<std::string> lines = lines_of(page);
    bool fenced = false;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      fenced = fenced != lines[i].starts_with("```");
      const bool whole = fenced || lines[i].starts_with("|") || lines[i].starts_with("    ");
      if (!whole && columns_of(lines[i]) > kColumns)
        faults.push_back(at_line(path, i, "is over 120 columns wide"));
    }
  }
  return faults;
}

TEST(Pages, AreAtMost120ColumnsWide) {
  const std::string wide(121, 'a');
  EXPECT_THAT(
      width_faults({{"a.md", std::string(120, 'a') + "\n" + wide + "\n|" + wide + "\n    " + wide},
                    {"b.md", "```\n" + wide + "\n```\n" + wide}}),
      ElementsAre("a.md:2: is over 120 columns wide", "b.md:4: is over 120 columns wide"));
  SourceTree pages = read_pages(kRoot);
  pages.erase("CHANGELOG.md");  // its entries are joined by line
  EXPECT_THAT(width_faults(pages), IsEmpty());
}

TEST(Architecture, HasTheTableOfLayers) {
  const std::string page = read_text_file(kRoot / "docs/architecture.md");
  const std::string picture = read_text_file(kRoot / "docs/diagrams/layers.svg");
  std::string table;
  for (const Layer& layer : read_layers(read_text_file(kRoot / "src/LAYERS"))) {
    EXPECT_NE(layer.contents, "") << "src/LAYERS does not say what " << layer.folder << " has";
    table += "| " + layer.floor + " | `" + layer.folder + "` | " + layer.contents + " |\n";
    EXPECT_NE(picture.find(">" + layer.folder + "<"), picture.npos)
        << "docs/diagrams/layers.svg lacks " << layer.folder << "; run `make diagrams`";
  }
  EXPECT_NE(page.find("| --- | --- | --- |\n" + table + "\n"), page.npos)
      << "run `make diagrams`: docs/architecture.md has another table than src/LAYERS:\n"
      << table;
}

// The words of an SVG picture, one by one as they are placed.
std::vector<std::string> words_of_picture(const std::string& svg) {
  std::vector<std::string> words;
  const std::regex text("<text[^>]*>([^<]*)</text>");
  for (std::sregex_iterator it(svg.begin(), svg.end(), text), end; it != end; ++it)
    words.push_back((*it)[1]);
  return words;
}

TEST(Diagrams, NameFilesAndFoldersThatExist) {
  ASSERT_THAT(words_of_picture("<text x=\"1\">a b</text><rect/><text>c.h</text>"),
              ElementsAre("a b", "c.h"));
  const std::regex path("([a-z0-9_]+/)+[a-z0-9_]+(\\.h|\\.cpp)?");
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "docs/diagrams")) {
    for (const std::string& words : words_of_picture(read_text_file(entry.path()))) {
      if (!std::regex_match(words, path)) continue;
      EXPECT_TRUE(std::filesystem::exists(kRoot / "src" / words))
          << entry.path().filename() << " names " << words << "; run `make diagrams`";
    }
  }
}

TEST(Architecture, IsReadInAQuarterOfAnHour) {
  std::istringstream page(read_text_file(kRoot / "docs/architecture.md"));
  const auto count = std::count_if(std::istream_iterator<std::string>(page), {},
                                   [](const std::string& word) { return word != "|"; });
  EXPECT_LE(count, 3000) << "move details to docs/internals.md";
}

}  // namespace
}  // namespace piton::repo
