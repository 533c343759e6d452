// Sentence boundaries by Punkt (Kiss & Strunk 2006), equal to NLTK 3.10's PunktSentenceTokenizer
// with the same parameters. As in Megatron, texts are first cut into pieces of a million
// characters.
//
// keep_newlines is Megatron's variant: a boundary covers the word and the white space after it, and
// a sentence keeps that white space.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "data/sentences/punkt_tokens.h"
#include "data/sentences/sentence_splitter.h"

namespace piton {

// Parameters of a language. Types are lower case; collocations are "first\tsecond".
struct PunktParameters {
  // The positions in which a type was seen, with the case of its first letter.
  enum Case : int {
    kBeginUpper = 1 << 1,
    kMiddleUpper = 1 << 2,
    kUnknownUpper = 1 << 3,
    kBeginLower = 1 << 4,
    kMiddleLower = 1 << 5,
    kUnknownLower = 1 << 6,
    kUpper = kBeginUpper | kMiddleUpper | kUnknownUpper,
    kLower = kBeginLower | kMiddleLower | kUnknownLower,
  };
  std::unordered_set<std::string> abbreviations;
  std::unordered_set<std::string> collocations;
  std::unordered_set<std::string> sentence_starters;
  std::unordered_map<std::string, int> cases;

  int cases_of(std::string_view type) const;

  // NLTK's punkt_tab folder: abbrev_types.txt, collocations.tab, sent_starters.txt,
  // ortho_context.tab. read() throws Error(kData) with file and line.
  static PunktParameters read(const std::filesystem::path& folder);
  void write(const std::filesystem::path& folder) const;
  std::string content_hash() const;  // independent of order
};

namespace punkt {

// Annotates what the type of a word alone tells: breaks, ellipses, known abbreviations.
void annotate_by_type(std::vector<Token>& tokens, const PunktParameters& parameters);

}  // namespace punkt

class PunktSplitter final : public SentenceSplitter {
 public:
  explicit PunktSplitter(PunktParameters parameters, bool keep_newlines = false)
      : parameters_(std::move(parameters)), keep_newlines_(keep_newlines) {}

  void split(std::string_view text, std::vector<std::string_view>& sentences) const override;

 private:
  struct Span {
    std::size_t begin;
    std::size_t end;
  };
  // A place that may end a sentence: [begin, end) is the match, `next` the start of the following
  // word (npos if punctuation follows), `after` the end of the context after it.
  struct Candidate {
    std::size_t begin;
    std::size_t end;
    std::size_t next;
    std::size_t after;
  };
  std::vector<Candidate> candidates(std::u32string_view text) const;
  bool breaks(std::u32string_view context) const;
  void annotate_pair(punkt::Token& first, const punkt::Token& second) const;
  std::vector<Span> spans(std::u32string_view text) const;

  PunktParameters parameters_;
  bool keep_newlines_;
};

}  // namespace piton
