// Instruction data of one prefix, as MindSpeed-LLM and AscendSpeed store it: three corpora of as
// many sequences, sequence i of each being one sample.
//
//   PREFIX_packed_input_ids_document       ids x[0..n)
//   PREFIX_packed_labels_document          labels y[0..n): x[i], or -100 where nothing is learned
//   PREFIX_packed_attention_mask_document  m[0..n): 1, or 0 for padding. Under neat_pack the number
//                                          of the packed text, 1, 2, ..., and 0 for padding after
//                                          them
//
// A sample has the tokens x[0..n-1) and the labels y[1..n), cut on the right to s of them. Further:
//   padding     up to s, and tokens of mask 0: nothing is learned, and only padding attends to it
//   segments    under neat_pack a text each; the last token of a text has no label, as the next
//               token belongs to another one. Under reset_attention_mask what an end of document
//               ends, each; labels are those of the files
//   positions   0, 1, ..., from 0 again at each packed text and at the padding that was added;
//               under reset_position_ids also after each end of document within a text
//
// The order: each epoch takes all samples of the split, shuffled; epochs follow until there are as
// many as wanted. All shuffles come from one numpy RandomState(seed). full_shuffle shuffles the
// list of all epochs once more. (There MindSpeed-LLM draws from Python's generator, whose state
// depends on the program, so that order is not the same as its.) An epoch may be extended to a
// multiple of the global batch by its first samples in file order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/samples/sample_source.h"

namespace piton {

// The three corpora of one prefix.
struct InstructionFiles {
  std::shared_ptr<const IndexedDataset> ids;
  std::shared_ptr<const IndexedDataset> attention_mask;
  std::shared_ptr<const IndexedDataset> labels;
  std::string prefix;
  std::vector<std::int32_t> lengths;  // [sequences]

  // PREFIX_packed_input_ids_document and so on, in the order of the members.
  static std::array<std::string, 3> prefixes(const std::string& prefix);
  // The corpora must be those of prefixes(). Throws Error(kData) with the first two corpora, or the
  // first sample, that do not belong together, and with the first sample of fewer than 2 ids.
  InstructionFiles(std::string prefix, std::array<std::shared_ptr<const IndexedDataset>, 3> three);
};

// How samples are made of the files.
struct InstructionRules {
  std::int64_t sequence = 0;  // s
  std::int32_t pad = 0;
  bool neat_pack = false;
  std::optional<std::int32_t> eod = {};  // set: reset_position_ids
  // Set: reset_attention_mask, of rows that were packed without the numbers of their texts
  std::optional<std::int32_t> divides = {};
};

// Determines the order.
struct InstructionOrder {
  std::int64_t first = 0;  // the split: sequences [first, end) of the corpora
  std::int64_t end = 0;
  std::optional<std::int64_t> samples = {};  // wanted; absent: one epoch
  std::optional<std::int64_t> epochs = {};   // exactly this many; `samples` is then ignored
  std::uint32_t seed = 1234;
  bool shuffle = true;
  bool full_shuffle = false;
  std::int64_t multiple = 1;                // an epoch has a multiple of so many samples
  std::vector<std::int32_t> left_out = {};  // sequences of the split to leave out, ascending
};

// The sequences of [first, end) that are cut to s tokens and keep no label: nothing is learned from
// them. Ascending.
std::vector<std::int32_t> cut_without_label(const InstructionFiles& files, std::int64_t first,
                                            std::int64_t end, std::int64_t sequence);

// How many of the sequences of [first, end) have more than s tokens.
std::int64_t longer_samples(const InstructionFiles& files, std::int64_t first, std::int64_t end,
                            std::int64_t sequence);

// The numbers of the sequences, in order. Throws Error(kUsage) for more than fit into memory.
// Asserts that the split has a sequence that is not left out.
std::vector<std::int32_t> instruction_order(const InstructionOrder& order);

class InstructionDataset final : public SampleSource {
 public:
  InstructionDataset(std::shared_ptr<const InstructionFiles> files, const InstructionRules& rules,
                     const InstructionOrder& order);

  std::int64_t size() const override { return static_cast<std::int64_t>(order_.size()); }
  std::int64_t sequence() const override { return rules_.sequence; }
  // Throws Error(kData) that names the sample, if its attention mask is not as above.
  void sample(std::int64_t index, Sample& sample) const override;
  std::int64_t longest(std::int64_t index) const override;
  void announce(std::int64_t index) const override;

 private:
  std::int32_t number(std::int64_t index) const;
  void apply_mask(std::int32_t number, const std::vector<std::int32_t>& mask, Sample& sample) const;

  std::shared_ptr<const InstructionFiles> files_;
  InstructionRules rules_;
  std::vector<std::int32_t> order_;
};

// Appends padding up to `sequence` tokens. If there is any, gives the sample segments.
void pad_sample(std::int32_t pad, std::int64_t sequence, Sample& sample);

}  // namespace piton
