// The corpora of a run: opens and checks them, reads them in the run's order, detects changes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "data/corpus/corpus_files.h"
#include "data/corpus/indexed_dataset.h"
#include "data/samples/batch_source.h"
#include "data/samples/data_sets.h"
#include "data/samples/sample_source.h"
#include "text/tokenizer.h"
#include "train/run/run_plan.h"
#include "train/sinks/run_sink.h"

namespace piton {

// The ids for --mock-data: those of the tokenizer with its end of document, or without a tokenizer
// (null) those of the model's vocabulary, whose last id ends a document. Empty without the flag.
MockIds mock_ids(const PretrainOptions& options, std::int64_t vocabulary,
                 const Tokenizer* tokenizer);

// Samples that a program provides, in place of a corpus.
struct OwnSamples {
  std::string name;  // of the data, in checkpoints: a resume compares it
  using Make = std::function<std::shared_ptr<const SampleSource>(const SampleSettings& settings)>;
  Make make;             // the training samples. Empty: the run reads corpora
  Make make_validation;  // empty: the run evaluates nothing
  bool endless = false;  // their number says nothing: a resume does not compare it
};

// training_epochs() with the settings of a run.
TrainingEpochs epochs_of_run(const PretrainOptions& options, const RunPlan& plan,
                             const Tokenizer* tokenizer, double epochs);

// What a run reads.
struct RunInputs {
  OwnSamples own = {};     // in place of corpora
  CorpusFiles files = {};  // of which corpora were made for this run
};

class RunData {
 public:
  // Not collective. `tokenizer`: null if the run has none. `notes`: receives facts about splits,
  // and about corpora whose tokenizer is unknown; must outlive this. Throws Error(kUsage, kData)
  // for data that cannot be trained on.
  RunData(const PretrainOptions& options, const RunPlan& plan, const Tokenizer* tokenizer,
          Log& notes, const RunInputs& inputs = {});
  RunData(const RunData&) = delete;
  RunData& operator=(const RunData&) = delete;

  // This rank's micro-batches of the global batch after `consumed` samples. Throws Error(kData); if
  // a corpus was written to, the error of check_unchanged().
  std::vector<MicroBatch> training_batch(const Mesh& mesh, std::int64_t consumed);
  // The same of a validation or test set.
  struct HeldOut {
    std::string name;  // of one of several; ""
    std::unique_ptr<BatchSource> source;
    std::int64_t batches = 0;  // of one evaluation: --eval-iters, or those that have all samples
  };
  std::vector<MicroBatch> held_out_batch(const HeldOut& set, const Mesh& mesh,
                                         std::int64_t consumed);
  const std::vector<HeldOut>& held_out(HeldOutSet set) const {
    return set == HeldOutSet::kTest ? test_ : valid_;
  }
  // Those of training_batch() will be asked for in the next step: tells the system what will be
  // read, so that it comes from the disk meanwhile. Never throws an Error.
  void announce_training_batch(const Mesh& mesh, std::int64_t consumed);
  bool has(HeldOutSet set) const { return !held_out(set).empty(); }
  std::int64_t batches(HeldOutSet set) const;  // of one evaluation of all sets
  // Tokens of each row of the last training batch: fewer than --seq-length under
  // --variable-seq-lengths.
  std::int64_t row_length() const { return row_length_; }

  // Facts about the contents of the corpora, for a checkpoint; a resume compares them.
  std::map<std::string, std::string> facts() const;
  // The chat template that the conversations of the corpora have; "": the model's own.
  std::string chat_template(Log& notes) const;
  // "corpus PREFIX" for the key of a corpus; other keys unchanged.
  std::string name_of_fact(const std::string& key) const;
  // Throws Error(kData) with a corpus that was written to while it was read, so that it does not
  // reach a checkpoint unnoticed. A new modification time alone is not a change.
  void check_unchanged();

  // The first `count` samples of the run, or all if it has fewer, as `piton inspect samples` shows
  // them. `tokenizer`: null if the run has none.
  std::string first_samples(std::int64_t count, const Tokenizer* tokenizer);

  // A hash over the first sample of the run and the newest one that is read at `consumed`:
  // identifies the order of samples.
  std::string order_of_samples(std::int64_t consumed);

 private:
  void open(const PretrainOptions& options, const RunPlan& plan, const Tokenizer* tokenizer,
            const OwnSamples& own);
  void compare_contents();
  // None or empty: nothing is evaluated, or an Error(kData) if the run needs losses of it. Of
  // several sets, those that are empty are left out.
  void open_validation(const std::vector<NamedSource>& sets, const BatchRules& rules);
  // None or empty: the run has no test set.
  void open_test(const std::vector<NamedSource>& sets, const BatchRules& rules);
  // `whole`: all samples; what completes the last batch has no loss.
  HeldOut opened(const NamedSource& samples, BatchRules rules, bool whole) const;
  // Throws Error(kData); if a corpus was written to, the error of check_unchanged().
  std::vector<MicroBatch> batch(BatchSource& source, const BatchPlace& place);
  BatchPlace place_of(const Mesh& mesh, std::int64_t consumed, std::int64_t global_batch) const;
  BatchPlace training_place(const Mesh& mesh, std::int64_t consumed) const;

  BatchSizes batches_;  // of training; those of validation are whole
  std::int64_t global_batch_;
  std::int64_t micro_batch_;
  std::vector<std::int64_t> sizes_;  // of the micro-batches of training; empty: micro_batch_
  std::int64_t row_length_;
  std::unique_ptr<BatchSource> train_;
  std::vector<HeldOut> valid_, test_;
  bool whole_validation_;
  bool needs_validation_;
  std::int64_t eval_iters_;
  std::vector<std::shared_ptr<const IndexedDataset>> corpora_;
  std::vector<std::string> fingerprints_;  // of each
  CorpusFiles files_;
  CorpusFilesLog notes_;
  std::optional<bool> special_tokens_;  // around the texts of the corpora; unset: not known
  std::string own_samples_;             // fact about samples of a program; "": none
  std::vector<std::string> stamps_;     // of each, when its contents were last checked
};

}  // namespace piton
