#include "data/sentences/punkt_trainer.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace piton {
namespace {

// The paper's cut-offs, as NLTK sets them.
constexpr double kAbbreviation = 0.3;
constexpr std::int64_t kRareBelow = 5;
constexpr double kCollocation = 7.88;
constexpr double kSentenceStarter = 30;

// Dunning's log likelihood ratio, with the paper's change: the alternative is 0.99.
double abbreviation_likelihood(double a, double b, double ab, double n) {
  const double p1 = b / n, p2 = 0.99;
  const double null = ab * std::log(p1 + 1e-8) + (a - ab) * std::log(1.0 - p1 + 1e-8);
  const double alternative = ab * std::log(p2) + (a - ab) * std::log(1.0 - p2);
  return -2.0 * (null - alternative);
}

// Dunning's log likelihood ratio; a term whose logarithm does not exist is zero.
double collocation_likelihood(std::int64_t a, std::int64_t b, std::int64_t ab, std::int64_t n) {
  const auto real = [](std::int64_t x) { return static_cast<double>(x); };
  const double p = real(b) / real(n), p1 = real(ab) / real(a);
  const double p2 = n == a ? 1 : real(b - ab) / real(n - a);
  double s1 = 0, s2 = 0, s3 = 0, s4 = 0;
  if (p > 0 && 1.0 - p > 0) {
    s1 = real(ab) * std::log(p) + real(a - ab) * std::log(1.0 - p);
    s2 = real(b - ab) * std::log(p) + real(n - a - b + ab) * std::log(1.0 - p);
  }
  if (a != ab && p1 > 0 && p1 < 1) s3 = real(ab) * std::log(p1) + real(a - ab) * std::log(1.0 - p1);
  if (b != ab && p2 > 0 && p2 < 1)
    s4 = real(b - ab) * std::log(p2) + real(n - a - b + ab) * std::log(1.0 - p2);
  return -2.0 * (s1 + s2 - s3 - s4);
}

std::string without_last_point(std::string_view text) {
  std::size_t size = text.size();
  while (size > 0 && (text[--size] & 0xC0) == 0x80) {
  }
  return std::string(text.substr(0, size));
}

}  // namespace

std::int64_t PunktTrainer::count(const Counts& counts, std::string_view type) {
  const auto at = counts.find(std::string(type));
  return at == counts.end() ? 0 : at->second;
}

std::int64_t PunktTrainer::count_either(std::string_view type) const {
  return count(types_, type) + count(types_, std::string(type) + ".");
}

void PunktTrainer::train(std::string_view text) {
  std::u32string points;
  punkt::decode_utf8(text, points, nullptr);
  std::vector<punkt::Token> tokens;
  punkt::tokenize(points, tokens);
  for (const punkt::Token& token : tokens) {
    ++types_[token.type];
    ++words_;
    period_words_ += token.period_final ? 1 : 0;
  }
  reclassify_abbreviations(tokens);
  punkt::annotate_by_type(tokens, parameters_);
  learn_cases(tokens);
  for (const punkt::Token& token : tokens) breaks_ += token.sentence_break ? 1 : 0;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const punkt::Token& word = tokens[i];
    const punkt::Token& next = tokens[i + 1];
    if (!word.period_final) continue;
    if (is_rare_abbreviation(word, next)) parameters_.abbreviations.emplace(word.type_no_period());
    const bool number_or_initial = word.is_number() || word.is_initial();
    if (word.sentence_break && !number_or_initial && next.is_alpha()) ++starters_[next.type];
    if (word.sentence_break && number_or_initial && word.is_non_punctuation() &&
        next.is_non_punctuation()) {
      ++collocations_[std::string(word.type_no_period()) + '\t' +
                      std::string(next.type_no_sentence_period())];
    }
  }
}

void PunktTrainer::reclassify_abbreviations(const std::vector<punkt::Token>& tokens) {
  std::set<std::string_view> unique;
  for (const punkt::Token& token : tokens) unique.insert(token.type);
  for (const std::string_view type : unique) {
    if (type == "##number##" || !punkt::has_word_character(type)) continue;
    const bool candidate = type.ends_with('.');
    if (parameters_.abbreviations.contains(std::string(type)) == candidate) continue;
    const std::string word(candidate ? type.substr(0, type.size() - 1) : type);
    const auto periods = std::count(word.begin(), word.end(), '.') + 1;
    const auto others = static_cast<std::ptrdiff_t>(punkt::length_in_points(word)) - periods + 1;
    const std::int64_t with = count(types_, word + "."), without = count(types_, word);
    const double likelihood = abbreviation_likelihood(
        static_cast<double>(with + without), static_cast<double>(period_words_),
        static_cast<double>(with), static_cast<double>(words_));
    const double score = likelihood * std::exp(-static_cast<double>(others)) *
                         static_cast<double>(periods) *
                         std::pow(static_cast<double>(others), -static_cast<double>(without));
    if (score >= kAbbreviation && candidate) parameters_.abbreviations.insert(word);
    if (score < kAbbreviation && !candidate) parameters_.abbreviations.erase(word);
  }
}

void PunktTrainer::learn_cases(const std::vector<punkt::Token>& tokens) {
  enum class Place { kBegin, kMiddle, kUnknown } place = Place::kMiddle;
  for (const punkt::Token& token : tokens) {
    if (token.paragraph_start && place != Place::kUnknown) place = Place::kBegin;
    if (token.line_start && place == Place::kMiddle) place = Place::kUnknown;
    const int shift = place == Place::kBegin ? 0 : place == Place::kMiddle ? 1 : 2;
    if (token.first_lower()) {
      parameters_.cases[std::string(token.type_no_sentence_period())] |=
          PunktParameters::kBeginLower << shift;
    } else if (token.first_upper()) {
      parameters_.cases[std::string(token.type_no_sentence_period())] |=
          PunktParameters::kBeginUpper << shift;
    }
    if (token.sentence_break) {
      place = token.is_number() || token.is_initial() ? Place::kUnknown : Place::kBegin;
    } else {
      place = token.ellipsis || token.abbreviation ? Place::kUnknown : Place::kMiddle;
    }
  }
}

bool PunktTrainer::is_rare_abbreviation(const punkt::Token& word, const punkt::Token& next) const {
  if (word.abbreviation || !word.sentence_break) return false;
  const std::string_view type = word.type_no_sentence_period();
  if (parameters_.abbreviations.contains(std::string(type)) ||
      count(types_, type) + count(types_, without_last_point(type)) >= kRareBelow) {
    return false;
  }
  if (std::u32string_view(U",:;").find(next.text[0]) != std::u32string_view::npos) return true;
  if (!next.first_lower()) return false;
  const int cases = parameters_.cases_of(next.type_no_sentence_period());
  return (cases & PunktParameters::kBeginUpper) != 0 &&
         (cases & PunktParameters::kMiddleUpper) == 0;
}

PunktParameters PunktTrainer::finish() {
  parameters_.sentence_starters.clear();
  for (const auto& [type, at_break] : starters_) {
    const std::int64_t all = count_either(type);
    if (all < at_break) continue;
    if (collocation_likelihood(breaks_, all, at_break, words_) >= kSentenceStarter &&
        static_cast<double>(words_) / static_cast<double>(breaks_) >
            static_cast<double>(all) / static_cast<double>(at_break)) {
      parameters_.sentence_starters.insert(type);
    }
  }
  parameters_.collocations.clear();
  for (const auto& [pair, together] : collocations_) {
    const std::string first = pair.substr(0, pair.find('\t')),
                      second = pair.substr(pair.find('\t') + 1);
    if (parameters_.sentence_starters.contains(second)) continue;
    const std::int64_t count1 = count_either(first), count2 = count_either(second);
    if (count1 <= 1 || count2 <= 1 || together <= 1 || together > std::min(count1, count2))
      continue;
    if (collocation_likelihood(count1, count2, together, words_) >= kCollocation &&
        static_cast<double>(words_) / static_cast<double>(count1) >
            static_cast<double>(count2) / static_cast<double>(together)) {
      parameters_.collocations.insert(pair);
    }
  }
  return parameters_;
}

}  // namespace piton
