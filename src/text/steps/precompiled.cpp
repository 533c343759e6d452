#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/steps/normalizers.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

struct CloseIterator {
  void operator()(UBreakIterator* iterator) const { ubrk_close(iterator); }
};
struct CloseText {
  void operator()(UText* text) const { utext_close(text); }
};

// Exact for every text. Fast because nearly all characters are clusters by themselves: whether the
// map changes such a character is remembered, and ICU cuts only the stretches around the others.
class PrecompiledStep final : public Normalizer {
 public:
  explicit PrecompiledStep(Charsmap map) : map_(std::move(map)), kinds_(kCharacters) {
    UErrorCode error = U_ZERO_ERROR;
    clusters_.reset(ubrk_open(UBRK_CHARACTER, "", nullptr, 0, &error));
    PITON_ASSERT(U_SUCCESS(error), "ICU has no rules for grapheme clusters");
  }

  void apply(std::string& text) const override {
    std::string out;
    std::size_t done = 0;      // `out` has the text before it
    std::size_t previous = 0;  // the character before `at`, if not in `out` yet
    ClusterCutter cutter(*clusters_);
    for (std::size_t at = 0; at < text.size();) {
      const Seen seen = look(text, at);
      if (seen.kind == kSame) {
        previous = at;
        at += seen.length;
        continue;
      }
      const std::size_t next = at + seen.length;
      if (seen.kind == kMapped && (next == text.size() || look(text, next).kind != kJoining)) {
        out.append(text, done, at - done);
        map_cluster(std::string_view(text).substr(at, seen.length), out);
        at = next;
      } else {
        // A joining character may join the one before it.
        const std::size_t begin = seen.kind == kJoining && at > done ? previous : at;
        out.append(text, done, begin - done);
        at = end_of_joining(text, next);
        cutter.cut(std::string_view(text).substr(begin, at - begin),
                   [&](std::string_view cluster) { map_cluster(cluster, out); });
      }
      done = at;
    }
    if (done == 0) return;
    out.append(text, done);
    text = std::move(out);
  }

 private:
  // Between two characters that are not kJoining there is always a cluster boundary.
  enum Kind : std::uint8_t { kUnknown, kSame, kMapped, kJoining };
  struct Seen {
    Kind kind;
    std::size_t length;
  };

  // Cuts with ICU. Clones the iterator on first use.
  class ClusterCutter {
   public:
    explicit ClusterCutter(const UBreakIterator& rules) : rules_(rules) {}
    template <typename Take>
    void cut(std::string_view text, Take take) {
      UErrorCode error = U_ZERO_ERROR;
      if (clusters_ == nullptr) clusters_.reset(ubrk_clone(&rules_, &error));
      const std::unique_ptr<UText, CloseText> view(
          utext_openUTF8(nullptr, text.data(), static_cast<std::int64_t>(text.size()), &error));
      ubrk_setUText(clusters_.get(), view.get(), &error);
      PITON_ASSERT(U_SUCCESS(error));
      std::int32_t begin = ubrk_first(clusters_.get());
      for (std::int32_t next = ubrk_next(clusters_.get()); next != UBRK_DONE;
           begin = next, next = ubrk_next(clusters_.get())) {
        take(text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(next - begin)));
      }
    }

   private:
    const UBreakIterator& rules_;
    std::unique_ptr<UBreakIterator, CloseIterator> clusters_;
  };

  // Kinds are remembered for the characters of the first two planes.
  static constexpr std::size_t kCharacters = 0x20000;
  // After this many characters that do not join, the stretch for ICU ends.
  static constexpr int kApartAtOnce = 8;

  Seen look(const std::string& text, std::size_t at) const {
    const Utf8Char c = decode_utf8(text, at);
    if (c.value >= kCharacters) return {kJoining, c.length};
    const std::uint8_t known = kinds_[c.value].load(std::memory_order_relaxed);
    if (known != kUnknown) return {static_cast<Kind>(known), c.length};
    return {find_kind(c.value, std::string_view(text).substr(at, c.length)), c.length};
  }

  Kind find_kind(char32_t c, std::string_view spelled) const {
    Kind kind = kJoining;
    switch (u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK)) {
      case U_GCB_OTHER:
      case U_GCB_CONTROL:
      case U_GCB_LF:
      case U_GCB_LV:
      case U_GCB_LVT:
        kind = map_.shortest(spelled).length != 0 ? kMapped : kSame;
        break;
      default:
        break;
    }
    kinds_[c].store(kind, std::memory_order_relaxed);  // every thread computes the same value
    return kind;
  }

  // `at` is after a character that joins or is followed by one that does. Returns a cluster
  // boundary after everything that joins. The first character that does not join may still be
  // joined to the one before it; the second begins a cluster.
  std::size_t end_of_joining(const std::string& text, std::size_t at) const {
    int apart = 0;
    std::size_t end = at;
    while (at < text.size()) {
      const Seen seen = look(text, at);
      at += seen.length;
      apart = seen.kind == kJoining ? 0 : apart + 1;
      if (apart <= 1) end = at;
      if (apart == kApartAtOnce) return end;
    }
    return at;
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
  mutable std::vector<std::atomic<std::uint8_t>> kinds_;
  std::unique_ptr<UBreakIterator, CloseIterator> clusters_;
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled(Charsmap map) {
  return std::make_unique<PrecompiledStep>(std::move(map));
}

}  // namespace piton
