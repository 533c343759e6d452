// Samples of one split of one corpus, in Megatron-core 0.16.1's order to the bit.
//
//   T tokens in the split's sequences, N samples wanted, s tokens each; all divisions floor
//   e       epochs: the smallest with e T >= N s + 1
//   apart   the last epoch is shuffled by itself iff e > 1 and
//           N - ((e-1) T - 1) / s < int(0.8 ((T - 1) / s))
//   order   the sequences e times, shuffled as one list; apart: e-1 times as one, then once
//   rows    (eT - 1)/s + 1 places in `order`; sample k covers the s + 1 tokens from row k to row
//           k + 1, whose token is the last of k and the first of k + 1
//   shuffle samples shuffled as one list; apart: those of the first e-1 epochs, then the rest
//
// All shuffles of a split come from one numpy RandomState(seed), in this order. A "document" here
// is a sequence of the corpus, as in Megatron.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/token_sequences.h"
#include "data/samples/stored_list.h"
#include "data/samples/token_source.h"

namespace piton {

// Determines the order: equal requests on equal corpora give equal samples.
struct GptRequest {
  std::int64_t first = 0;  // the split: sequences [first, end) of the corpus
  std::int64_t end = 0;
  std::int64_t sequence = 0;                 // s
  std::optional<std::int64_t> samples = {};  // N; absent: as many as one epoch gives
  std::optional<std::int64_t> epochs =
      {};  // exactly this many, shuffled as one list; `samples` is then ignored
  std::uint32_t seed = 1234;
};

// The three lists, in memory or in a cache file.
struct GptIndex {
  std::int64_t epochs = 1;
  bool last_apart = false;
  StoredList<std::int32_t> order;       // [e * sequences] sequence numbers of the corpus
  StoredList<std::int64_t> row_at;      // [samples + 1] place in `order`
  StoredList<std::int32_t> row_from;    // [samples + 1] first token within that sequence
  StoredList<std::int64_t> shuffle;     // [samples]
  std::shared_ptr<const void> storage;  // of lists in memory
};

// Throws Error(kData) if the split has no tokens, or fewer than one sample needs over all epochs,
// and if the lists would exceed the address range.
GptIndex build_gpt_index(const TokenSequences& corpus, const GptRequest& request);

class GptDataset final : public TokenSource {
 public:
  // `cache`: folder that keeps the lists under the hash of the corpus's fingerprint and the
  // request; absent: built in memory. An invalid cached file is built again.
  GptDataset(std::shared_ptr<const TokenSequences> corpus, const GptRequest& request,
             const std::optional<std::filesystem::path>& cache = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(index_.shuffle.size()); }
  std::int64_t sequence() const override { return request_.sequence; }
  void read(std::int64_t index, std::span<std::int32_t> ids) const override;
  void announce(std::int64_t index) const override;

  const GptIndex& index() const { return index_; }

 private:
  template <typename Take>
  void walk(std::int64_t index, Take&& take) const;

  std::shared_ptr<const TokenSequences> corpus_;
  GptRequest request_;
  GptIndex index_;
};

}  // namespace piton
