// The corpora of a run: opened and checked by its options, read in its order, watched for changes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "data/corpus/indexed_dataset.h"
#include "data/samples/batch_source.h"
#include "data/samples/data_sets.h"
#include "text/tokenizer.h"
#include "train/run_plan.h"

namespace piton {

// What --mock-data makes up: the ids of the tokenizer (null where there is none) and its end of
// documents, else those of a model's vocabulary, whose last id then ends a document. Empty without
// the flag.
MockIds mock_ids(const PretrainOptions& options, std::int64_t vocabulary,
                 const Tokenizer* tokenizer);

class RunData {
 public:
  // Touches no other rank. `tokenizer`: null where the run has none. `notes`: what a user should
  // know of splits and of corpora whose tokenizer is not known. Throws Error(kUsage, kData) for
  // what cannot be trained on.
  RunData(const PretrainOptions& options, const RunPlan& plan, const Tokenizer* tokenizer,
          Log& notes);

  // This rank's micro-batches of the global batch after `consumed` samples. Throws Error(kData); of
  // a corpus that was written to, the error of check_unchanged().
  std::vector<MicroBatch> training_batch(const Mesh& mesh, std::int64_t consumed);
  std::vector<MicroBatch> validation_batch(const Mesh& mesh, std::int64_t consumed);
  bool has_validation() const { return valid_ != nullptr; }

  // What a checkpoint stores of the corpora's contents, and a resume compares.
  std::map<std::string, std::string> facts() const;
  // "corpus PREFIX" for the key of a fact that is of a corpus; else the key.
  std::string name_of_fact(const std::string& key) const;

  // A corpus that somebody wrote to while it was read must not reach a checkpoint unnoticed: throws
  // Error(kData) naming it. A time of change alone is no change.
  void check_unchanged();

  // A hash over the first sample of the run and the newest that is read at `consumed`: says in
  // which order samples came.
  std::string order_of_samples(std::int64_t consumed);

 private:
  std::vector<MicroBatch> batch(BatchSource& source, const Mesh& mesh, std::int64_t consumed,
                                std::int64_t global_batch);

  BatchSizes batches_;  // of training; those of validation are whole
  std::int64_t global_batch_;
  std::int64_t micro_batch_;
  std::unique_ptr<BatchSource> train_;
  std::unique_ptr<BatchSource> valid_;
  std::vector<std::shared_ptr<const IndexedDataset>> corpora_;
  std::vector<std::string> fingerprints_;  // of each
  std::vector<std::string> stamps_;        // of each, when its contents were last known
};

}  // namespace piton
