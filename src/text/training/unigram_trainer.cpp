#include "text/training/unigram_trainer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/training/remembered_lattices.h"
#include "text/training/repeated_substrings.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

constexpr std::int64_t kLongestPiece = 16;  // characters
constexpr std::size_t kSeeds = 1'000'000;
constexpr int kRoundsBetweenCuts = 2;
constexpr double kKeptShare = 0.75;
constexpr double kLeastExpected = 0.5;  // a piece that is expected less often is dropped
// Words are added up in so many parts, whatever the number of threads; each has a number for every
// piece.
constexpr std::int64_t kParts = 8;
constexpr std::size_t kRememberedNodes = 32 << 20;  // in all parts; 384 MiB

// The derivative of log(gamma(x)).
double digamma(double x) {
  double result = 0;
  for (; x < 7; ++x) result -= 1 / x;
  x -= 0.5;
  const double xx = 1 / x;
  const double xx2 = xx * xx;
  const double xx4 = xx2 * xx2;
  return result + std::log(x) + (1.0 / 24.0) * xx2 - 7.0 / 960.0 * xx4 +
         (31.0 / 8064.0) * xx4 * xx2 - (127.0 / 30720.0) * xx4 * xx4;
}

std::string text_of(char32_t c) {
  std::string text;
  append_utf8(c, text);
  return text;
}

class UnigramRun {
 public:
  UnigramRun(std::span<const CountedWord> words, const UnigramTraining& training,
             ThreadPool& threads)
      : words_(words),
        training_(training),
        threads_(threads),
        pieces_(seeds()),
        lattices_(kParts, RememberedLattices(kRememberedNodes / kParts)) {}

  std::vector<ScoredPiece> run(const std::function<void(std::int64_t)>& shown) {
    const std::int64_t wanted = training_.vocabulary_size * 11 / 10;
    while (true) {
      for (int round = 0; round < kRoundsBetweenCuts; ++round) {
        take(maximized(expected()));
        shown(pieces_.size());
      }
      if (pieces_.size() <= wanted) break;
      const std::int64_t before = pieces_.size();
      take(cut(wanted));
      if (pieces_.size() >= before) break;  // every piece is needed
    }
    return finished();
  }

 private:
  // Pieces of the next round with their numbers in this one.
  struct Chosen {
    std::vector<ScoredPiece> pieces;
    std::vector<std::size_t> numbers;
    void add(std::size_t number, ScoredPiece piece) {
      pieces.push_back(std::move(piece));
      numbers.push_back(number);
    }
  };
  void take(Chosen chosen) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(pieces_.size()),
                                  RememberedLattices::kRemoved);
    for (std::size_t id = 0; id < chosen.numbers.size(); ++id) {
      ids[chosen.numbers[id]] = static_cast<std::int32_t>(id);
    }
    threads_.run(kParts, [&](std::int64_t part) {
      lattices_[static_cast<std::size_t>(part)].renumber(ids);
    });
    pieces_ = UnigramPieces(std::move(chosen.pieces));
  }

  std::vector<ScoredPiece> seeds() {
    std::map<char32_t, std::int64_t> counts;
    for (const CountedWord& word : words_) {
      for (std::size_t at = 0; at < word.text.size();) {
        const Utf8Char c = decode_utf8(word.text, at);
        counts[c.value] += word.count;
        at += c.length;
      }
    }
    const auto first = std::ssize(training_.first_pieces);
    for (const auto& [c, count] : counts) characters_.push_back(c);
    if (first + std::ssize(counts) > training_.vocabulary_size) {
      throw Error(Fault::kUsage,
                  "--vocab-size: got {}, wanted at least {}: {} special tokens and {} characters; "
                  "raise it",
                  training_.vocabulary_size, first + std::ssize(counts), first, counts.size());
    }
    counts.erase(0);  // it would end a word
    std::vector<std::pair<std::int64_t, char32_t>> by_count;
    for (const auto& [c, count] : counts) by_count.emplace_back(count, c);
    std::sort(by_count.rbegin(), by_count.rend());
    std::vector<ScoredPiece> pieces = {{"", 0}};  // unknown characters
    for (const auto& [count, c] : by_count) {
      pieces.push_back({text_of(c), static_cast<double>(count)});
    }
    const std::size_t left = kSeeds - std::min(kSeeds, by_count.size());
    for (RepeatedSubstring& one : repeated_substrings(words_, kLongestPiece, left, threads_)) {
      const auto weight = static_cast<double>(one.places * one.characters);
      pieces.push_back({std::move(one.text), weight});
    }
    double sum = 0;
    for (const ScoredPiece& piece : pieces) sum += piece.score;
    for (std::size_t id = 1; id < pieces.size(); ++id) {
      pieces[id].score = std::log(pieces[id].score) - std::log(sum);
    }
    return pieces;
  }

  // Calls add(lattice, word, sums of this part) for each word, and adds the parts up in order.
  template <typename Add>
  std::vector<double> sum_over_words(Add&& add) {
    std::vector<std::vector<double>> sums(kParts);
    const auto count = std::ssize(words_);
    std::size_t known = 0;
    for (const RememberedLattices& part : lattices_) known += part.words();
    if (known < words_.size()) pieces_.make_trie();
    threads_.run(kParts, [&](std::int64_t part) {
      std::vector<double>& mine = sums[static_cast<std::size_t>(part)];
      mine.assign(static_cast<std::size_t>(pieces_.size()), 0);
      UnigramLattice lattice(pieces_);
      UnigramLattice::Path path;
      const std::int64_t begin = count * part / kParts;
      for (std::int64_t w = begin; w < count * (part + 1) / kParts; ++w) {
        const CountedWord& word = words_[static_cast<std::size_t>(w)];
        lattices_[static_cast<std::size_t>(part)].set(static_cast<std::size_t>(w - begin),
                                                      word.text, lattice);
        add(lattice, path, static_cast<double>(word.count), mine);
      }
    });
    for (std::size_t part = 1; part < sums.size(); ++part) {
      for (std::size_t id = 0; id < sums[0].size(); ++id) sums[0][id] += sums[part][id];
    }
    return std::move(sums[0]);
  }

  // How often each piece is expected in all words.
  std::vector<double> expected() {
    return sum_over_words([](UnigramLattice& lattice, UnigramLattice::Path&, double count,
                             std::vector<double>& sums) { lattice.add_expected(count, sums); });
  }

  // The pieces that are expected, with their new scores. The digamma function in the place of the
  // logarithm makes rare pieces rarer (Liang and Klein 2007, structured Bayesian models).
  Chosen maximized(const std::vector<double>& expected) const {
    Chosen kept;
    kept.add(0, pieces_.pieces()[0]);
    double sum = 0;
    for (std::size_t id = 1; id < expected.size(); ++id) {
      if (expected[id] < kLeastExpected) continue;
      kept.add(id, {pieces_.pieces()[id].text, expected[id]});
      sum += expected[id];
    }
    if (kept.pieces.size() == 1) {
      throw Error(Fault::kData,
                  "train-tokenizer: all pieces are too rare in the text; give more text");
    }
    const double all = digamma(sum);
    for (std::size_t id = 1; id < kept.pieces.size(); ++id) {
      kept.pieces[id].score = digamma(kept.pieces[id].score) - all;
    }
    return kept;
  }

  // What a piece is cut into where it is no piece.
  struct Alternative {
    bool likelier = false;             // than the piece itself
    std::vector<std::int32_t> pieces;  // if it is not; none for a character
  };
  std::vector<Alternative> alternatives() {
    std::vector<Alternative> all(static_cast<std::size_t>(pieces_.size()));
    pieces_.make_trie();
    const std::int64_t count = pieces_.size();
    threads_.run(kParts, [&](std::int64_t part) {
      UnigramLattice lattice(pieces_);
      UnigramLattice::Path path;
      const std::int64_t begin = std::max<std::int64_t>(1, count * part / kParts);
      for (std::int64_t i = begin; i < count * (part + 1) / kParts; ++i) {
        const auto id = static_cast<std::size_t>(i);
        const ScoredPiece& piece = pieces_.pieces()[id];
        if (decode_utf8(piece.text, 0).length == piece.text.size()) continue;
        lattice.set(piece.text);
        lattice.best(/*whole=*/false, path);
        all[id].likelier = path.score >= piece.score;
        if (!all[id].likelier) all[id].pieces = path.pieces;
      }
    });
    return all;
  }

  // The pieces without those whose loss makes the words least unlikely.
  Chosen cut(std::int64_t wanted) {
    const std::vector<Alternative> others = alternatives();
    const std::vector<double> uses =
        sum_over_words([](UnigramLattice& lattice, UnigramLattice::Path& path, double count,
                          std::vector<double>& sums) {
          lattice.best(/*whole=*/true, path);
          for (const std::int32_t piece : path.pieces) {
            sums[static_cast<std::size_t>(piece)] += count;
          }
        });
    double words = 0;
    for (const CountedWord& word : words_) words += static_cast<double>(word.count);
    double sum = 0;
    for (const double use : uses) sum += use;
    const double log_sum = std::log(sum);
    Chosen kept;
    kept.add(0, pieces_.pieces()[0]);
    std::vector<std::pair<double, std::size_t>> losses;
    for (std::size_t id = 1; id < uses.size(); ++id) {
      if (others[id].likelier && uses[id] == 0) continue;
      if (others[id].pieces.empty()) {
        kept.add(id, pieces_.pieces()[id]);
        continue;
      }
      if (uses[id] == 0) continue;
      // Its uses become uses of its alternative. The sum of all uses should grow by those of the
      // alternative's pieces; the tokenizers library adds as many as there are pieces in the
      // vocabulary, which favors frequent pieces. Piton's vocabulary is to be the same.
      const auto parts = static_cast<double>(pieces_.size());
      const double log_sum_without = std::log(sum + uses[id] * (parts - 1));
      double without = 0;
      for (const std::int32_t piece : others[id].pieces) {
        without += std::log(uses[static_cast<std::size_t>(piece)] + uses[id]) - log_sum_without;
      }
      losses.emplace_back(uses[id] / words * (std::log(uses[id]) - log_sum - without), id);
    }
    std::stable_sort(losses.begin(), losses.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    const auto size = static_cast<double>(pieces_.size());
    const auto room = std::max(wanted, static_cast<std::int64_t>(size * kKeptShare));
    for (const auto& [loss, id] : losses) {
      if (std::ssize(kept.pieces) >= room) break;
      kept.add(id, pieces_.pieces()[id]);
    }
    return kept;
  }

  std::vector<ScoredPiece> finished() const {
    std::map<std::string, double> known;
    for (const ScoredPiece& piece : pieces_.pieces()) known[piece.text] = piece.score;
    const std::int64_t room = training_.vocabulary_size - std::ssize(training_.first_pieces);
    std::vector<ScoredPiece> chosen;
    std::set<std::string> taken(training_.first_pieces.begin(), training_.first_pieces.end());
    taken.insert("");
    constexpr double kApart = 0.0001;  // keeps the scores of characters that come back apart
    double below = 0;
    for (const char32_t c : characters_) {
      const std::string text = text_of(c);
      if (!taken.insert(text).second) continue;
      const auto found = known.find(text);
      chosen.push_back(
          {text, found != known.end() ? found->second : pieces_.lowest_score() + below});
      if (found == known.end()) below += kApart;
    }
    for (const ScoredPiece& piece : pieces_.pieces()) {
      if (std::ssize(chosen) >= room) break;
      if (taken.insert(piece.text).second) chosen.push_back(piece);
    }
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const auto& a, const auto& b) { return a.score > b.score; });
    std::vector<ScoredPiece> vocabulary;
    for (const std::string& token : training_.first_pieces) vocabulary.push_back({token, 0});
    vocabulary.insert(vocabulary.end(), chosen.begin(), chosen.end());
    return vocabulary;
  }

  std::span<const CountedWord> words_;
  const UnigramTraining& training_;
  ThreadPool& threads_;
  std::vector<char32_t> characters_;  // of all words, by code point
  UnigramPieces pieces_;
  std::vector<RememberedLattices> lattices_;  // one for each part
};

}  // namespace

std::vector<ScoredPiece> train_unigram(std::span<const CountedWord> words,
                                       const UnigramTraining& training, ThreadPool& threads,
                                       const std::function<void(std::int64_t)>& shown) {
  return UnigramRun(words, training, threads).run(shown);
}

}  // namespace piton
