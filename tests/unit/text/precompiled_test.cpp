// The normalizer Precompiled against its plain definition: ICU cuts the whole text into grapheme
// clusters, and each is looked up.
#include <gtest/gtest.h>
#include <unicode/ubrk.h>
#include <unicode/utext.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "text/steps/normalizers.h"
#include "text/unicode/utf8.h"
#include "unit/text/charsmap_bytes.h"

namespace piton {
namespace {

using test::charsmap_bytes;

std::string map_cluster(const Charsmap& map, std::string_view cluster) {
  if (cluster.size() < 6) {
    if (const auto match = map.shortest(cluster); match.length != 0) {
      return std::string(match.replacement);
    }
  }
  std::string out;
  for (std::size_t at = 0; at < cluster.size();) {
    const std::string_view one = cluster.substr(at, decode_utf8(cluster, at).length);
    const auto match = map.shortest(one);
    out += match.length != 0 ? match.replacement : one;
    at += one.size();
  }
  return out;
}

std::string by_definition(const Charsmap& map, const std::string& text) {
  UErrorCode error = U_ZERO_ERROR;
  UBreakIterator* const clusters = ubrk_open(UBRK_CHARACTER, "", nullptr, 0, &error);
  UText* const view =
      utext_openUTF8(nullptr, text.data(), static_cast<std::int64_t>(text.size()), &error);
  ubrk_setUText(clusters, view, &error);
  EXPECT_TRUE(U_SUCCESS(error));
  std::string out;
  std::int32_t begin = ubrk_first(clusters);
  for (std::int32_t end = ubrk_next(clusters); end != UBRK_DONE; end = ubrk_next(clusters)) {
    out += map_cluster(map, std::string_view(text).substr(static_cast<std::size_t>(begin),
                                                          static_cast<std::size_t>(end - begin)));
    begin = end;
  }
  utext_close(view);
  ubrk_close(clusters);
  return out;
}

TEST(Precompiled, GivesWhatTheClustersOfTheWholeTextGive) {
  // Keys of one character, of two that form a cluster, of one that begins clusters, and the empty
  // replacement.
  const Charsmap map(charsmap_bytes({{"\uFF0C", ","},
                                     {"e\u0301", "\u00E9"},
                                     {"\u3000", " "},
                                     {"\u0915", "k"},
                                     {"\n", " "},
                                     {"\r\n", "#"},
                                     {"\uAC00", "ga"},
                                     {"\u1100", "g"},
                                     {"\u200B", ""},
                                     {"x", "y"}}),
                     "test");
  const auto quick = make_precompiled(map);
  // Of every class of the cluster rules (Unicode 15, annex 29).
  const std::u32string characters =
      U"aex "
      U"\r\n\t\uFF0C\u4E2D\u3000\u200B\u0301\u0323\u093C\u094D\u0903\u0915\u0937\u0D4E\u0600\u0E33"
      U"\u200D\u2764\uFE0F\u1100\u1161\u11A8\uAC00\uAC01\u00AD\u0085\u2028\uFEFF"
      U"\U0001F1E6\U0001F600\U0001F468\U0001F3FB\U00020000\U000110BD\U000E0001";
  std::mt19937 random(5);
  for (int trial = 0; trial < 100000; ++trial) {
    // Few of the last ones in some texts, so that stretches without them are long.
    const std::size_t common = trial % 3 == 0 ? characters.size() : 4 + random() % 10;
    std::string text;
    for (std::size_t i = random() % 40; i > 0; --i) {
      const std::size_t of = random() % 8 == 0 ? characters.size() : common;
      append_utf8(characters[random() % of], text);
    }
    std::string got = text;
    quick->apply(got);
    ASSERT_EQ(got, by_definition(map, text)) << "of \"" << text << "\"";
  }
}

TEST(Precompiled, LooksAtEveryCharacterAlone) {
  const Charsmap map(charsmap_bytes({{"\u3000", " "}}), "test");
  const auto quick = make_precompiled(map);
  for (char32_t c = 1; c < 0x32000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "a";
    append_utf8(c, text);
    text += "\u3000";
    std::string got = text;
    quick->apply(got);
    ASSERT_EQ(got, by_definition(map, text)) << static_cast<std::uint32_t>(c);
  }
}

}  // namespace
}  // namespace piton
