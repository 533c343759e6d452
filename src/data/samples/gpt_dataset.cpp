#include "data/samples/gpt_dataset.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "data/samples/index_cache.h"
#include "data/samples/numpy_random.h"

namespace piton {
namespace {

// An `order` above this many entries (256 GiB) is a mistake in the request, such as a thousand
// samples of 4096 tokens each from a corpus of ten words.
constexpr std::int64_t kMostEntries = std::int64_t{1} << 36;

struct Lists {
  std::vector<std::int32_t> order;
  std::vector<std::int64_t> row_at;
  std::vector<std::int32_t> row_from;
  std::vector<std::int64_t> shuffle;
};

void append_shuffled(std::vector<std::int32_t>& order, const GptRequest& request,
                     std::int64_t epochs, NumpyRandom& random) {
  const std::size_t start = order.size();
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::int64_t i = request.first; i < request.end; ++i)
      order.push_back(static_cast<std::int32_t>(i));
  }
  random.shuffle(std::span(order).subspan(start));
}

void append_shuffled(std::vector<std::int64_t>& shuffle, std::int64_t end, NumpyRandom& random) {
  const std::size_t start = shuffle.size();
  while (static_cast<std::int64_t>(shuffle.size()) < end) {
    shuffle.push_back(static_cast<std::int64_t>(shuffle.size()));
  }
  random.shuffle(std::span(shuffle).subspan(start));
}

// `lengths`: of the sequences from number `first` on.
void append_rows(Lists& lists, const std::vector<std::int32_t>& lengths, std::int64_t first,
                 std::int64_t sequence, std::int64_t samples) {
  lists.row_at.reserve(static_cast<std::size_t>(samples + 1));
  lists.row_from.reserve(static_cast<std::size_t>(samples + 1));
  std::int64_t at = 0;
  std::int32_t from = 0;
  lists.row_at.push_back(at);
  lists.row_from.push_back(from);
  for (std::int64_t row = 1; row <= samples; ++row) {
    std::int64_t missing = sequence + 1;
    while (true) {
      PITON_ASSERT(at < static_cast<std::int64_t>(lists.order.size()),
                   "row {} of {} passes the end", row, samples);
      const std::int64_t drawn = lists.order[static_cast<std::size_t>(at)];
      const std::int64_t left =
          std::int64_t{lengths[static_cast<std::size_t>(drawn - first)]} - from;
      if (left >= missing) {
        // The last token of this sample is the first of the next.
        from += static_cast<std::int32_t>(missing - 1);
        break;
      }
      missing -= left;
      ++at;
      from = 0;
    }
    lists.row_at.push_back(at);
    lists.row_from.push_back(from);
  }
}

}  // namespace

GptIndex build_gpt_index(const TokenSequences& corpus, const GptRequest& request) {
  PITON_ASSERT(
      request.first >= 0 && request.first <= request.end && request.end <= corpus.sequences(),
      "split {}..{} of {} sequences", request.first, request.end, corpus.sequences());
  PITON_ASSERT(request.sequence >= 1, "sequence length {}", request.sequence);
  if (request.end > std::numeric_limits<std::int32_t>::max()) {
    throw Error(Fault::kData,
                "{}: {} sequences; sample orders hold at most 2147483647; split the corpus",
                corpus.name(), corpus.sequences());
  }
  const std::int64_t s = request.sequence;
  std::int64_t tokens = 0;
  // In memory while the lists are built: 4 bytes per sequence, as the order of one epoch.
  const std::vector<std::int32_t> lengths =
      corpus.lengths(request.first, request.end - request.first);
  for (const std::int32_t length : lengths) tokens += length;
  if (tokens == 0) {
    throw Error(Fault::kData,
                "{}: no tokens in sequences {}..{} of {}; give this split a larger share (--split) "
                "or a larger corpus",
                corpus.name(), request.first, request.end, corpus.sequences());
  }
  GptIndex index;
  std::int64_t wanted = 0;
  if (request.epochs) {
    index.epochs = *request.epochs;
  } else if (request.samples) {
    wanted = *request.samples;
    if (wanted > (std::numeric_limits<std::int64_t>::max() - tokens) / s - 1) {
      throw Error(Fault::kUsage, "{}: {} samples of {} tokens are more than can be counted",
                  corpus.name(), wanted, s);
    }
    index.epochs = std::max<std::int64_t>(1, (wanted * s + 1 + tokens - 1) / tokens);
  }
  const std::int64_t per_order = request.end - request.first;
  if (index.epochs > kMostEntries / per_order ||
      index.epochs > std::numeric_limits<std::int64_t>::max() / tokens) {
    if (request.epochs) {
      throw Error(Fault::kUsage,
                  "--train-data-exact-num-epochs: got {}, wanted at most {} for {}: so many orders "
                  "of its documents can be held",
                  *request.epochs, kMostEntries / per_order, corpus.name());
    }
    throw Error(Fault::kData,
                "{}: {} samples of {} tokens would read its {} tokens {} times over; use a larger "
                "corpus or fewer steps",
                corpus.name(), wanted, s, tokens, index.epochs);
  }
  const std::int64_t before_last = ((index.epochs - 1) * tokens - 1) / s;
  if (index.epochs > 1 && !request.epochs) {
    const std::int64_t an_epoch = (tokens - 1) / s;
    index.last_apart =
        wanted - before_last < static_cast<std::int64_t>(0.8 * static_cast<double>(an_epoch));
  }
  const std::int64_t samples = (index.epochs * tokens - 1) / s;
  if (samples < 1) {
    throw Error(
        Fault::kData,
        "{}: sequences {}..{} hold {} tokens; one sample needs {}; use a larger corpus or a "
        "shorter --seq-length",
        corpus.name(), request.first, request.end, tokens, s + 1);
  }

  auto lists = std::make_shared<Lists>();
  NumpyRandom random(request.seed);
  lists->order.reserve(static_cast<std::size_t>(index.epochs * per_order));
  append_shuffled(lists->order, request, index.last_apart ? index.epochs - 1 : index.epochs,
                  random);
  if (index.last_apart) append_shuffled(lists->order, request, 1, random);
  append_rows(*lists, lengths, request.first, s, samples);
  lists->shuffle.reserve(static_cast<std::size_t>(samples));
  if (index.last_apart) append_shuffled(lists->shuffle, before_last, random);
  append_shuffled(lists->shuffle, samples, random);
  index.order = StoredList(std::span<const std::int32_t>(lists->order));
  index.row_at = StoredList(std::span<const std::int64_t>(lists->row_at));
  index.row_from = StoredList(std::span<const std::int32_t>(lists->row_from));
  index.shuffle = StoredList(std::span<const std::int64_t>(lists->shuffle));
  index.storage = std::move(lists);
  return index;
}

GptDataset::GptDataset(std::shared_ptr<const TokenSequences> corpus, const GptRequest& request,
                       const std::optional<std::filesystem::path>& cache)
    : corpus_(std::move(corpus)), request_(request) {
  index_ =
      cache ? cached_gpt_index(*corpus_, request_, *cache) : build_gpt_index(*corpus_, request_);
}

// Calls take(sequence, from, filled) for each sequence of the sample, which returns how many ids
// are there, or -1.
template <typename Take>
void GptDataset::walk(std::int64_t index, Take&& take) const {
  PITON_ASSERT(index >= 0 && index < size(), "sample {} of {}", index, size());
  const auto row = static_cast<std::size_t>(index_.shuffle[static_cast<std::size_t>(index)]);
  if (row >= index_.shuffle.size()) {
    throw Error(Fault::kData,
                "{}: the stored order of its samples is damaged at sample {}; remove the cache "
                "folder (--data-cache-path)",
                corpus_->name(), index);
  }
  auto at = static_cast<std::size_t>(index_.row_at[row]);
  std::int64_t from = index_.row_from[row];
  std::int64_t filled = 0;
  std::array<std::int32_t, 32> drawn;  // entries of `order` from `at` on, read together
  std::span<std::int32_t> next;
  while (filled < request_.sequence + 1) {
    if (next.empty() && at < index_.order.size()) {
      next = std::span(drawn).first(std::min(drawn.size(), index_.order.size() - at));
      index_.order.read(at, next);
    }
    // A damaged list from a cache file must not cause reads outside of memory.
    const bool known = !next.empty() && next[0] >= 0 && next[0] < corpus_->sequences();
    const std::int64_t count = known ? take(next[0], from, filled) : -1;
    if (count < 0) {
      throw Error(Fault::kData,
                  "{}: the stored order of its samples is damaged at sample {}; remove the cache "
                  "folder (--data-cache-path)",
                  corpus_->name(), index);
    }
    filled += count;
    ++at;
    next = next.subspan(1);
    from = 0;
  }
}

void GptDataset::read(std::int64_t index, std::span<std::int32_t> ids) const {
  PITON_ASSERT(static_cast<std::int64_t>(ids.size()) == request_.sequence + 1, "room for {} ids",
               ids.size());
  walk(index, [&](std::int64_t sequence, std::int64_t from, std::int64_t filled) {
    return corpus_->read_some(sequence, from, ids.subspan(static_cast<std::size_t>(filled)));
  });
}

void GptDataset::announce(std::int64_t index) const {
  walk(index, [&](std::int64_t sequence, std::int64_t from, std::int64_t filled) {
    return corpus_->announce(sequence, from, request_.sequence + 1 - filled);
  });
}

}  // namespace piton
