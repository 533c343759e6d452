// Learns Punkt's parameters from plain text without annotations (Kiss & Strunk 2006, sections 3 and
// 4), with NLTK 3.10's statistics and cut-offs: train(a), train(b), finish() give the parameters of
// PunktTrainer after train(a, finalize=False), train(b, finalize=False), finalize_training().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/sentences/punkt.h"

namespace piton {

class PunktTrainer {
 public:
  // `text` is valid UTF-8. Memory grows with the number of different words.
  void train(std::string_view text);
  PunktParameters finish();

 private:
  using Counts = std::unordered_map<std::string, std::int64_t>;
  static std::int64_t count(const Counts& counts, std::string_view type);
  void reclassify_abbreviations(const std::vector<punkt::Token>& tokens);
  void learn_cases(const std::vector<punkt::Token>& tokens);
  bool is_rare_abbreviation(const punkt::Token& word, const punkt::Token& next) const;
  std::int64_t count_either(std::string_view type) const;  // with and without a period

  PunktParameters parameters_;
  Counts types_;
  std::int64_t words_ = 0;
  std::int64_t period_words_ = 0;
  std::int64_t breaks_ = 0;
  Counts collocations_;  // "first\tsecond"
  Counts starters_;
};

}  // namespace piton
