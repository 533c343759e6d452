#include "text/training/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/platform.h"
#include "text/training/pair_counts.h"
#include "text/training/word_list.h"

namespace piton {
namespace {

// Pairs with their counts and the words where they are: ascending, each once.
struct PairsOfWords {
  PairCounts counts;
  std::vector<WordList> lists;

  void add(std::uint64_t pair, std::int64_t count, std::uint32_t word) {
    PairCounts::Slot& slot = counts.at(pair);
    slot.count += count;
    if (slot.list < 0) {
      slot.list = static_cast<std::int32_t>(lists.size());
      lists.emplace_back();
    }
    lists[static_cast<std::size_t>(slot.list)].append_once(word);
  }
  // Adds the pairs of `later`, whose words all come after the words in this object.
  void add(PairsOfWords& later) {
    later.counts.each([&](const PairCounts::Slot& theirs) {
      const auto words = std::as_const(later.lists[static_cast<std::size_t>(theirs.list)]).words();
      add(theirs.pair, theirs.count, words.front());
      WordList& mine = lists[static_cast<std::size_t>(counts.at(theirs.pair).list)];
      mine.append(words.subspan(1));
    });
  }
};

// What one merge of (a, b) into c does to the pairs next to it, by the id of the neighbor: as much
// as (x, a) loses, (x, c) wins; as much as (b, x) loses, (c, x) wins.
struct SideChanges {
  struct Change {
    std::int64_t count = 0;
    WordList words;
  };
  std::vector<Change> of;             // by id
  std::vector<std::int32_t> changed;  // ids whose count is not 0

  void add(std::int32_t id, std::int64_t count, std::uint32_t word) {
    Change& change = of[static_cast<std::size_t>(id)];
    if (change.count == 0) changed.push_back(id);
    change.count += count;
    change.words.append_once(word);
  }
};
struct MergeChanges {
  SideChanges left;
  SideChanges right;
};

struct Merge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t into = 0;
};

// The index in `symbols`, from `begin` on, of the first pair that `merge` joins; their number if
// there is none.
PITON_VECTOR_CLONES
std::size_t find_pair(const Merge& merge, std::span<const std::int32_t> symbols,
                      std::size_t begin) {
  // Of a language without spaces a word is a whole line, with a pair or two in it: most of it is
  // passed in blocks, without a branch for each symbol.
  constexpr std::size_t kBlock = 16;
  for (; begin + kBlock < symbols.size(); begin += kBlock) {
    const std::int32_t* at = symbols.data() + begin;
    std::uint32_t any = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      any |= static_cast<std::uint32_t>(at[i] == merge.left) &
             static_cast<std::uint32_t>(at[i + 1] == merge.right);
    }
    if (any != 0) break;
  }
  for (; begin + 1 < symbols.size(); ++begin) {
    if (symbols[begin] == merge.left && symbols[begin + 1] == merge.right) return begin;
  }
  return symbols.size();
}

// Merges in the words of `list`, from left to right in each.
void merge_words(const Merge& merge, std::span<const std::uint32_t> list, SymbolWords& words,
                 MergeChanges& changes) {
  for (const std::uint32_t w : list) {
    const std::span<std::int32_t> symbols = words.word(w);
    const std::int64_t count = words.counts[w];
    std::size_t kept = find_pair(merge, symbols, 0);
    for (std::size_t i = kept; i < symbols.size();) {
      if (kept > 0) changes.left.add(symbols[kept - 1], count, w);
      if (i + 2 < symbols.size()) changes.right.add(symbols[i + 2], count, w);
      symbols[kept++] = merge.into;
      i += 2;
      const std::size_t next = find_pair(merge, symbols, i);
      std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(i),
                symbols.begin() + static_cast<std::ptrdiff_t>(next),
                symbols.begin() + static_cast<std::ptrdiff_t>(kept));
      kept += next - i;
      i = next;
    }
    words.lengths[w] = static_cast<std::uint32_t>(kept);
  }
}

class BpeMerging {
 public:
  BpeMerging(const BpeTraining& training, GrowingVocabulary& vocabulary, SymbolWords words,
             ThreadPool& threads)
      : training_(training), vocabulary_(vocabulary), words_(std::move(words)), threads_(threads) {
    constexpr int kMostParts = 8;  // each has a row for every piece
    changes_.resize(static_cast<std::size_t>(std::min(threads.threads(), kMostParts)));
    for (MergeChanges& changes : changes_) {
      changes.left.of.resize(static_cast<std::size_t>(training.vocabulary_size));
      changes.right.of.resize(static_cast<std::size_t>(training.vocabulary_size));
    }
    count_pairs();
  }

  // The merges in order. A pair that is merged again is in the list twice.
  std::vector<std::uint64_t> run(const std::function<void(std::int64_t)>& shown) {
    constexpr std::int64_t kShowEvery = 256;
    std::vector<std::uint64_t> merges;
    while (vocabulary_.size() < training_.vocabulary_size && (!queue_.empty() || queue_rare())) {
      Queued top = queue_.top();
      queue_.pop();
      const std::int64_t count = counts_.count(top.pair);
      if (count != top.count) {
        top.count = count;
        queue(top);
        continue;
      }
      if (count < 1 || count < training_.min_frequency) break;
      merges.push_back(top.pair);
      const Merge merge{left_of(top.pair), right_of(top.pair), merged_piece(top.pair)};
      const WordList list = std::move(lists_[top.list]);
      free_lists_.push_back(top.list);
      apply(merge, list);
      if (std::ssize(merges) % kShowEvery == 0) shown(vocabulary_.size());
    }
    return merges;
  }

 private:
  struct Queued {
    std::int64_t count;
    std::uint64_t pair;
    std::uint32_t list;
    std::uint64_t number;  // of entries of one pair the older comes first

    bool operator<(const Queued& other) const {
      if (count != other.count) return count < other.count;
      if (pair != other.pair) return pair > other.pair;
      return number > other.number;
    }
  };

  void queue(std::uint64_t pair, std::int64_t count, WordList words) {
    std::uint32_t list = static_cast<std::uint32_t>(lists_.size());
    if (free_lists_.empty()) {
      lists_.push_back(std::move(words));
    } else {
      list = free_lists_.back();
      free_lists_.pop_back();
      lists_[list] = std::move(words);
    }
    queue({count, pair, list, queued_++});
  }

  // Most pairs are too rare to be merged: they wait apart, so that the queue is short.
  void queue(const Queued& entry) {
    if (rare_apart_ && entry.count < training_.min_frequency) {
      rare_.push_back(entry);
    } else {
      queue_.push(entry);
    }
  }

  // Puts the rare pairs in the queue, which is empty: a pair's count may have grown since it was
  // queued. Returns whether there are any.
  bool queue_rare() {
    if (rare_.empty()) return false;
    rare_apart_ = false;
    queue_ = std::priority_queue<Queued>(std::less<Queued>(), std::move(rare_));
    rare_ = std::vector<Queued>();
    return true;
  }

  void count_pairs() {
    const auto parts = static_cast<std::int64_t>(changes_.size());
    std::vector<PairsOfWords> found(static_cast<std::size_t>(parts));
    const auto words = static_cast<std::int64_t>(words_.begins.size());
    threads_.run(parts, [&](std::int64_t part) {
      PairsOfWords& pairs = found[static_cast<std::size_t>(part)];
      for (std::int64_t w = words * part / parts; w < words * (part + 1) / parts; ++w) {
        const auto word = static_cast<std::uint32_t>(w);
        const std::span<std::int32_t> symbols = words_.word(word);
        for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
          pairs.add(pair_of(symbols[i], symbols[i + 1]), words_.counts[word], word);
        }
      }
    });
    for (std::size_t part = 1; part < found.size(); ++part) {
      found[0].add(found[part]);
      found[part] = PairsOfWords();
    }
    counts_ = std::move(found[0].counts);
    counts_.each([&](PairCounts::Slot& slot) {
      queue(slot.pair, slot.count, std::move(found[0].lists[static_cast<std::size_t>(slot.list)]));
      slot.list = -1;
    });
  }

  std::int32_t merged_piece(std::uint64_t pair) {
    std::string_view right = vocabulary_.piece(right_of(pair));
    if (right.starts_with(training_.continuing_prefix)) {
      right.remove_prefix(training_.continuing_prefix.size());
    }
    std::string piece = vocabulary_.piece(left_of(pair));
    piece += right;
    return vocabulary_.add(std::move(piece));
  }

  void apply(const Merge& merge, const WordList& list) {
    // Waking the other threads costs some microseconds, a word less than a tenth of one.
    constexpr std::int64_t kWordsOfPart = 512;
    const std::int64_t words = list.size();
    const std::int64_t parts =
        std::clamp<std::int64_t>(words / kWordsOfPart, 1, std::ssize(changes_));
    threads_.run(parts, [&](std::int64_t part) {
      const std::int64_t begin = words * part / parts;
      const std::int64_t end = words * (part + 1) / parts;
      merge_words(merge,
                  list.words().subspan(static_cast<std::size_t>(begin),
                                       static_cast<std::size_t>(end - begin)),
                  words_, changes_[static_cast<std::size_t>(part)]);
    });
    fresh_.clear();
    for (std::int64_t part = 0; part < parts; ++part) {
      MergeChanges& changes = changes_[static_cast<std::size_t>(part)];
      take(changes.left, [&](std::int32_t x, std::int64_t count, WordList& at) {
        counts_.at(pair_of(x, merge.left)).count -= count;
        win(pair_of(x, merge.into), count, at);
      });
    }
    for (std::int64_t part = 0; part < parts; ++part) {
      MergeChanges& changes = changes_[static_cast<std::size_t>(part)];
      take(changes.right, [&](std::int32_t x, std::int64_t count, WordList& at) {
        counts_.at(pair_of(merge.right, x)).count -= count;
        win(pair_of(merge.into, x), count, at);
      });
    }
    queue_fresh(merge);
  }

  // Calls use(id, count, words) for each change and forgets them.
  template <typename Use>
  static void take(SideChanges& side, Use&& use) {
    for (const std::int32_t id : side.changed) {
      SideChanges::Change& change = side.of[static_cast<std::size_t>(id)];
      use(id, change.count, change.words);
      change = SideChanges::Change();
    }
    side.changed.clear();
  }

  void win(std::uint64_t pair, std::int64_t count, WordList& words) {
    PairCounts::Slot& slot = counts_.at(pair);
    slot.count += count;
    if (slot.list < 0) {
      slot.list = static_cast<std::int32_t>(fresh_.size());
      fresh_.emplace_back(pair, std::move(words));
    } else {
      WordList& known = fresh_[static_cast<std::size_t>(slot.list)].second;
      known.append(std::as_const(words).words());
    }
  }

  void queue_fresh(const Merge& merge) {
    for (auto& [pair, words] : fresh_) {
      PairCounts::Slot& slot = counts_.at(pair);
      slot.list = -1;
      if (pair == pair_of(merge.into, merge.into)) {  // met from both of its sides
        words.sort();
      }
      if (slot.count > 0) queue(pair, slot.count, std::move(words));
    }
  }

  const BpeTraining& training_;
  GrowingVocabulary& vocabulary_;
  SymbolWords words_;
  ThreadPool& threads_;
  PairCounts counts_;
  std::vector<WordList> lists_;
  std::vector<std::uint32_t> free_lists_;
  std::priority_queue<Queued> queue_;
  std::vector<Queued> rare_;  // counted less than min_frequency times when they were queued
  bool rare_apart_ = true;
  std::uint64_t queued_ = 0;
  std::vector<MergeChanges> changes_;                      // of each part
  std::vector<std::pair<std::uint64_t, WordList>> fresh_;  // pairs that one merge formed
};

// Each pair once, at the place of its last merge.
std::vector<std::pair<std::int32_t, std::int32_t>> last_of_each(
    const std::vector<std::uint64_t>& merges) {
  PairCounts seen;
  std::vector<std::pair<std::int32_t, std::int32_t>> kept;
  for (std::size_t i = merges.size(); i-- > 0;) {
    if (seen.at(merges[i]).count++ == 0) {
      kept.emplace_back(left_of(merges[i]), right_of(merges[i]));
    }
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace

TrainedBpe train_bpe(std::span<const CountedWord> words, const BpeTraining& training,
                     ThreadPool& threads, const std::function<void(std::int64_t)>& shown) {
  GrowingVocabulary vocabulary;
  SymbolWords spelled = spell_words(words, training, vocabulary);
  BpeMerging merging(training, vocabulary, std::move(spelled), threads);
  TrainedBpe trained;
  trained.merges = last_of_each(merging.run(shown));
  trained.pieces = vocabulary.take();
  return trained;
}

}  // namespace piton
