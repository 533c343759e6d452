// BERT's normalizer with one lookup per character: the result of all rules for a character is
// remembered.
//
// This is exact where the rules treat each character alone. Only the order of marks after a letter
// (NFD) depends on neighbors; stretches with marks that remain go through the rules themselves.
#include <unicode/uchar.h>

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "text/steps/normalizers.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(std::unique_ptr<Normalizer> rules)
      : rules_(std::move(rules)), results_(kCharacters) {
    for (char32_t c = 1; c < 0x80; ++c) {
      const std::uint32_t result = result_of(c);
      ascii_[c] = static_cast<char>(result == kDropped ? 0 : result);
    }
    keeps_zero_ = result_of(0) != kDropped;
  }

  void apply(std::string& text) const override {
    if (keeps_zero_ && text.find('\0') != std::string::npos) return rules_->apply(text);
    std::string out(text.size() * 2 + kRoom, '\0');
    char* to = out.data();
    const char* from = text.data();
    const char* const end = from + text.size();
    while (from < end) {
      if (static_cast<unsigned char>(*from) < 0x80) {
        *to = ascii_[static_cast<unsigned char>(*from++)];
        to += *to != 0 ? 1 : 0;
        continue;
      }
      const Utf8Char c = decode_utf8(from, end);
      const std::uint32_t result = result_of(c.value);
      if (result == kMixed) {
        const char* const stop = end_of_mixed(from, end);
        std::string stretch(from, stop);
        rules_->apply(stretch);
        // Leave enough room after it for the rest of the text.
        const auto done = static_cast<std::size_t>(to - out.data());
        const std::size_t needed =
            done + stretch.size() + static_cast<std::size_t>(end - stop) * 2 + kRoom;
        if (out.size() < needed) out.resize(needed + needed / 2);
        std::memcpy(out.data() + done, stretch.data(), stretch.size());
        to = out.data() + done + stretch.size();
        from = stop;
        continue;
      }
      from += c.length;
      if (result == kDropped) continue;
      const bool apart = (result & kApart) != 0;
      *to = ' ';
      to += apart ? 1 : 0;
      to = put_utf8(result & ~kApart, to);
      *to = ' ';
      to += apart ? 1 : 0;
    }
    out.resize(static_cast<std::size_t>(to - out.data()));
    text = std::move(out);
  }

 private:
  // Results are remembered for the characters of the first two planes.
  static constexpr std::size_t kCharacters = 0x20000;
  // A result is one character, with kApart if spaces go around it, or another of these values.
  static constexpr std::uint32_t kUnknown = 0;
  static constexpr std::uint32_t kApart = 1U << 24;
  static constexpr std::uint32_t kDropped = 1U << 25;
  // Depends on its neighbors, or is more than one character.
  static constexpr std::uint32_t kMixed = 1U << 26;
  // A character of one byte stays one byte; a longer one becomes at most six.
  static constexpr std::size_t kRoom = 16;

  std::uint32_t result_of(char32_t c) const {
    if (c >= kCharacters) return kMixed;
    const std::uint32_t known = results_[c].load(std::memory_order_relaxed);
    return known != kUnknown ? known : find_result(c);
  }

  std::uint32_t find_result(char32_t c) const {
    std::string text;
    append_utf8(c, text);
    rules_->apply(text);
    const bool apart = text.size() > 2 && text.starts_with(' ') && text.ends_with(' ');
    const std::string_view inner =
        apart ? std::string_view(text).substr(1, text.size() - 2) : std::string_view(text);
    std::uint32_t result = kMixed;
    if (inner.empty()) {
      result = kDropped;
    } else if (const Utf8Char only = decode_utf8(inner, 0);
               only.length == inner.size() && only.value != 0 &&
               u_getCombiningClass(static_cast<UChar32>(only.value)) == 0) {
      result = static_cast<std::uint32_t>(only.value) | (apart ? kApart : 0);
    }
    results_[c].store(result, std::memory_order_relaxed);  // every thread computes the same value
    return result;
  }

  // The next character that is neither mixed nor dropped, or `end`.
  const char* end_of_mixed(const char* from, const char* end) const {
    while (from < end) {
      const Utf8Char c = decode_utf8(from, end);
      const std::uint32_t result = result_of(c.value);
      if (result != kMixed && result != kDropped) break;
      from += c.length;
    }
    return from;
  }

  std::unique_ptr<Normalizer> rules_;
  mutable std::vector<std::atomic<std::uint32_t>> results_;
  std::array<char, 128> ascii_{};  // 0 is dropped
  bool keeps_zero_ = false;
};

}  // namespace

std::unique_ptr<Normalizer> make_bert_normalizer(BertRules rules) {
  return std::make_unique<BertNormalizer>(make_bert_steps(rules));
}

}  // namespace piton
