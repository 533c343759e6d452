// Preference data of one prefix. A sample is a row with two answers, which do not see each other:
// each is a segment with its question, with positions from 0, and token i of it has the label of
// token i + 1.
//
//   pairs      PREFIX_packed_chosen_input_ids_document    ids, as instruction data has them
//              PREFIX_packed_chosen_labels_document       ids, or -100 where nothing is learned
//              PREFIX_packed_rejected_input_ids_document
//              PREFIX_packed_rejected_labels_document
//   judged     PREFIX_packed_input_ids_document
//   alone      PREFIX_packed_labels_document
//              PREFIX_packed_desirable_document           one value: 1 for a good answer, 0 for bad
//
// Sequence i of each file belongs to sample i. The second text of an answer that is judged alone is
// its question with the answer of the next sample in the file (KTO estimates a divergence with it);
// after the last sample comes the first one of the split.
//
// Texts that do not fit into a row together are cut, each to half of a row, by the rule of
// LlamaFactory: the longer one of question and answer at its end, both in proportion if both are
// long (data/instruct/conversation_encoder.h). The two answers of a pair keep as many ids of the
// question, and no answer is without its question.
//
// For rewards, which are read at the last id of a text, all ids are tokens; otherwise the last one
// is only a label.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/samples/instruction_dataset.h"
#include "data/samples/sample_source.h"

namespace piton {

struct PreferenceFiles {
  std::string prefix;
  std::vector<std::shared_ptr<const IndexedDataset>> columns;  // as prefixes()

  // The corpora of PREFIX, in the order above: four, or three. Throws Error(kData) if there are
  // neither.
  static std::vector<std::string> prefixes(const std::string& prefix);
  // The corpora must be those of prefixes(). Throws Error(kData) with two files that do not belong
  // together.
  PreferenceFiles(std::string prefix, std::vector<std::shared_ptr<const IndexedDataset>> columns);

  bool pairs() const { return columns.size() == 4; }
  std::int64_t samples() const { return columns[0]->sequences(); }
};

struct PreferenceRules {
  std::int64_t sequence = 0;  // s
  std::int32_t pad = 0;
  bool for_rewards = false;  // the last id of a text is a token too
};

class PreferenceDataset final : public SampleSource {
 public:
  // Reads all samples of the split. Throws Error(kData) that names the first sample that has no
  // room in a row even if it is cut, has an answer without a label, two equal answers, or a
  // judgment that is neither 0 nor 1. `order`: as of InstructionDataset.
  PreferenceDataset(std::shared_ptr<const PreferenceFiles> files, const PreferenceRules& rules,
                    const InstructionOrder& order);

  std::int64_t size() const override { return static_cast<std::int64_t>(order_.size()); }
  std::int64_t sequence() const override { return rules_.sequence; }
  void sample(std::int64_t index, Sample& sample) const override;
  std::int64_t longest(std::int64_t index) const override;
  void announce(std::int64_t index) const override;

  // How many samples of the split are cut, and the first of them.
  std::int64_t cut_samples() const { return cut_samples_; }
  std::optional<std::int32_t> first_cut() const { return first_cut_; }

 private:
  struct Text {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;
    AnswerRole role = AnswerRole::kChosen;

    std::int64_t question();  // ids before the first label
  };
  std::int64_t tokens_of(const Text& text) const;
  bool fit(const std::vector<Text>& texts) const;
  void cut(std::vector<Text>& texts) const;
  std::int32_t number(std::int64_t index) const;
  Text text(std::int32_t number, std::size_t column) const;
  std::vector<Text> whole_texts(std::int32_t number) const;
  std::vector<Text> texts(std::int32_t number) const;  // that fit into a row
  void check(std::int32_t number);

  std::shared_ptr<const PreferenceFiles> files_;
  PreferenceRules rules_;
  std::int32_t first_;
  std::int32_t end_;
  std::vector<std::int32_t> lengths_;  // tokens of samples first_ to end_ - 1
  std::vector<std::int32_t> order_;
  std::int64_t cut_samples_ = 0;
  std::optional<std::int32_t> first_cut_;
};

}  // namespace piton
