// The words of Google's BERT: BasicTokenizer of tokenization.py, which Megatron has too. Wanted:
// the same class of Transformers 5.24 (tokenization_bert_legacy.py).
#include "text/steps/megatron_bert.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace piton {
namespace {

using Texts = std::vector<std::string>;

Texts words_of(std::string_view text, bool lowercase) {
  Words words{.text = std::string(text), .ranges = {{0, text.size()}}};
  make_basic_tokenizer(lowercase)->apply(words, true);
  Texts texts;
  for (std::size_t i = 0; i < words.ranges.size(); ++i) texts.emplace_back(words.word(i));
  return texts;
}

TEST(BasicTokenizer, CutsAtSpacesAndPunctuation) {
  EXPECT_EQ(words_of("A-b, \u00C9t\u00E9 !", true), (Texts{"a", "-", "b", ",", "ete", "!"}));
  EXPECT_EQ(words_of("A-b, \u00C9t\u00E9 !", false),
            (Texts{"A", "-", "b", ",", "\u00C9t\u00E9", "!"}));
  EXPECT_EQ(words_of(" a\tb\nc\rd\u00A0e\u3000f ", true), (Texts{"a", "b", "c", "d", "e", "f"}));
  EXPECT_EQ(words_of("a\u4E2D\u6587b", true), (Texts{"a", "\u4E2D", "\u6587", "b"}));
}

// No spaces come in their place.
TEST(BasicTokenizer, LeavesOutControlsAndReplacementCharacters) {
  using namespace std::string_view_literals;
  EXPECT_EQ(words_of("\0a\0b"sv, true), Texts{"ab"});
  EXPECT_EQ(words_of("a\x01"
                     "b\x7F"
                     "c\u0085d\u200Be\uFEFFf",
                     true),
            Texts{"abcdef"});
  EXPECT_EQ(words_of("a\uFFFDb\uFFFD c\uFFFD", true), (Texts{"ab", "c"}));
  EXPECT_EQ(words_of("\uFFFD\0\x02"sv, true), Texts{});
}

// Earlier steps cut a text into words: the next byte of the text is not part of a word.
TEST(BasicTokenizer, KeepsToTheWordsThatItIsGiven) {
  Words words{.text = "abcd-e", .ranges = {{0, 2}, {2, 4}, {5, 6}}};
  make_basic_tokenizer(true)->apply(words, true);
  Texts texts;
  for (std::size_t i = 0; i < words.ranges.size(); ++i) texts.emplace_back(words.word(i));
  EXPECT_EQ(texts, (Texts{"ab", "cd", "e"}));
}

}  // namespace
}  // namespace piton
