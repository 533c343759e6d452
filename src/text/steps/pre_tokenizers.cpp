#include "text/steps/pre_tokenizers.h"

#include <algorithm>

#include "text/unicode/byte_level.h"

namespace piton {
namespace {

using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

// A stretch of a word: a match of the delimiter or the text between matches.
struct Stretch {
  std::size_t begin;
  std::size_t end;
  bool match;
};

// Appends the pieces that `behavior` makes of `stretches`, shifted by `base`.
void append_pieces(const std::vector<Stretch>& stretches, SplitBehavior behavior, std::size_t base,
                   Ranges& out) {
  const auto add = [&](std::size_t begin, std::size_t end) {
    if (end > begin) out.emplace_back(base + begin, base + end);
  };
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Stretch& s : stretches) {
        if (!s.match) add(s.begin, s.end);
      }
      return;
    case SplitBehavior::kIsolated:
      for (const Stretch& s : stretches) add(s.begin, s.end);
      return;
    case SplitBehavior::kContiguous: {
      for (std::size_t i = 0; i < stretches.size();) {
        std::size_t last = i;
        while (last + 1 < stretches.size() && stretches[last + 1].match == stretches[i].match)
          ++last;
        add(stretches[i].begin, stretches[last].end);
        i = last + 1;
      }
      return;
    }
    case SplitBehavior::kMergedWithPrevious: {
      bool open = false;  // the last piece is text that may take one delimiter
      for (const Stretch& s : stretches) {
        if (s.match && open && !out.empty()) {
          out.back().second = base + s.end;
          open = false;
        } else {
          add(s.begin, s.end);
          open = !s.match;
        }
      }
      return;
    }
    case SplitBehavior::kMergedWithNext: {
      bool waiting = false;  // the last piece is a delimiter that takes what follows
      for (const Stretch& s : stretches) {
        if (!s.match && waiting && !out.empty()) {
          out.back().second = base + s.end;
          waiting = false;
        } else {
          add(s.begin, s.end);
          waiting = s.match;
        }
      }
      return;
    }
  }
}

// Matches with the gaps between them; `invert` exchanges the two.
std::vector<Stretch> stretches_of(const Ranges& matches, std::size_t size, bool invert) {
  std::vector<Stretch> stretches;
  std::size_t done = 0;
  for (const auto& [begin, end] : matches) {
    if (begin > done) stretches.push_back({done, begin, invert});
    stretches.push_back({begin, end, !invert});
    done = end;
  }
  if (done < size) stretches.push_back({done, size, invert});
  return stretches;
}

// A step that splits each word: matches(word) returns the delimiters.
template <typename Matches>
class SplitStep final : public PreTokenizer {
 public:
  SplitStep(Matches matches, SplitBehavior behavior, bool invert)
      : matches_(std::move(matches)), behavior_(behavior), invert_(invert) {}
  void apply(Words& words, bool) const override {
    Ranges out;
    out.reserve(words.ranges.size());
    for (std::size_t i = 0; i < words.ranges.size(); ++i) {
      const std::string_view word = words.word(i);
      append_pieces(stretches_of(matches_(word), word.size(), invert_), behavior_,
                    words.ranges[i].first, out);
    }
    words.ranges = std::move(out);
  }

 private:
  Matches matches_;
  SplitBehavior behavior_;
  bool invert_;
};

template <typename Matches>
std::unique_ptr<PreTokenizer> split_step(Matches matches, SplitBehavior behavior,
                                         bool invert = false) {
  return std::make_unique<SplitStep<Matches>>(std::move(matches), behavior, invert);
}

// Each character that `is` accepts is a separate match.
template <typename Is>
Ranges characters_where(std::string_view word, Is is) {
  Ranges matches;
  for (std::size_t at = 0; at < word.size();) {
    const Utf8Char c = decode_utf8(word, at);
    if (is(c.value)) matches.emplace_back(at, at + c.length);
    at += c.length;
  }
  return matches;
}

// A step that rewrites each word: rewrite(word, out, first) appends the new one.
template <typename Rewrite>
class RewriteStep final : public PreTokenizer {
 public:
  explicit RewriteStep(Rewrite rewrite) : rewrite_(std::move(rewrite)) {}
  void apply(Words& words, bool first) const override {
    std::string text;
    text.reserve(words.text.size() + words.text.size() / 8 + 8);
    for (std::size_t i = 0; i < words.ranges.size(); ++i) {
      const std::size_t begin = text.size();
      rewrite_(words.word(i), text, first && i == 0 && words.ranges[i].first == 0);
      words.ranges[i] = {begin, text.size()};
    }
    words.text = std::move(text);
  }

 private:
  Rewrite rewrite_;
};

template <typename Rewrite>
std::unique_ptr<PreTokenizer> rewrite_step(Rewrite rewrite) {
  return std::make_unique<RewriteStep<Rewrite>>(std::move(rewrite));
}

// Splits at white space; faster than SplitStep because it builds no lists.
class WhitespaceSplit final : public PreTokenizer {
 public:
  void apply(Words& words, bool) const override {
    Ranges out;
    for (std::size_t i = 0; i < words.ranges.size(); ++i) {
      const std::string_view word = words.word(i);
      const std::size_t base = words.ranges[i].first;
      std::size_t begin = 0;
      const auto close = [&](std::size_t end) {
        if (end > begin) out.emplace_back(base + begin, base + end);
      };
      for (std::size_t at = 0; at < word.size();) {
        // Skip bytes that cannot begin white space, without decoding them.
        const auto byte = static_cast<unsigned char>(word[at]);
        if (byte > ' ' && (byte < 0xC2 || byte > 0xE3)) {
          ++at;
          continue;
        }
        const Utf8Char c = decode_utf8(word, at);
        if (is_white_space(c.value)) {
          close(at);
          begin = at + c.length;
        }
        at += c.length;
      }
      close(word.size());
    }
    words.ranges = std::move(out);
  }
};

// A new word begins at each `mark`, which is not empty.
class SplitBefore final : public PreTokenizer {
 public:
  explicit SplitBefore(std::string mark) : mark_(std::move(mark)) {}
  void apply(Words& words, bool) const override {
    Ranges out;
    out.reserve(words.ranges.size());
    for (std::size_t i = 0; i < words.ranges.size(); ++i) {
      const std::string_view word = words.word(i);
      const std::size_t base = words.ranges[i].first;
      std::size_t begin = 0;
      for (std::size_t found = word.find(mark_); found != std::string_view::npos;
           found = word.find(mark_, found + mark_.size())) {
        if (found > begin) out.emplace_back(base + begin, base + found);
        begin = found;
      }
      out.emplace_back(base + begin, base + word.size());
    }
    words.ranges = std::move(out);
  }

 private:
  std::string mark_;
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}
  void apply(Words& words, bool first) const override {
    for (const auto& step : steps_) step->apply(words, first);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

class ScanStep final : public PreTokenizer {
 public:
  ScanStep(Scanner scanner, std::shared_ptr<const CharacterTable> table)
      : scanner_(scanner), table_(std::move(table)) {}
  void apply(Words& words, bool) const override {
    Ranges out;
    for (std::size_t i = 0; i < words.ranges.size(); ++i) {
      const char* const begin = words.text.data();
      scan_words(scanner_, *table_, words.word(i), [&](std::string_view word) {
        const auto at = static_cast<std::size_t>(word.data() - begin);
        out.emplace_back(at, at + word.size());
      });
    }
    words.ranges = std::move(out);
  }

 private:
  Scanner scanner_;
  std::shared_ptr<const CharacterTable> table_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) {
  return std::make_unique<Sequence>(std::move(steps));
}

std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert) {
  auto shared = std::make_shared<const Pattern>(std::move(pattern));
  return split_step([shared](std::string_view word) { return shared->matches(word); }, behavior,
                    invert);
}

std::unique_ptr<PreTokenizer> make_split(std::string literal, SplitBehavior behavior, bool invert) {
  return split_step(
      [literal = std::move(literal)](std::string_view word) {
        Ranges matches;
        if (literal.empty()) return matches;
        for (std::size_t at = word.find(literal); at != std::string_view::npos;
             at = word.find(literal, at + literal.size())) {
          matches.emplace_back(at, at + literal.size());
        }
        return matches;
      },
      behavior, invert);
}

std::unique_ptr<PreTokenizer> make_scan(Scanner scanner,
                                        std::shared_ptr<const CharacterTable> table) {
  return std::make_unique<ScanStep>(scanner, std::move(table));
}

std::unique_ptr<PreTokenizer> make_prefix_space() {
  return rewrite_step([](std::string_view word, std::string& out, bool) {
    if (!word.starts_with(' ')) out.push_back(' ');
    out.append(word);
  });
}

std::unique_ptr<PreTokenizer> make_byte_spelling() {
  return rewrite_step([alphabet = ByteAlphabet()](std::string_view word, std::string& out, bool) {
    out += alphabet.spell(word);
  });
}

std::unique_ptr<PreTokenizer> make_whitespace_split() {
  return std::make_unique<WhitespaceSplit>();
}

std::unique_ptr<PreTokenizer> make_whitespace() {
  return split_step(
      [](std::string_view word) {
        // Matches: runs of word characters, and runs of others that are not white space.
        Ranges matches;
        int before = 0;
        for (std::size_t at = 0; at < word.size();) {
          const Utf8Char c = decode_utf8(word, at);
          const int kind = is_word_character(c.value) ? 1 : is_white_space(c.value) ? 0 : 2;
          if (kind != 0 && kind == before) {
            matches.back().second = at + c.length;
          } else if (kind != 0) {
            matches.emplace_back(at, at + c.length);
          }
          before = kind;
          at += c.length;
        }
        return matches;
      },
      SplitBehavior::kRemoved, true);
}

std::unique_ptr<PreTokenizer> make_punctuation(SplitBehavior behavior) {
  return split_step(
      [](std::string_view word) { return characters_where(word, is_bert_punctuation); }, behavior);
}

std::unique_ptr<PreTokenizer> make_digits(bool individual) {
  return split_step([](std::string_view word) { return characters_where(word, is_numeric); },
                    individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

std::unique_ptr<PreTokenizer> make_metaspace(std::string replacement, PrependScheme scheme,
                                             bool split) {
  auto rewrite =
      rewrite_step([replacement, scheme](std::string_view word, std::string& out, bool first) {
        const bool begins = word.starts_with(' ') || word.starts_with(replacement);
        if (!begins &&
            (scheme == PrependScheme::kAlways || (scheme == PrependScheme::kFirst && first))) {
          out += replacement;
        }
        while (!word.empty()) {
          const std::size_t space = std::min(word.find(' '), word.size());
          out.append(word.substr(0, space));
          word.remove_prefix(space);
          if (word.empty()) break;
          out += replacement;
          word.remove_prefix(1);
        }
      });
  if (!split || replacement.empty()) return rewrite;
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(std::move(rewrite));
  steps.push_back(std::make_unique<SplitBefore>(std::move(replacement)));
  return make_sequence(std::move(steps));
}

}  // namespace piton
