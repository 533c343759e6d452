#include "data/sentences/punkt.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/hash.h"

namespace piton {
namespace {

constexpr std::size_t kNone = std::u32string_view::npos;
constexpr std::size_t kPieceCharacters = 1000000;  // Megatron's

enum class Starts { kYes, kNo, kUnknown };

// Whether the shape of `token` tells that it begins a sentence.
Starts orthographic(const punkt::Token& token, const PunktParameters& parameters) {
  if (token.text.size() == 1 && std::u32string_view(U";:,.!?").find(token.text[0]) != kNone)
    return Starts::kNo;
  const int cases = parameters.cases_of(token.type_no_sentence_period());
  if (token.first_upper() && (cases & PunktParameters::kLower) != 0 &&
      (cases & PunktParameters::kMiddleUpper) == 0) {
    return Starts::kYes;
  }
  if (token.first_lower() &&
      ((cases & PunktParameters::kUpper) != 0 || (cases & PunktParameters::kBeginLower) == 0)) {
    return Starts::kNo;
  }
  return Starts::kUnknown;
}

template <typename Use>
void for_each_line(const std::filesystem::path& file, const Use& use) {
  const std::string text = read_text_file(file);
  std::string_view rest = text;
  for (int line = 1; !rest.empty(); ++line) {
    const auto end = rest.find('\n');
    use(rest.substr(0, end), line);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace

int PunktParameters::cases_of(std::string_view type) const {
  const auto at = cases.find(std::string(type));
  return at == cases.end() ? 0 : at->second;
}

PunktParameters PunktParameters::read(const std::filesystem::path& folder) {
  PunktParameters parameters;
  const auto read_words = [&](const char* name, std::unordered_set<std::string>& words) {
    for_each_line(folder / name, [&](std::string_view line, int) {
      if (!line.empty()) words.emplace(line);
    });
  };
  read_words("abbrev_types.txt", parameters.abbreviations);
  read_words("sent_starters.txt", parameters.sentence_starters);
  const auto wrong = [](const std::filesystem::path& file, int line, std::string_view got,
                        std::string_view wanted) {
    return Error(Fault::kData, "{}: line {}: got \"{}\", wanted {}", file.string(), line, got,
                 wanted);
  };
  const auto collocations = folder / "collocations.tab";
  for_each_line(collocations, [&](std::string_view line, int number) {
    if (std::count(line.begin(), line.end(), '\t') != 1)
      throw wrong(collocations, number, line, "two words and a tab");
    parameters.collocations.emplace(line);
  });
  const auto cases = folder / "ortho_context.tab";
  for_each_line(cases, [&](std::string_view line, int number) {
    const auto tab = line.find('\t');
    int value = 0;
    const char* end = line.data() + line.size();
    if (tab == std::string_view::npos ||
        std::from_chars(line.data() + tab + 1, end, value).ptr != end || line.size() == tab + 1) {
      throw wrong(cases, number, line, "a word, a tab and a number");
    }
    parameters.cases[std::string(line.substr(0, tab))] = value;
  });
  return parameters;
}

void PunktParameters::write(const std::filesystem::path& folder) const {
  const auto lines = [](const std::unordered_set<std::string>& words) {
    std::string text;
    for (const std::string& word : std::set<std::string>(words.begin(), words.end())) {
      text += (text.empty() ? "" : "\n") + word;
    }
    return text;
  };
  write_text_file(folder / "abbrev_types.txt", lines(abbreviations));
  write_text_file(folder / "collocations.tab", lines(collocations));
  write_text_file(folder / "sent_starters.txt", lines(sentence_starters));
  std::string text;
  for (const auto& [word, value] : std::map<std::string, int>(cases.begin(), cases.end())) {
    text += fmt::format("{}{}\t{}", text.empty() ? "" : "\n", word, value);
  }
  write_text_file(folder / "ortho_context.tab", text);
}

std::string PunktParameters::content_hash() const {
  StreamHash hash;
  const auto add = [&](std::string_view text) {
    hash.add(std::as_bytes(std::span(text)));
    hash.add(std::as_bytes(std::span(std::string_view("\n"))));
  };
  for (const auto* words : {&abbreviations, &collocations, &sentence_starters}) {
    for (const std::string& word : std::set<std::string>(words->begin(), words->end())) add(word);
    add("--");
  }
  for (const auto& [word, value] : std::map<std::string, int>(cases.begin(), cases.end())) {
    add(fmt::format("{}\t{}", word, value));
  }
  return hash.hex();
}

void punkt::annotate_by_type(std::vector<Token>& tokens, const PunktParameters& parameters) {
  for (Token& token : tokens) {
    const auto text = token.text;
    if (text.size() == 1 && is_sentence_end(text[0])) {
      token.sentence_break = true;
    } else if (text.size() >= 2 &&
               std::all_of(text.begin(), text.end(), [](char32_t c) { return c == '.'; })) {
      token.ellipsis = true;
    } else if (token.period_final && !text.ends_with(U"..")) {
      const std::string word = lower_utf8(text.substr(0, text.size() - 1));
      if (parameters.abbreviations.contains(word) ||
          parameters.abbreviations.contains(word.substr(word.rfind('-') + 1))) {
        token.abbreviation = true;
      } else {
        token.sentence_break = true;
      }
    }
  }
}

std::vector<PunktSplitter::Candidate> PunktSplitter::candidates(std::u32string_view text) const {
  std::vector<Candidate> found;
  const auto skip = [&](std::size_t at, bool space) {
    while (at < text.size() && punkt::is_space(text[at]) == space) ++at;
    return at;
  };
  if (!keep_newlines_) {
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
      if (!punkt::is_sentence_end(text[i])) continue;
      if (punkt::is_non_word(text[i + 1])) {
        found.push_back({i, i + 1, kNone, i + 2});
      } else if (punkt::is_space(text[i + 1])) {
        const std::size_t next = skip(i + 1, true);
        if (next < text.size()) found.push_back({i, i + 1, next, skip(next, false)});
      }
    }
    return found;
  }
  // A candidate: a word, its last sentence end that is followed by text, and the white space after.
  for (std::size_t begin = skip(0, true); begin < text.size();) {
    const std::size_t end = skip(begin, false);
    std::optional<Candidate> match;
    for (std::size_t k = end; k-- > begin && !match;) {
      if (!punkt::is_sentence_end(text[k])) continue;
      const std::size_t next = k + 1 == end ? skip(end, true) : k + 1;
      if (next >= text.size()) continue;
      if (punkt::is_non_word(text[next])) {
        match = Candidate{begin, next, kNone, next + 1};
      } else {
        match = Candidate{begin, next, next, skip(next, false)};
      }
    }
    if (match) {
      found.push_back(*match);
      begin = match->end;
      begin = skip(begin, true);
    } else {
      begin = skip(end, true);
    }
  }
  return found;
}

void PunktSplitter::annotate_pair(punkt::Token& first, const punkt::Token& second) const {
  if (!first.period_final) return;
  const std::string type(first.type_no_period());
  const std::string next(second.type_no_sentence_period());
  const bool initial = first.is_initial();
  const auto join = [&] {
    first.sentence_break = false;
    first.abbreviation = true;
  };
  if (parameters_.collocations.contains(type + '\t' + next)) return join();
  if ((first.abbreviation || first.ellipsis) && !initial) {
    if (orthographic(second, parameters_) == Starts::kYes ||
        (second.first_upper() && parameters_.sentence_starters.contains(next))) {
      first.sentence_break = true;
      return;
    }
  }
  if (initial || type == "##number##") {
    const Starts starts = orthographic(second, parameters_);
    if (starts == Starts::kNo) return join();
    if (starts == Starts::kUnknown && initial && second.first_upper() &&
        (parameters_.cases_of(next) & PunktParameters::kLower) == 0) {
      return join();
    }
  }
}

bool PunktSplitter::breaks(std::u32string_view context) const {
  std::vector<punkt::Token> tokens;
  punkt::tokenize(context, tokens);
  punkt::annotate_by_type(tokens, parameters_);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    annotate_pair(tokens[i], tokens[i + 1]);
    if (tokens[i].sentence_break) return true;  // and a word follows
  }
  return false;
}

std::vector<PunktSplitter::Span> PunktSplitter::spans(std::u32string_view text) const {
  std::vector<Span> found;
  std::size_t last = 0;
  const auto decide = [&](Span word, const Candidate& candidate) {
    std::u32string context(text.substr(word.begin, word.end - word.begin));
    context += text.substr(candidate.begin, candidate.end - candidate.begin);
    context += text.substr(candidate.end, candidate.after - candidate.end);
    if (!breaks(context)) return;
    found.push_back({last, candidate.end});
    last = candidate.next != kNone ? candidate.next : candidate.end;
  };
  // Candidates in one run of punctuation ("acting!!!") share a word; the last one counts.
  Span word{0, 0};
  std::optional<Candidate> before;
  for (const Candidate& candidate : candidates(text)) {
    std::size_t begin = word.end;
    if (candidate.begin > word.end) {
      const auto piece = text.substr(word.end, candidate.begin - word.end);
      const auto space = piece.find_last_of(U" \t\n\r\x0b\x0c");
      // A space at the very start counts as none, as in NLTK.
      begin = space == kNone || space == 0 ? word.begin : word.end + space + 1;
    } else {
      begin = word.begin;
    }
    if (before && word.end <= begin) decide(word, *before);
    before = candidate;
    word = {begin, candidate.begin};
  }
  if (before) decide(word, *before);
  std::size_t end = text.size();
  while (end > 0 && punkt::is_space(text[end - 1])) --end;
  found.push_back({last, std::max(last, end)});
  return found;
}

void PunktSplitter::split(std::string_view text, std::vector<std::string_view>& sentences) const {
  std::u32string all;
  std::vector<std::uint32_t> offsets;
  punkt::decode_utf8(text, all, &offsets);
  for (std::size_t piece = 0; piece < all.size(); piece += kPieceCharacters) {
    const std::u32string_view part = std::u32string_view(all).substr(piece, kPieceCharacters);
    const auto give = [&](std::size_t begin, std::size_t end) {
      if (begin >= end) return;
      sentences.push_back(
          text.substr(offsets[piece + begin], offsets[piece + end] - offsets[piece + begin]));
    };
    // Quotes and brackets that close a sentence are moved to it.
    const std::vector<Span> raw = spans(part);
    std::size_t moved = 0;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      const std::size_t begin = raw[i].begin + moved;
      moved = 0;
      if (i + 1 == raw.size()) {
        give(begin, raw[i].end);
        break;
      }
      const std::u32string_view next =
          part.substr(raw[i + 1].begin, raw[i + 1].end - raw[i + 1].begin);
      std::size_t closing = 0, end = 0;
      while (closing < next.size() && punkt::is_closing(next[closing]) && end == 0) {
        ++closing;
        std::size_t space = closing;
        while (space < next.size() && punkt::is_space(next[space])) ++space;
        if (space > closing || closing == next.size() || next.substr(closing, 2) == U"--")
          end = space;
      }
      if (end > 0) {
        give(begin, raw[i + 1].begin + closing);
        moved = end;
      } else {
        give(begin, raw[i].end);
      }
    }
  }
}

}  // namespace piton
