#include "data/masked/sentence_spans.h"

#include <algorithm>
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

class SpanBuilder {
 public:
  SpanBuilder(const IndexedDataset& corpus, const SentenceRequest& request)
      : request_(request), targets_(request) {
    const std::vector<std::int64_t> starts =
        corpus.document_starts(request.first, request.end - request.first + 1);
    first_ = starts.front();
    lengths_ = corpus.lengths(first_, starts.back() - first_);
    result_.documents = request.end - request.first;
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) choose({starts[i], starts[i + 1]});
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
    while (std::ssize(result_.spans) < wanted) {
      for (const Document& document : documents_) append(document);
      ++result_.epochs;
    }
    std::mt19937_64 random(
        static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(request_.seed)} + 1));
    std::vector<SentenceSpan>& spans = result_.spans;
    for (std::size_t i = spans.size(); i-- > 1;) std::swap(spans[i], spans[random() % (i + 1)]);
    return std::move(result_);
  }

 private:
  std::int32_t length(std::int64_t sentence) const {
    return lengths_[static_cast<std::size_t>(sentence - first_)];
  }

  void choose(const Document& document) {
    const std::int64_t sentences = document.end - document.first;
    if (sentences < request_.least_sentences) {
      ++result_.too_few;
      return;
    }
    for (std::int64_t i = document.first; sentences > 1 && i < document.end; ++i) {
      if (length(i) <= kLongSentence) continue;
      ++result_.too_long;
      return;
    }
    documents_.push_back(document);
  }

  void append(const Document& document) {
    std::int64_t begin = document.first;
    std::int64_t tokens = 0;
    std::int32_t target = targets_.next();
    for (std::int64_t i = document.first; i < document.end; ++i) {
      tokens += length(i);
      const std::int64_t left = document.end - i - 1;
      const bool full = tokens >= target && left > 1 && i + 1 - begin >= request_.least_sentences;
      if (!full && left > 0) continue;
      result_.spans.push_back({begin, static_cast<std::int32_t>(i + 1 - begin), target});
      begin = i + 1;
      tokens = 0;
      target = targets_.next();
    }
  }

  const SentenceRequest& request_;
  Targets targets_;
  std::int64_t first_ = 0;             // sentence of lengths_[0]
  std::vector<std::int32_t> lengths_;  // of the sentences of the request
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
