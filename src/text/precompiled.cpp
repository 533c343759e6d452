#include <unicode/ubrk.h>
#include <unicode/utext.h>

#include <array>
#include <memory>

#include "base/error.h"
#include "text/normalizers.h"
#include "text/utf8.h"

namespace piton {
namespace {

struct CloseIterator {
  void operator()(UBreakIterator* iterator) const { ubrk_close(iterator); }
};
struct CloseText {
  void operator()(UText* text) const { utext_close(text); }
};

class PrecompiledStep final : public Normalizer {
 public:
  explicit PrecompiledStep(Charsmap map) : map_(std::move(map)) {
    for (int c = 0; c < 128; ++c) {
      const char byte = static_cast<char>(c);
      ascii_changes_[c] = map_.shortest({&byte, 1}).length != 0;
    }
    UErrorCode error = U_ZERO_ERROR;
    clusters_.reset(ubrk_open(UBRK_CHARACTER, "", nullptr, 0, &error));
    PITON_ASSERT(U_SUCCESS(error), "ICU has no rules for grapheme clusters");
  }

  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t stop = plain_end(text, at);
      out.append(text, at, stop - at);
      at = stop;
      if (at == text.size()) break;
      at = clusters_until_plain(text, at, out);
    }
    text = std::move(out);
  }

 private:
  // The end of the run of ASCII characters that the map leaves alone and that are clusters by
  // themselves: the last one before a character above ASCII may be extended by it.
  std::size_t plain_end(const std::string& text, std::size_t at) const {
    const std::size_t begin = at;
    while (at < text.size()) {
      const auto byte = static_cast<unsigned char>(text[at]);
      if (byte >= 0x80) return at > begin ? at - 1 : at;
      if (ascii_changes_[byte] || byte == '\r') return at;
      ++at;
    }
    return at;
  }

  // Maps clusters from `at` on until eight plain ASCII characters follow.
  std::size_t clusters_until_plain(const std::string& text, std::size_t at, std::string& out) const {
    std::size_t end = at + 1;
    std::size_t plain = 0;
    while (end < text.size() && plain < 8) {
      const auto byte = static_cast<unsigned char>(text[end]);
      plain = byte < 0x80 && byte != '\n' && byte != '\r' && !ascii_changes_[byte] ? plain + 1 : 0;
      ++end;
    }
    if (plain == 8) end -= 7;  // one of them may belong to nothing before it; the rest is plain
    UErrorCode error = U_ZERO_ERROR;
    const std::unique_ptr<UBreakIterator, CloseIterator> clusters(
        ubrk_clone(clusters_.get(), &error));
    const std::unique_ptr<UText, CloseText> view(
        utext_openUTF8(nullptr, text.data() + at, static_cast<std::int64_t>(end - at), &error));
    ubrk_setUText(clusters.get(), view.get(), &error);
    PITON_ASSERT(U_SUCCESS(error));
    std::int32_t begin = ubrk_first(clusters.get());
    for (std::int32_t next = ubrk_next(clusters.get()); next != UBRK_DONE;
         begin = next, next = ubrk_next(clusters.get())) {
      map_cluster(std::string_view(text).substr(at + static_cast<std::size_t>(begin),
                                                static_cast<std::size_t>(next - begin)),
                  out);
    }
    return end;
  }

  void map_cluster(std::string_view cluster, std::string& out) const {
    if (cluster.size() < 6) {
      const Charsmap::Match match = map_.shortest(cluster);
      if (match.length != 0) {
        out.append(match.replacement);
        return;
      }
    }
    for (std::size_t at = 0; at < cluster.size();) {
      const Utf8Char c = decode_utf8(cluster, at);
      const std::string_view one = cluster.substr(at, c.length);
      const Charsmap::Match match = map_.shortest(one);
      out.append(match.length != 0 ? match.replacement : one);
      at += c.length;
    }
  }

  Charsmap map_;
  std::array<bool, 128> ascii_changes_{};
  std::unique_ptr<UBreakIterator, CloseIterator> clusters_;
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled(Charsmap map) {
  return std::make_unique<PrecompiledStep>(std::move(map));
}

}  // namespace piton
