// The words of Punkt (Kiss & Strunk 2006, "Unsupervised Multilingual Sentence Boundary Detection",
// Computational Linguistics 32), cut and classified as in NLTK 3.10. Shared by the splitter and the
// trainer. Texts are code points here; types are lower-case UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piton::punkt {

bool is_space(char32_t c);         // Python's \s
bool is_sentence_end(char32_t c);  // . ? !
bool is_non_word(char32_t c);      // cannot be inside a word
bool is_closing(char32_t c);       // quotes and brackets that belong to the sentence before them

struct Token {
  std::u32string_view text;
  std::string type;  // lower case; numbers are ##number##
  bool period_final = false;
  bool paragraph_start = false;
  bool line_start = false;
  bool sentence_break = false;
  bool abbreviation = false;
  bool ellipsis = false;

  std::string_view type_no_period() const;
  std::string_view type_no_sentence_period() const {
    return sentence_break ? type_no_period() : std::string_view(type);
  }
  bool first_upper() const;
  bool first_lower() const;
  bool is_initial() const;  // one letter and a period
  bool is_alpha() const;
  bool is_number() const { return std::string_view(type).starts_with("##number##"); }
  bool is_non_punctuation() const;
};

// Appends the words of `text`, line by line.
void tokenize(std::u32string_view text, std::vector<Token>& tokens);

std::string lower_utf8(std::u32string_view text);
std::string to_utf8(std::u32string_view text);

// Decodes valid UTF-8 into code points. `offsets` (may be null) gets the byte where each begins,
// and the size.
void decode_utf8(std::string_view text, std::u32string& points,
                 std::vector<std::uint32_t>* offsets);

// True if a type holds a letter or another word character that is not a digit.
bool has_word_character(std::string_view type);
std::size_t length_in_points(std::string_view utf8);

}  // namespace piton::punkt
