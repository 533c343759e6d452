#include "data/masked/sentence_spans.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::int32_t kLongSentence = 512;  // Megatron's LONG_SENTENCE_LEN

// 64 GiB of spans: more is a mistake in the request.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 32;

// Draws the tokens that a run is to have.
class Targets {
 public:
  Targets(const SentenceRequest& request)
      : longest_(static_cast<std::uint32_t>(request.longest)), random_(request.seed) {
    if (request.short_probability > 0) {
      ratio_ = static_cast<std::uint32_t>(std::round(1 / request.short_probability));
    }
  }
  std::int32_t next() {
    if (ratio_ == 0) return static_cast<std::int32_t>(longest_);
    const auto drawn = static_cast<std::uint32_t>(random_());
    return static_cast<std::int32_t>(drawn % ratio_ == 0 ? 2 + drawn % (longest_ - 1) : longest_);
  }

 private:
  std::uint32_t longest_;
  std::uint32_t ratio_ = 0;
  std::mt19937 random_;
};

// Sentences [first, end) of the corpus, of a document that can be used.
struct Document {
  std::int64_t first = 0;
  std::int64_t end = 0;
};

// Fisher-Yates from the end. The draws do not depend on the spans, so those of a block come first
// and their spans, anywhere in memory, are fetched meanwhile.
void shuffle(std::span<SentenceSpan> spans, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::array<std::size_t, 64> drawn;
  for (std::size_t left = spans.size(); left > 1;) {
    const std::size_t count = std::min(drawn.size(), left - 1);
    for (std::size_t i = 0; i < count; ++i) {
      drawn[i] = random() % (left - i);
      __builtin_prefetch(&spans[drawn[i]], 1);
    }
    for (std::size_t i = 0; i < count; ++i) std::swap(spans[left - 1 - i], spans[drawn[i]]);
    left -= count;
  }
}

class SpanBuilder {
 public:
  SpanBuilder(const IndexedDataset& corpus, const SentenceRequest& request)
      : request_(request), targets_(request) {
    const std::vector<std::int64_t> starts =
        corpus.document_starts(request.first, request.end - request.first + 1);
    first_ = starts.front();
    const std::vector<std::int32_t> lengths = corpus.lengths(first_, starts.back() - first_);
    result_.documents = request.end - request.first;
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) choose({starts[i], starts[i + 1]}, lengths);
    before_.resize(lengths.size() + 1);
    for (std::size_t i = 0; i < lengths.size(); ++i)
      before_[i + 1] = before_[i] + static_cast<std::uint32_t>(lengths[i]);
    if (!documents_.empty()) return;
    throw Error(Fault::kData,
                "{}: no document can be used: of {}, {} have fewer than {} sentences, and {} have "
                "a sentence of more than {} tokens; make the corpus with piton preprocess "
                "--split-sentences",
                corpus.prefix(), result_.documents, result_.too_few, request.least_sentences,
                result_.too_long, kLongSentence);
  }

  SentenceSpans build() {
    const std::int64_t wanted = request_.samples.value_or(1);
    std::vector<SentenceSpan>& spans = result_.spans;
    while (std::ssize(spans) < wanted) {
      for (const Document& document : documents_) append(document);
      // The next epochs have about as many.
      if (++result_.epochs == 1) spans.reserve(static_cast<std::size_t>(wanted) + 2 * spans.size());
    }
    const auto seed = static_cast<std::int32_t>(request_.seed);
    shuffle(spans, static_cast<std::uint64_t>(std::int64_t{seed} + 1));
    return std::move(result_);
  }

 private:
  void choose(const Document& document, std::span<const std::int32_t> lengths) {
    const std::int64_t sentences = document.end - document.first;
    if (sentences < request_.least_sentences) {
      ++result_.too_few;
      return;
    }
    const auto of_document = lengths.subspan(static_cast<std::size_t>(document.first - first_),
                                             static_cast<std::size_t>(sentences));
    const auto is_long = [](std::int32_t length) { return length > kLongSentence; };
    if (sentences > 1 && std::ranges::any_of(of_document, is_long)) {
      ++result_.too_long;
      return;
    }
    documents_.push_back(document);
  }

  // Of sentences [begin, end).
  std::uint32_t tokens(std::int64_t begin, std::int64_t end) const {
    return before_[static_cast<std::size_t>(end - first_)] -
           before_[static_cast<std::size_t>(begin - first_)];
  }

  void append(const Document& document) {
    const std::int64_t last = document.end - 2;  // a run that ends by then leaves two sentences
    for (std::int64_t begin = document.first; begin < document.end;) {
      const std::int32_t target = targets_.next();
      const auto is_full = [&](std::int64_t end) {
        return tokens(begin, end) >= static_cast<std::uint32_t>(target);
      };
      std::int64_t end = begin + request_.least_sentences;
      while (end < last && !is_full(end)) ++end;
      if (end > last || !is_full(end)) end = document.end;
      result_.spans.push_back({begin, static_cast<std::int32_t>(end - begin), target});
      begin = end;
    }
    targets_.next();  // Megatron draws one for a run after the last
  }

  const SentenceRequest& request_;
  Targets targets_;
  std::int64_t first_ = 0;  // sentence of the corpus that is sentence 0 here
  // Tokens before each sentence, modulo 2^32: only differences within a document are used.
  std::vector<std::uint32_t> before_;
  std::vector<Document> documents_;
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
