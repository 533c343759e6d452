// The training, validation and test sets of a run: corpora divided, weighted and blended by
// Megatron-core 0.16.1's rules.
//
//   split bounds   each cumulative share x sequences, rounded half to even. If a corpus has at most
//                  32 sequences and a share of training or validation rounds to nothing, each
//                  cumulative share x tokens: a book is cut, not given to one set whole
//   one prefix     without a weight: asks for N samples; with a weight: a blend of one
//   weights        part i is built for ceil(ceil(N w) 1.005) samples, the blend has sum ceil(N w)
//   no weights     several prefixes: one epoch of each, blended by length, at most N samples
//   --mock-data    MockCorpus, divided 1,1,1 if --split is the default
//   --is-instruction-dataset   the same for InstructionDataset, in samples in place of sequences,
//                  which are never cut; under --pack for the windows of PackedSamples
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "data/corpus/indexed_dataset.h"
#include "data/samples/data_options.h"
#include "data/samples/instruction_dataset.h"
#include "data/samples/pretraining_samples.h"
#include "data/samples/sample_source.h"

namespace piton {

// Samples wanted of each set.
struct SampleCounts {
  std::int64_t train = 0;
  std::int64_t valid = 0;
  std::int64_t test = 0;
};

// train_iters x b; (train_iters / eval_interval + 1) x eval_iters x b; eval_iters x b.
SampleCounts sample_counts(std::int64_t train_iters, std::int64_t eval_interval,
                           std::int64_t eval_iters, std::int64_t global_batch);

struct NamedSource {
  std::string name;
  std::shared_ptr<const SampleSource> source;  // size 0 if the split is empty
};

struct DataSets {
  std::shared_ptr<const SampleSource> train;  // null without training data
  std::vector<NamedSource> valid;  // one, or one for each --valid-weighted-split-paths, or for each
                                   // corpus with --multiple-validation-sets
  std::vector<NamedSource> test;
  std::vector<std::string> prefixes;  // of every corpus, in the order named; of instruction data
                                      // only those of ids
  std::vector<std::int64_t> tokens;   // of each of them
  std::vector<std::string> fingerprints;  // of each corpus, for the checkpoint; one for mock data
  std::vector<std::shared_ptr<const IndexedDataset>> corpora;  // the same
};

// For --mock-data: its ids are 0 .. vocabulary - 1.
struct MockIds {
  std::int64_t vocabulary = 0;
  std::int32_t end_of_document = 0;
};

// Documents [first, end) of a corpus, which are the share of a set.
struct DocumentShare {
  std::shared_ptr<const IndexedDataset> corpus;
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::optional<std::int64_t> samples;  // to make of them; absent: as many as one epoch gives
  std::string set;                      // "train", ..., for messages
};
using DocumentSamples =
    std::function<std::shared_ptr<const SampleSource>(const DocumentShare& share)>;

// Records of a prefix that are in several corpora, sequence i of each being of record i; those that
// `order` says are the share of a set.
struct RecordShare {
  std::string prefix;
  std::vector<std::shared_ptr<const IndexedDataset>>
      columns;  // as RecordSamples::prefixes has them
  InstructionOrder order;
  std::int32_t pad = 0;
  std::string set;  // "train", ..., for messages
};
struct RecordSamples {
  // The corpora of a prefix; that of the tokens is the first.
  std::function<std::vector<std::string>(const std::string& prefix)> prefixes;
  std::function<std::shared_ptr<const SampleSource>(const RecordShare& share)> open;
};

// What a run asks of its samples.
struct SampleSettings {
  std::int64_t sequence = 0;  // tokens of a sample
  std::uint32_t seed = 0;     // of the order of the samples
  SampleCounts counts;
  MockIds mock;
  DocumentRules documents = {};
  std::int64_t global_batch = 1;  // samples of a step: for --padded-samples
  bool whole_validation = false;  // one epoch of all but training, whatever the weights
  // Makes the samples of a share that is not empty. Corpora are then divided by documents, and
  // never cut within one. Empty: rows of running text, of corpora that are divided by sequences.
  DocumentSamples of_documents = {};
  // Makes the samples of instruction data in other corpora than answers and preferences have.
  // Empty: of those.
  RecordSamples of_records = {};
  bool for_rewards = false;  // of answers: data/samples/preference_dataset.h
};

// Opens all corpora. Warns through `log` about a split that has a share but rounds to nothing.
// Throws Error(kUsage) for options that contradict each other or are malformed (all shares zero,
// weights not above zero, missing names), Error(kData) for corpora that cannot be used and if
// training needs samples that do not exist.
DataSets open_data_sets(const DataOptions& options, const SampleSettings& settings, Log& log);

// Some epochs of the training data, as --num-train-epochs means them.
struct TrainingEpochs {
  std::int64_t samples = 0;  // of all of them
  // The order begins with these samples also if more are asked for, so that those of the next epoch
  // can complete the last batch. Not where all epochs are shuffled together.
  bool can_continue = true;
  // A blend without weights has one epoch of each corpus: the value of
  // --train-data-exact-num-epochs that gives these samples, and the next ones.
  std::optional<std::int64_t> exact_epochs = {};
};

// Samples of `epochs` readings of so many: rounded up.
std::int64_t samples_in(double samples, double epochs);

// Opens the training data to count it. Orders of running text are not made for this. Errors as of
// open_data_sets(), and Error(kUsage) for data that has no epochs: blends by weights, --mock-data.
TrainingEpochs training_epochs(const DataOptions& options, const SampleSettings& settings,
                               double epochs);

}  // namespace piton
