// Texts with labels, of one prefix, as samples of a classifier.
//
//   PREFIX_packed_input_ids_document   ids of a text, or of a pair of texts, with special tokens
//   PREFIX_packed_parts_document       what each of them is (data/instruct/labeled_texts.h)
//   PREFIX_packed_label_document       one value, the number of the label; of several labels that
//                                      of each, in ascending order, or none; of regression the bits
//                                      of a number in fp32
//
// Sequence i of each file belongs to sample i. A sample is a row with one label, at the token from
// which the model says it: the last one of a decoder, the first one of an encoder. Longer texts are
// cut at their ends; their special tokens stay.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/samples/data_sets.h"

namespace piton {

// Which samples a classifier reads.
struct LabelRules {
  std::int64_t sequence = 0;     // tokens of a row
  std::int64_t labels = 0;       // how many there are
  bool regression = false;       // the one is a number
  bool several = false;          // a text has any number of them
  bool at_first_token = false;   // of an encoder
  std::int64_t token_types = 0;  // rows of its table of types; 0: no table
};

class LabeledDataset final : public SampleSource {
 public:
  // Reads the labels of the split. Throws Error(kData) with the first sample whose label is none of
  // the model's, or that has no room in a row.
  LabeledDataset(const LabelRules& rules, const RecordShare& share);

  std::int64_t size() const override { return static_cast<std::int64_t>(order_.size()); }
  std::int64_t sequence() const override { return rules_.sequence; }
  void sample(std::int64_t index, Sample& sample) const override;
  std::int64_t longest(std::int64_t index) const override;
  void announce(std::int64_t index) const override;

  std::int64_t cut_samples() const { return cut_samples_; }

 private:
  std::int32_t number(std::int64_t index) const;
  std::int32_t label(std::int32_t number) const;
  float target(std::int32_t number) const;
  std::vector<std::uint8_t> label_set(std::int32_t number) const;

  LabelRules rules_;
  std::string prefix_;
  std::vector<std::shared_ptr<const IndexedDataset>> columns_;
  std::int32_t pad_;
  std::vector<std::int32_t> order_;
  std::int64_t cut_samples_ = 0;
};

// SampleSettings::of_records. Reports through `log`, which must outlive the result, how many
// samples are cut.
RecordSamples labeled_samples(const LabelRules& rules, Log& log);

}  // namespace piton
