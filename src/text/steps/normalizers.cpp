#include "text/steps/normalizers.h"

#include <unicode/uchar.h>

#include "text/unicode/byte_level.h"
#include "text/unicode/characters.h"

namespace piton {
namespace {

// A step that maps characters one by one: `f(c, out)` appends the replacement of `c`.
template <typename F>
class CharacterStep final : public Normalizer {
 public:
  explicit CharacterStep(F f) : f_(std::move(f)) {}
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      f_(c.value, out);
      at += c.length;
    }
    text = std::move(out);
  }

 private:
  F f_;
};

template <typename F>
std::unique_ptr<Normalizer> character_step(F f) {
  return std::make_unique<CharacterStep<F>>(std::move(f));
}

template <typename F>
class TextStep final : public Normalizer {
 public:
  explicit TextStep(F f) : f_(std::move(f)) {}
  void apply(std::string& text) const override { f_(text); }

 private:
  F f_;
};

template <typename F>
std::unique_ptr<Normalizer> text_step(F f) {
  return std::make_unique<TextStep<F>>(std::move(f));
}

// Controls that nmt text normalization removes.
bool is_nmt_removed(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
         c == 0x8F || c == 0x9F;
}

// What nmt text normalization replaces by a space.
bool is_nmt_space(char32_t c) {
  switch (c) {
    case 0x09:
    case 0x0A:
    case 0x0C:
    case 0x0D:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x2581:
    case 0xFEFF:
    case 0xFFFD:
      return true;
    default:
      return c >= 0x200B && c <= 0x200F;
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t found = text.find(from);
  if (found == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  std::size_t done = 0;
  while (found != std::string::npos) {
    out.append(text, done, found - done);
    out.append(to);
    done = found + from.size();
    found = text.find(from, done);
  }
  out.append(text, done);
  text = std::move(out);
}

}  // namespace

std::unique_ptr<Normalizer> make_lowercase() { return character_step(append_lower_case); }

std::unique_ptr<Normalizer> make_strip(bool left, bool right) {
  return text_step([left, right](std::string& text) {
    std::size_t begin = 0;
    std::size_t end = text.size();
    while (left && begin < end) {
      const Utf8Char c = decode_utf8(text, begin);
      if (!is_white_space(c.value)) break;
      begin += c.length;
    }
    while (right && end > begin) {
      const Utf8Char c = decode_utf8_back(std::string_view(text).substr(begin, end - begin));
      if (!is_white_space(c.value)) break;
      end -= c.length;
    }
    text.erase(end);
    text.erase(0, begin);
  });
}

std::unique_ptr<Normalizer> make_strip_accents() {
  return character_step([](char32_t c, std::string& out) {
    if (c < 0x300 || (categories_in_unicode(c, 9) & U_GC_M_MASK) == 0) append_utf8(c, out);
  });
}

std::unique_ptr<Normalizer> make_prepend(std::string prefix) {
  return text_step([prefix = std::move(prefix)](std::string& text) {
    if (!text.empty()) text.insert(0, prefix);
  });
}

std::unique_ptr<Normalizer> make_replace(std::string from, std::string to) {
  return text_step([from = std::move(from), to = std::move(to)](std::string& text) {
    if (from.empty()) return;
    if (from != " ") return replace_all(text, from, to);
    // Runs on every text of the LLaMA family: a space is one byte, so no search is needed.
    std::string out;
    out.resize(text.size() * std::max<std::size_t>(to.size(), 1));
    char* end = out.data();
    for (const char c : text) {
      if (c != ' ') {
        *end++ = c;
      } else {
        for (const char r : to) *end++ = r;
      }
    }
    out.resize(static_cast<std::size_t>(end - out.data()));
    text = std::move(out);
  });
}

std::unique_ptr<Normalizer> make_replace(Pattern from, std::string to) {
  auto shared = std::make_shared<const Pattern>(std::move(from));
  return text_step([from = std::move(shared), to = std::move(to)](std::string& text) {
    const auto matches = from->matches(text);
    if (matches.empty()) return;
    std::string out;
    std::size_t done = 0;
    for (const auto& [begin, end] : matches) {
      out.append(text, done, begin - done);
      out.append(to);
      done = end;
    }
    out.append(text, done);
    text = std::move(out);
  });
}

std::unique_ptr<Normalizer> make_nmt() {
  return character_step([](char32_t c, std::string& out) {
    if (!is_nmt_removed(c)) append_utf8(is_nmt_space(c) ? U' ' : c, out);
  });
}

std::unique_ptr<Normalizer> make_byte_level_spelling() {
  return text_step([alphabet = ByteAlphabet()](std::string& text) { text = alphabet.spell(text); });
}

std::unique_ptr<Normalizer> make_bert_steps(BertRules rules) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  if (rules.clean_text) {
    steps.push_back(character_step([](char32_t c, std::string& out) {
      if (c == 0 || c == 0xFFFD || is_bert_control(c)) return;
      append_utf8(is_white_space(c) ? U' ' : c, out);
    }));
  }
  if (rules.handle_chinese_chars) {
    steps.push_back(character_step([](char32_t c, std::string& out) {
      const bool apart = is_bert_ideograph(c);
      if (apart) out.push_back(' ');
      append_utf8(c, out);
      if (apart) out.push_back(' ');
    }));
  }
  if (rules.strip_accents) {
    steps.push_back(make_normal_form(NormalForm::kNfd));
    steps.push_back(character_step([](char32_t c, std::string& out) {
      if (c < 0x300 || (categories_in_unicode(c, 8) & U_GC_MN_MASK) == 0) append_utf8(c, out);
    }));
  }
  if (rules.lowercase) steps.push_back(make_lowercase());
  return std::make_unique<NormalizerSequence>(std::move(steps));
}

}  // namespace piton
