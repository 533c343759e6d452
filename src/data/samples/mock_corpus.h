// The synthetic sequences of --mock-data, equal to Megatron-core's MockGPTLowLevelDataset: 100,000
// sequences of 1 to 4095 ids. A sequence of n ids is
//
//   1 mod V, 2 mod V, ..., (n - 1) mod V, the end of a document
//
// for a vocabulary of V ids. The lengths are numpy.random.default_rng(0).integers(1, 4096, 100000)
// in every run; the order in which a run reads them depends on its --seed, as for any corpus.
#pragma once

#include "data/corpus/token_sequences.h"

namespace piton {

class MockCorpus final : public TokenSequences {
 public:
  // Asserts 0 <= end_of_document < vocabulary.
  MockCorpus(std::int64_t vocabulary, std::int32_t end_of_document);

  const std::string& name() const override { return name_; }
  std::int64_t sequences() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::vector<std::int32_t> lengths(std::int64_t first, std::int64_t count) const override;
  std::int64_t read_some(std::int64_t sequence, std::int64_t first,
                         std::span<std::int32_t> out) const override;
  std::int64_t announce(std::int64_t sequence, std::int64_t first,
                        std::int64_t count) const override;
  std::string fingerprint() const override;

 private:
  std::string name_ = "--mock-data";
  std::int64_t vocabulary_;
  std::int32_t end_of_document_;
  std::vector<std::int32_t> lengths_;
};

}  // namespace piton
