// Options for the corpora of a run: how they are divided, blended and made into batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"

namespace piton {

enum class DataloaderType {
  kSingle,  // the corpus's own shuffled order, once
  kCyclic,  // a new permutation of all samples each epoch, without end
};

struct DataOptions {
  bool mock_data = false;
  std::vector<std::string> data_path;  // PREFIX..., or WEIGHT PREFIX WEIGHT PREFIX...
  std::vector<std::string> train_data_path;
  std::vector<std::string> valid_data_path;
  std::vector<std::string> test_data_path;
  bool multiple_validation_sets = false;
  // Each "NAME: WEIGHT START:END PREFIX, WEIGHT START:END PREFIX, ..."
  std::vector<std::string> train_weighted_split_paths;
  std::vector<std::string> valid_weighted_split_paths;
  std::vector<std::string> test_weighted_split_paths;
  std::string split = "969, 30, 1";
  std::optional<std::int64_t> train_data_exact_num_epochs;
  std::optional<std::string> data_cache_path;
  DataloaderType dataloader_type = DataloaderType::kSingle;
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  // Of instruction data
  bool is_instruction_dataset = false;
  bool is_pairwise_dataset = false;
  bool neat_pack = false;
  bool pack = false;
  bool no_shuffle = false;
  bool full_shuffle_instruction_dataset = false;
  bool padded_samples = false;
  bool variable_seq_lengths = false;
  std::int64_t pad_to_multiple_of = 8;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules experiment{.resume = Resume::kMustMatch};
    v(Option{"mock-data",
             "use generated sequences in place of corpora, like Megatron-core; divided into "
             "thirds, or by --split",
             experiment},
      mock_data);
    v(Option{"data-path",
             "prefixes of corpora, or weights and prefixes alternately; divided by --split",
             {.placeholder = "[WEIGHT] PREFIX"}},
      data_path);
    v(Option{"train-data-path",
             "corpora for training only; instead of --data-path and --split",
             {.placeholder = "[WEIGHT] PREFIX"}},
      train_data_path);
    v(Option{"valid-data-path", "corpora for validation only", {.placeholder = "[WEIGHT] PREFIX"}},
      valid_data_path);
    v(Option{"multiple-validation-sets",
             "each corpus of --valid-data-path is a separate set, evaluated by itself"},
      multiple_validation_sets);
    v(Option{"test-data-path", "corpora for the test only", {.placeholder = "[WEIGHT] PREFIX"}},
      test_data_path);
    v(Option{"train-weighted-split-paths",
             "shares of corpora to train on: \"NAME: WEIGHT START:END PREFIX, ...\"",
             {.placeholder = "TEXT"}},
      train_weighted_split_paths);
    v(Option{"valid-weighted-split-paths",
             "same for validation; each text is a separate set, evaluated by itself",
             {.placeholder = "TEXT"}},
      valid_weighted_split_paths);
    v(Option{"test-weighted-split-paths",
             "same for the test; each text is a separate set, evaluated by itself",
             {.placeholder = "TEXT"}},
      test_weighted_split_paths);
    v(Option{"split",
             "shares of training, validation and test, in sequences of each corpus",
             {.resume = Resume::kMustMatch, .placeholder = "A,B,C"}},
      split);
    v(Option{"train-data-exact-num-epochs",
             "number of times that the training corpora are read, exactly", experiment},
      train_data_exact_num_epochs);
    v(Option{"data-cache-path",
             "folder that stores sample orders for later runs, which verify them by content",
             {.placeholder = "DIR"}},
      data_cache_path);
    v(Option{"dataloader-type",
             "single: go through the shuffled order once; cyclic: a new permutation each epoch",
             experiment},
      Choice(dataloader_type,
             {{"single", DataloaderType::kSingle}, {"cyclic", DataloaderType::kCyclic}}));
    v(Option{"reset-position-ids", "restart positions after each end of document", experiment},
      reset_position_ids);
    v(Option{"reset-attention-mask",
             "hide earlier documents of the same sample from a token; of instruction data, earlier "
             "texts of a row",
             experiment},
      reset_attention_mask);
    v(Option{"eod-mask-loss",
             "leave the prediction after each end-of-document token out of the loss", experiment},
      eod_mask_loss);
    visit_instructions(v);
  }

  template <typename Visitor>
  void visit_instructions(Visitor&& v) {
    const OptionRules experiment{.resume = Resume::kMustMatch};
    v(Option{"is-instruction-dataset",
             "prefixes name instruction data: PREFIX_packed_{input_ids,attention_mask,labels}"
             "_document",
             experiment},
      is_instruction_dataset);
    v(Option{"is-pairwise-dataset",
             "instruction data are preferences: PREFIX_packed_{chosen,rejected}_{input_ids,labels}"
             "_document, or PREFIX_packed_{input_ids,labels,desirable}_document",
             experiment},
      is_pairwise_dataset);
    v(Option{"pack", "pack whole instruction samples into rows; they do not see each other",
             experiment},
      pack);
    v(
        Option{
            "neat-pack",
            "instruction data was packed with the numbers of its texts: they do not see each other",
            experiment},
        neat_pack);
    v(Option{"no-shuffle", "read instruction data in the order of its files", experiment},
      no_shuffle);
    v(Option{"full-shuffle-instruction-dataset",
             "shuffle the instruction samples of all epochs together, not each epoch", experiment},
      full_shuffle_instruction_dataset);
    v(Option{"padded-samples",
             "extend each epoch of instruction data to whole global batches by its first samples",
             experiment},
      padded_samples);
    v(Option{"variable-seq-lengths",
             "rows of instruction data are as long as the longest of their global batch",
             experiment},
      variable_seq_lengths);
    v(Option{"pad-to-multiple-of",
             "--variable-seq-lengths: round lengths up to a multiple of this",
             {.resume = Resume::kMustMatch, .placeholder = "N"}},
      pad_to_multiple_of);
  }
};

// Throws Error(kUsage) for options that contradict each other.
void check_data_options(const DataOptions& options);

}  // namespace piton
