#include "data/masked/sentence_spans.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/threads.h"
#include "data/masked/make_ahead.h"
#include "data/masked/sentence_blocks.h"
#include "data/masked/twister.h"

namespace piton {
namespace {

// 64 GiB of spans: more is a mistake in the request.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 32;

// Remainders by one divisor, without divisions (Lemire, Kaser and Kurz 2019, arXiv:1902.01961):
//   c = ceil(2^64 / d),   x mod d = ((c x mod 2^64) d) / 2^64,   0 iff c x mod 2^64 < c
class Remainder {
 public:
  explicit Remainder(std::uint32_t divisor)
      : divisor_(divisor), inverse_(~std::uint64_t{0} / divisor + 1) {}
  std::uint64_t divisor() const { return divisor_; }
  bool is_zero(std::uint32_t x) const { return inverse_ * x <= inverse_ - 1; }
  std::uint32_t of(std::uint32_t x) const {
    return static_cast<std::uint32_t>((static_cast<unsigned __int128>(inverse_ * x) * divisor_) >>
                                      64);
  }

 private:
  std::uint64_t divisor_;
  std::uint64_t inverse_;  // of 1: 2^64 is 0 here, and both results are right
};

// Draws the tokens that a run is to have, many at a time.
class Targets {
 public:
  explicit Targets(const SentenceRequest& request)
      : longest_(static_cast<std::uint32_t>(request.longest)),
        draws_(request.short_probability > 0),
        ratio_(draws_ ? static_cast<std::uint32_t>(std::round(1 / request.short_probability)) : 1),
        rest_(longest_ - 1),
        random_(request.seed) {
    targets_.fill(static_cast<std::int32_t>(longest_));
  }
  std::int32_t next() {
    if (at_ == targets_.size()) refill();
    return targets_[at_++];
  }
  // The mean of many.
  double mean() const {
    const auto longest = static_cast<double>(longest_);
    return draws_ ? longest - (longest / 2 - 1) / static_cast<double>(ratio_.divisor()) : longest;
  }

 private:
  void refill() {
    at_ = 0;
    if (!draws_) return;
    const auto& drawn = random_.next();
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const std::uint32_t target = ratio_.is_zero(drawn[i]) ? 2 + rest_.of(drawn[i]) : longest_;
      targets_[i] = static_cast<std::int32_t>(target);
    }
  }

  std::uint32_t longest_;
  bool draws_;
  Remainder ratio_;
  Remainder rest_;
  Twister32 random_;
  std::array<std::int32_t, Twister32::kWords> targets_;
  std::size_t at_ = targets_.size();
};

// Places for the next spans from the end.
struct Draws {
  static constexpr std::size_t kCount = 26 * Twister64::kWords;
  static constexpr std::size_t kFetched = 64;  // lines of memory that are on their way
  std::size_t left = 0;                        // spans that have no place yet
  std::size_t count = 0;
  std::array<std::size_t, kCount + kFetched> places = {};
};

// Fisher-Yates from the end. The draws do not depend on the spans, so they are made ahead, and
// their spans, anywhere in memory, are fetched before they change places.
void shuffle(std::span<SentenceSpan> spans, std::uint64_t seed, ThreadPool& threads) {
  Twister64 random(seed);
  std::size_t left = spans.size();
  const auto draw = [&](Draws& draws) {
    if (left < 2) return false;
    draws.left = left;
    draws.count = std::min(Draws::kCount, left - 1);
    for (std::size_t i = 0; i < draws.count; i += Twister64::kWords) {
      const auto& drawn = random.next();
      const std::size_t count = std::min(drawn.size(), draws.count - i);
      for (std::size_t at = 0; at < count; ++at) draws.places[i + at] = drawn[at] % (left - i - at);
    }
    left -= draws.count;
    return true;
  };
  const auto swap = [&](const Draws& draws) {
    const auto fetch = [&](std::size_t i) { __builtin_prefetch(&spans[draws.places[i]], 1); };
    for (std::size_t i = 0; i < Draws::kFetched; ++i) fetch(i);
    for (std::size_t i = 0; i < draws.count; ++i) {
      fetch(i + Draws::kFetched);
      std::swap(spans[draws.left - 1 - i], spans[draws.places[i]]);
    }
  };
  make_ahead<Draws>(threads, draw, swap);
}

// Two, if this thread may run on two processors and the system gives another one.
std::unique_ptr<ThreadPool> two_threads() {
  try {
    if (available_cores().size() > 1) return std::make_unique<ThreadPool>(2);
  } catch (const Error&) {
  }
  return std::make_unique<ThreadPool>(1);
}

class SpanBuilder {
 public:
  SpanBuilder(const IndexedDataset& corpus, const SentenceRequest& request)
      : corpus_(corpus),
        request_(request),
        targets_(request),
        blocks_(corpus, request.first, request.end) {
    result_.documents = request.end - request.first;
    blocks_.next(first_);
    is_small_ = static_cast<std::int64_t>(first_.documents()) == result_.documents;
    threads_ = is_small_ ? std::make_unique<ThreadPool>(1) : two_threads();
  }

  SentenceSpans build() {
    const std::int64_t wanted = request_.samples.value_or(1);
    auto& spans = result_.spans;
    spans.reserve(spans_of_an_epoch());
    while (std::ssize(spans) < wanted) {
      read_epoch();
      if (spans.empty()) refuse();
      // The next epochs have about as many.
      if (++result_.epochs == 1) spans.reserve(static_cast<std::size_t>(wanted) + 2 * spans.size());
    }
    // Megatron adds in 32 bits: after the largest seed comes the smallest number.
    const auto seed = static_cast<std::int32_t>(static_cast<std::uint32_t>(request_.seed) + 1U);
    shuffle(spans, static_cast<std::uint64_t>(std::int64_t{seed}), *threads_);
    return std::move(result_);
  }

 private:
  void read_epoch() {
    if (is_small_) return append(first_);
    blocks_.restart();
    make_ahead<SentenceBlock>(
        *threads_, [&](SentenceBlock& block) { return blocks_.next(block); },
        [&](const SentenceBlock& block) { append(block); });
  }

  // About as many, seldom fewer. Memory that is not written is not used.
  std::size_t spans_of_an_epoch() const {
    const std::int64_t sentences =
        corpus_.document_start(request_.end) - corpus_.document_start(request_.first);
    const double tokens = static_cast<double>(corpus_.tokens()) * static_cast<double>(sentences) /
                          static_cast<double>(std::max<std::int64_t>(1, corpus_.sequences()));
    const double expected = static_cast<double>(result_.documents) + tokens / targets_.mean();
    return static_cast<std::size_t>(std::min(
        expected, static_cast<double>(sentences) / static_cast<double>(request_.least_sentences)));
  }

  void append(const SentenceBlock& block) {
    const bool counts = result_.epochs == 0;
    const std::int64_t first = block.starts.front();
    for (std::size_t i = 0; i < block.documents(); ++i) {
      const std::int64_t begin = block.starts[i] - first;
      const std::int64_t end = block.starts[i + 1] - first;
      if (end - begin < request_.least_sentences) {
        result_.too_few += counts;
      } else if (block.has_long && end - begin > 1 && has_long_sentence(block, begin, end)) {
        result_.too_long += counts;
      } else {
        append(block, begin, end);
      }
    }
  }

  static bool has_long_sentence(const SentenceBlock& block, std::int64_t begin, std::int64_t end) {
    return std::any_of(block.lengths.begin() + begin, block.lengths.begin() + end,
                       [](std::int32_t length) { return length > kLongSentence; });
  }

  // The runs of a document of sentences [begin, end) of the block.
  void append(const SentenceBlock& block, std::int64_t begin, std::int64_t end) {
    const std::int64_t last = end - 2;  // a run that ends by then leaves two sentences
    const std::uint32_t* sums = block.sums.data();
    for (;;) {
      const std::int32_t target = targets_.next();
      const std::int64_t fewest = begin + request_.least_sentences;
      const bool ends_before = fewest <= last && sums[last] - sums[begin] >= tokens_of(target);
      const std::int64_t next = ends_before ? full_run(sums, begin, target) : end;
      result_.spans.push_back(
          {block.starts.front() + begin, static_cast<std::int32_t>(next - begin), target});
      if (!ends_before) break;
      begin = next;
    }
    targets_.next();  // Megatron draws one for a run after the last
  }

  static std::uint32_t tokens_of(std::int32_t target) { return static_cast<std::uint32_t>(target); }

  // Where a run from `begin` on has its target and enough sentences. Sums that are looked at
  // together are counted without branches: their number cannot be foreseen.
  std::int64_t full_run(const std::uint32_t* sums, std::int64_t begin, std::int32_t target) const {
    constexpr auto kTogether = static_cast<std::int64_t>(SentenceBlock::kMoreSums);
    const std::uint32_t before = sums[begin];
    const std::uint32_t wanted = tokens_of(target);
    for (std::int64_t place = begin + request_.least_sentences;; place += kTogether) {
      const std::uint32_t* of = sums + place;
      std::int32_t too_few = 0;
      for (std::int64_t i = 0; i < kTogether; ++i) too_few += of[i] - before < wanted ? 1 : 0;
      if (too_few < kTogether) return place + too_few;
    }
  }

  [[noreturn]] void refuse() const {
    throw Error(Fault::kData,
                "{}: no document can be used: of {}, {} have fewer than {} sentences, and {} have "
                "a sentence of more than {} tokens; make the corpus with piton preprocess "
                "--split-sentences",
                corpus_.prefix(), result_.documents, result_.too_few, request_.least_sentences,
                result_.too_long, kLongSentence);
  }

  const IndexedDataset& corpus_;
  const SentenceRequest& request_;
  Targets targets_;
  SentenceBlocks blocks_;
  SentenceBlock first_;
  bool is_small_ = false;  // the first block is all of the documents
  std::unique_ptr<ThreadPool> threads_;
  SentenceSpans result_;
};

}  // namespace

SentenceSpans make_sentence_spans(const IndexedDataset& corpus, const SentenceRequest& request) {
  PITON_ASSERT(request.first >= 0 && request.first < request.end &&
                   request.end <= corpus.documents() && request.longest >= 2,
               "documents {} to {} of {}, {} tokens", request.first, request.end,
               corpus.documents(), request.longest);
  if (request.samples.value_or(0) > kMostSamples) {
    throw Error(Fault::kData, "{}: {} samples, at most {} are possible; ask for fewer steps",
                corpus.prefix(), *request.samples, kMostSamples);
  }
  return SpanBuilder(corpus, request).build();
}

Sentences read_sentences(const IndexedDataset& corpus, const SentenceSpan& span) {
  const std::vector<std::int32_t> lengths = corpus.lengths(span.first, span.count);
  Sentences result;
  result.starts.push_back(0);
  for (const std::int32_t length : lengths)
    result.starts.push_back(result.starts.back() + static_cast<std::size_t>(length));
  result.ids.resize(result.starts.back());
  for (std::int32_t i = 0; i < span.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    corpus.read(span.first + i, 0,
                std::span(result.ids)
                    .subspan(result.starts[at], result.starts[at + 1] - result.starts[at]));
  }
  return result;
}

}  // namespace piton
