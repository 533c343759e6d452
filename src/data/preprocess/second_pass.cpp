#include "data/preprocess/second_pass.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "data/corpus/indexed_dataset.h"
#include "data/instruct/conversation.h"
#include "data/instruct/packing.h"

namespace piton {
namespace {

// Documents in their new order.
std::vector<std::int64_t> order_of(const PreprocessOptions& options, const SecondPass& pass,
                                   std::int64_t documents) {
  const InstructOptions& instruct = options.instruct;
  if (instruct.mix_strategy == MixStrategy::kConcat) return mixed_order({documents}, {});
  const auto empty =
      std::find(pass.set_documents.begin(), pass.set_documents.end(), std::int64_t{0});
  if (empty != pass.set_documents.end()) {
    throw Error(Fault::kData, "--mix-strategy: data set {} of {} has no document to mix",
                empty - pass.set_documents.begin() + 1, pass.set_documents.size());
  }
  MixRules rules{.strategy = instruct.mix_strategy, .seed = instruct.seed};
  if (!instruct.interleave_probs.empty()) {
    rules.probabilities = mix_probabilities(instruct.interleave_probs, pass.set_documents.size(),
                                            instruct.mix_strategy);
  }
  return mixed_order(pass.set_documents, rules);
}

// Adds a sequence and returns its labels that teach, taken as labels.
std::int64_t add(std::span<const std::int32_t> ids, IndexedWriter& to) {
  to.add_sequence(ids);
  if (ids.empty()) return 0;
  return std::ssize(ids) - 1 - std::count(ids.begin() + 1, ids.end(), kIgnoredLabel);
}

std::int64_t copy_documents(const IndexedDataset& from, const std::vector<std::int64_t>& order,
                            IndexedWriter& to) {
  std::int64_t taught = 0;
  std::vector<std::int32_t> ids;
  for (const std::int64_t document : order) {
    for (auto s = from.document_start(document); s < from.document_start(document + 1); ++s) {
      ids.resize(static_cast<std::size_t>(from.length(s)));
      from.read(s, 0, ids);
      taught += add(ids, to);
    }
    to.end_document();
  }
  return taught;
}

struct Column {
  enum class Kind { kIds, kMask, kLabels };
  Kind kind;
  std::int32_t padding;
};

Column column_of(const PreprocessOptions& options, std::size_t index, std::int32_t pad) {
  const std::string& name = options.sample_columns.at(index);
  if (name == "input_ids") return {Column::Kind::kIds, pad};
  if (name == "labels") return {Column::Kind::kLabels, kIgnoredLabel};
  PITON_ASSERT(name == "attention_mask", "column {} cannot be packed", name);
  return {Column::Kind::kMask, options.instruct.neat_pack ? 0 : 1};
}

// Each pack is a document of one sequence.
std::int64_t copy_packs(const IndexedDataset& from,
                        const std::vector<std::vector<std::int64_t>>& packs, const Column& column,
                        const InstructOptions& options, IndexedWriter& to) {
  std::int64_t taught = 0;
  std::vector<std::int32_t> ids;
  for (const std::vector<std::int64_t>& pack : packs) {
    ids.assign(static_cast<std::size_t>(*options.seq_length), column.padding);
    std::size_t at = 0;
    for (std::size_t i = 0; i < pack.size(); ++i) {
      const auto length = static_cast<std::size_t>(from.length(pack[i]));
      const auto part = std::span(ids).subspan(at, length);
      if (column.kind == Column::Kind::kMask && options.neat_pack) {
        std::fill(part.begin(), part.end(), static_cast<std::int32_t>(i + 1));
      } else {
        from.read(pack[i], 0, part);
        // What precedes the first id of a sample is another sample.
        if (column.kind == Column::Kind::kLabels && i > 0) part[0] = kIgnoredLabel;
      }
      at += length;
    }
    taught += add(ids, to);
    to.end_document();
  }
  return taught;
}

}  // namespace

bool needs_second_pass(const PreprocessOptions& options) {
  return options.instruct.packs() || options.instruct.mix_strategy != MixStrategy::kConcat;
}

std::string first_pass_prefix(const PreprocessOptions& options) {
  return options.output_prefix + ".unpacked";
}

SecondPassCounts run_second_pass(const PreprocessOptions& options, const SecondPass& pass) {
  std::vector<IndexedDataset> corpora;
  for (const std::string& prefix : pass.from) corpora.push_back(IndexedDataset::open(prefix));
  const IndexedDataset& first = corpora.at(0);
  const std::vector<std::int64_t> order = order_of(options, pass, first.documents());
  std::vector<std::int64_t> sequences;  // in the new order
  std::vector<std::vector<std::int64_t>> packs;
  if (options.instruct.packs()) {
    std::vector<std::int32_t> lengths;
    for (const std::int64_t document : order) {
      for (auto s = first.document_start(document); s < first.document_start(document + 1); ++s) {
        sequences.push_back(s);
        lengths.push_back(first.length(s));
      }
    }
    packs = best_fit(lengths, *options.instruct.seq_length - 1);
    for (auto& pack : packs) {
      for (std::int64_t& one : pack) one = sequences[static_cast<std::size_t>(one)];
    }
  }
  SecondPassCounts counts;
  std::vector<IndexedWriter> writers;
  for (std::size_t i = 0; i < corpora.size(); ++i) {
    IndexedWriter& writer = writers.emplace_back(pass.to[i], corpora[i].type());
    const std::int64_t taught = options.instruct.packs()
                                    ? copy_packs(corpora[i], packs, column_of(options, i, pass.pad),
                                                 options.instruct, writer)
                                    : copy_documents(corpora[i], order, writer);
    if (pass.to[i].ends_with("labels_document")) counts.taught_tokens += taught;
  }
  counts.sequences = writers.at(0).position().sequences;
  for (IndexedWriter& writer : writers) writer.finish();
  return counts;
}

}  // namespace piton
