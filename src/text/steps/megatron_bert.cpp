#include "text/steps/megatron_bert.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "base/error.h"
#include "text/unicode/characters.h"

namespace piton {
namespace {

// Unicode 14.0, as in Python 3.11.
std::uint32_t category_mask(char32_t c) { return categories_in_unicode(c, 14); }

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return (category_mask(c) & (U_GC_CC_MASK | U_GC_CF_MASK)) != 0;
}

// str.split() splits at str.isspace(): white space and the four separators 0x1C .. 0x1F.
bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_bert_space(char32_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || (category_mask(c) & U_GC_ZS_MASK) != 0;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return is_bert_punctuation(c);
  return (category_mask(c) & U_GC_P_MASK) != 0;
}

// str.lower(): a capital sigma at the end of a word becomes a final sigma.
void append_python_lower(std::string_view word, std::string& out) {
  const auto cased = [](char32_t c) {
    return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED);
  };
  const auto ignorable = [](char32_t c) {
    return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASE_IGNORABLE);
  };
  bool cased_before = false;
  for (std::size_t at = 0; at < word.size();) {
    const Utf8Char c = decode_utf8(word, at);
    at += c.length;
    if (c.value == 0x3A3) {
      bool cased_after = false;
      for (std::size_t ahead = at; ahead < word.size();) {
        const Utf8Char next = decode_utf8(word, ahead);
        ahead += next.length;
        if (ignorable(next.value)) continue;
        cased_after = cased(next.value);
        break;
      }
      append_utf8(cased_before && !cased_after ? 0x3C2 : 0x3C3, out);
    } else {
      append_lower_case(c.value, out);
    }
    if (!ignorable(c.value)) cased_before = cased(c.value);
  }
}

class BasicTokenizer final : public PreTokenizer {
 public:
  explicit BasicTokenizer(bool lowercase) : lowercase_(lowercase) {
    UErrorCode error = U_ZERO_ERROR;
    nfd_ = icu::Normalizer2::getNFDInstance(error);
    PITON_ASSERT(U_SUCCESS(error), "ICU has no normal forms");
  }

  void apply(Words& words, bool) const override {
    Words out;
    std::string clean;
    for (std::size_t i = 0; i < words.ranges.size(); ++i) {
      clean.clear();
      append_clean(words.word(i), clean);
      std::size_t begin = 0;
      for (std::size_t at = 0; at <= clean.size();) {
        const Utf8Char c = at < clean.size() ? decode_utf8(clean, at) : Utf8Char{' ', 1};
        if (is_python_space(c.value)) {
          add_word(std::string_view(clean).substr(begin, at - begin), out);
          begin = at + c.length;
        }
        at += c.length;
      }
    }
    words = std::move(out);
  }

 private:
  static void append_clean(std::string_view text, std::string& out) {
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      at += c.length;
      if (c.value == 0xFFFD || is_control(c.value)) continue;
      if (is_bert_space(c.value)) {
        out.push_back(' ');
      } else if (is_bert_ideograph(c.value)) {
        out.push_back(' ');
        append_utf8(c.value, out);
        out.push_back(' ');
      } else {
        append_utf8(c.value, out);
      }
    }
  }

  void add_word(std::string_view word, Words& out) const {
    if (word.empty()) return;
    std::string lowered;
    if (lowercase_) {
      std::string lower;
      append_python_lower(word, lower);
      std::string decomposed;
      UErrorCode error = U_ZERO_ERROR;
      icu::StringByteSink<std::string> sink(&decomposed);
      nfd_->normalizeUTF8(0, {lower.data(), static_cast<std::int32_t>(lower.size())}, sink, nullptr,
                          error);
      PITON_ASSERT(U_SUCCESS(error));
      for (std::size_t at = 0; at < decomposed.size();) {
        const Utf8Char c = decode_utf8(decomposed, at);
        at += c.length;
        if ((category_mask(c.value) & U_GC_MN_MASK) == 0) append_utf8(c.value, lowered);
      }
      word = lowered;
    }
    // Each punctuation character is a word, and so is each text between them.
    std::size_t begin = out.text.size();
    const auto close = [&] {
      if (out.text.size() > begin) out.ranges.emplace_back(begin, out.text.size());
      begin = out.text.size();
    };
    for (std::size_t at = 0; at < word.size();) {
      const Utf8Char c = decode_utf8(word, at);
      const bool alone = is_punctuation(c.value) || is_python_space(c.value);
      if (alone) close();
      if (!is_python_space(c.value)) out.text.append(word.substr(at, c.length));
      if (alone) close();
      at += c.length;
    }
    close();
  }

  bool lowercase_;
  const icu::Normalizer2* nfd_ = nullptr;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_basic_tokenizer(bool lowercase) {
  return std::make_unique<BasicTokenizer>(lowercase);
}

}  // namespace piton
