// Comments, messages and pages use the usual words: phrases that were replaced do not return. The
// finder is first tested on made-up text.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <functional>
#include <utility>

#include "repo/pages.h"
#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Faults = std::vector<std::string>;

// In lower case, with one blank between words.
constexpr auto kPhrases = std::to_array<std::string_view>({
    "go on",        "goes on",
    "going on",     "gone on",
    "went on",      "what stands",
    "stand for",    "stands for",
    "stand on",     "stands on",
    "stand in",     "stands in",
    "stand behind", "stands behind",
    "stand beside", "stands beside",
    "behind what",  "lie",
    "lies",         "anew",
    "beside",       "besides",
    "is told",      "are told",
    "comes to",     "came to",
    "whose counts", "is said",
    "are said",     "says so",
    "said by",      "is wanted",
    "are wanted",   "wants a",
    "wants an",     "wants the",
    "wants more",   "that it is none",
    "mend",         "mends",
});

// Only where a clause ends: "of its own size" is usual.
constexpr auto kAtEndOfClause = std::to_array<std::string_view>({"of its own", "of their own"});

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

// `text` in lower case, each run of white space as one blank, and the line of each character.
struct Words {
  std::string text;
  std::vector<std::size_t> lines;
};

Words words_of(std::string_view text) {
  Words words;
  std::size_t line = 0;
  for (const char c : text) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!space || !words.text.ends_with(' ')) {
      words.text += space ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      words.lines.push_back(line);
    }
    if (c == '\n') ++line;
  }
  return words;
}

// Whether a clause ends before `rest`.
bool ends_clause(std::string_view rest) {
  const std::size_t next = rest.find_first_not_of(' ');
  return next == rest.npos || std::string_view(".,;:)!?").find(rest[next]) != rest.npos;
}

void find_phrase(const Words& words, std::string_view phrase, bool only_at_end,
                 const std::function<void(std::size_t line)>& found) {
  const std::string& text = words.text;
  for (std::size_t at = text.find(phrase); at != text.npos; at = text.find(phrase, at + 1)) {
    const std::size_t end = at + phrase.size();
    if (at > 0 && is_word(text[at - 1])) continue;
    if (end < text.size() && is_word(text[end])) continue;
    if (only_at_end && !ends_clause(std::string_view(text).substr(end))) continue;
    found(words.lines[at]);
  }
}

// Phrases of the lists in `texts`, also over the end of a line; in the order of their lines.
Faults phrase_faults(const SourceTree& texts) {
  Faults faults;
  for (const auto& [path, text] : texts) {
    const Words words = words_of(text);
    std::vector<std::pair<std::size_t, std::string_view>> found;
    for (const std::string_view phrase : kPhrases)
      find_phrase(words, phrase, false,
                  [&](std::size_t line) { found.emplace_back(line, phrase); });
    for (const std::string_view phrase : kAtEndOfClause)
      find_phrase(words, phrase, true, [&](std::size_t line) { found.emplace_back(line, phrase); });
    std::sort(found.begin(), found.end());
    for (const auto& [line, phrase] : found)
      faults.push_back(at_line(path, line, "\"" + std::string(phrase) + "\": use the usual words"));
  }
  return faults;
}

// `part` of each text. `folder`: put before each path, with its slash.
SourceTree parts_of(const std::string& folder, const SourceTree& sources,
                    std::string (*part)(std::string_view)) {
  SourceTree parts;
  for (const auto& [path, text] : sources) parts[folder + path] = part(text);
  return parts;
}

SourceTree comments_of(const std::string& folder, const SourceTree& sources) {
  return parts_of(folder, sources, comments_only);
}

TEST(CommentsOnly, LeavesOutCodeAndLiterals) {
  EXPECT_EQ(comments_only("a // b\nc /* d\ne */ f"), ";    b\n;    d\ne    ;");
  EXPECT_EQ(comments_only("x(\"// a\"); // \"b\""), ";;;;; ;;;;    \"b\"");
  EXPECT_EQ(comments_only("R\"(/* a)\" /**/"), ";;;;; ;;;     ");
}

TEST(LiteralsOnly, LeavesOutCodeAndComments) {
  EXPECT_EQ(literals_only("f(\"a\\nb\" // \"c\"\n\"d\", 'e')"), ";; a  b  ;; ;;;\n d ;  e ;");
  EXPECT_EQ(literals_only("x = R\"(a \"b)\";"), "; ; R\"(a \"b)\";");
}

TEST(Phrases, AreFoundInWholeWordsAndOverTheEndOfALine) {
  EXPECT_THAT(
      phrase_faults({{"a.md", "It lies.\n\nA run goes\non. Going one by one, believe it.\n"},
                     {"b.md", "Anew and --anew, what STANDS\n"}}),
      ElementsAre(
          "a.md:1: \"lies\": use the usual words", "a.md:3: \"goes on\": use the usual words",
          "b.md:1: \"anew\": use the usual words", "b.md:1: \"what stands\": use the usual words"));
}

TEST(Phrases, OfOwningAreFoundAtTheEndOfAClause) {
  EXPECT_THAT(
      phrase_faults({{"a.md", "a thread of its own, keys of its own scores\nof their own"}}),
      ElementsAre("a.md:1: \"of its own\": use the usual words",
                  "a.md:2: \"of their own\": use the usual words"));
}

TEST(Phrases, OfTwoCommentsAreNotOne) {
  EXPECT_THAT(
      phrase_faults(comments_of("src/", {{"a.h", "int a;  // it goes\nint b;  // on\n"},
                                         {"b.h", "// it goes\n// on\nf(\"lies\");  // own\n"}})),
      ElementsAre("src/b.h:1: \"goes on\": use the usual words"));
}

TEST(Phrases, AreFoundOverAdjacentLiterals) {
  EXPECT_THAT(phrase_faults(parts_of("src/",
                                     {{"a.cpp",
                                       "f(\"a\\ngoes \"\n  \"on\");  // goes on\n"
                                       "f(\"goes\", \"on\", lies);\n"}},
                                     literals_only)),
              ElementsAre("src/a.cpp:1: \"goes on\": use the usual words"));
}

TEST(Phrases, AreNotInCommentsOfThisRepository) {
  const std::filesystem::path root = PITON_SOURCE_DIR;
  EXPECT_THAT(phrase_faults(comments_of("src/", read_tree(root / "src"))), IsEmpty());
  EXPECT_THAT(phrase_faults(comments_of("tests/", read_tree(root / "tests"))), IsEmpty());
}

// Prompts of tasks are those of other programs.
TEST(Phrases, AreNotInMessagesOfThisRepository) {
  SourceTree sources = read_tree(std::filesystem::path(PITON_SOURCE_DIR) / "src");
  std::erase_if(sources, [](const auto& file) { return file.first.starts_with("tasks/"); });
  EXPECT_THAT(phrase_faults(parts_of("src/", sources, literals_only)), IsEmpty());
}

TEST(Phrases, AreNotInPagesOfThisRepository) {
  SourceTree texts;
  for (const auto& [path, page] : read_pages(PITON_SOURCE_DIR)) {
    if (path == "README.md" || path == "CONTRIBUTING.md" || path.starts_with("docs/"))
      texts[path] = without_code(page);
  }
  EXPECT_THAT(phrase_faults(texts), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
