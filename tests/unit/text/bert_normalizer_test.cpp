#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/steps/normalizers.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

std::vector<BertRules> all_rules() {
  std::vector<BertRules> all;
  for (int bits = 0; bits < 16; ++bits) {
    all.push_back({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0});
  }
  return all;
}

void expect_equal(const Normalizer& quick, const Normalizer& steps, const std::string& text) {
  std::string got = text;
  quick.apply(got);
  std::string wanted = text;
  steps.apply(wanted);
  ASSERT_EQ(got, wanted) << "of \"" << text << "\"";
}

TEST(BertNormalizer, EveryCharacterBecomesWhatTheRulesMakeOfIt) {
  const auto quick = make_bert_normalizer({});
  const auto steps = make_bert_steps({});
  for (char32_t c = 0; c < 0x32000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "aB";
    append_utf8(c, text);
    text += "C";
    ASSERT_NO_FATAL_FAILURE(expect_equal(*quick, *steps, text));
  }
}

TEST(BertNormalizer, NeighborsBecomeWhatTheRulesMakeOfThem) {
  // Marks that NFD puts in order, those that stay among them (Mc of class 224, marks younger than
  // Unicode 8.0), controls that go from between them, syllables, ideographs of two planes.
  const std::u32string characters =
      U"aZ "
      U"\t\n\r\x01\x7F\u0000-"
      U"\u00C9\u00DF\u0130\u0301\u0323\u0344\u1E69\u302E\u302F\u1DFA\u08D4\u08D5\u3099\u304B"
      U"\uAC00\uAC01\u1100\u1161\u4E2D\uF900\u3400\u200B\u00AD\uFFFD\uE000\u2028\u3000\u03A3\u0399"
      U"\u0345"
      U"\U0001D165\U0001D15E\U0001F600\U00020000\U0002F800\U0001E94A\U000E0001";
  std::mt19937 random(3);
  for (const BertRules& rules : all_rules()) {
    const auto quick = make_bert_normalizer(rules);
    const auto steps = make_bert_steps(rules);
    for (int trial = 0; trial < 2000; ++trial) {
      std::string text;
      for (std::size_t i = random() % 12; i > 0; --i)
        append_utf8(characters[random() % characters.size()], text);
      ASSERT_NO_FATAL_FAILURE(expect_equal(*quick, *steps, text));
    }
  }
}

}  // namespace
}  // namespace piton
