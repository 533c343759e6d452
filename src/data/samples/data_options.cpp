#include "data/samples/data_options.h"

#include <string_view>

#include "base/error.h"

namespace piton {
namespace {

void check_instruction_options(const DataOptions& options) {
  const auto refuse = [](bool given, std::string_view flag, std::string_view why) {
    if (given) throw Error(Fault::kUsage, "--{}: {}", flag, why);
  };
  if (!options.is_instruction_dataset) {
    constexpr std::string_view kNeeds = "is for --is-instruction-dataset; add that or leave it out";
    refuse(options.pack, "pack", kNeeds);
    refuse(options.neat_pack, "neat-pack", kNeeds);
    refuse(options.is_pairwise_dataset, "is-pairwise-dataset", kNeeds);
    refuse(options.no_shuffle, "no-shuffle", kNeeds);
    refuse(options.full_shuffle_instruction_dataset, "full-shuffle-instruction-dataset", kNeeds);
    refuse(options.padded_samples, "padded-samples", kNeeds);
    refuse(options.variable_seq_lengths, "variable-seq-lengths", kNeeds);
    return;
  }
  constexpr std::string_view kCorpora =
      "is for corpora of running text; leave it or --is-instruction-dataset out";
  refuse(options.mock_data, "mock-data", kCorpora);
  refuse(options.eod_mask_loss, "eod-mask-loss", kCorpora);
  refuse(options.is_pairwise_dataset && options.neat_pack, "neat-pack",
         "preferences are not packed by preprocess; use --pack");
  refuse(options.is_pairwise_dataset && options.reset_attention_mask, "reset-attention-mask",
         "answers of preferences do not see each other anyway; leave it out");
  refuse(options.is_pairwise_dataset && options.reset_position_ids, "reset-position-ids",
         "positions of preferences start at each answer; leave it out");
  refuse(options.padded_samples && options.pack, "padded-samples",
         "cannot be used with --pack, which makes other rows of them; leave one of them out");
  refuse(options.no_shuffle && options.full_shuffle_instruction_dataset, "no-shuffle",
         "contradicts --full-shuffle-instruction-dataset; leave one of them out");
}

// Than the default. Spaces say nothing.
bool divides_otherwise(const DataOptions& options) {
  const auto without_spaces = [](std::string text) {
    std::erase(text, ' ');
    return text;
  };
  return without_spaces(options.split) != without_spaces(DataOptions().split);
}

}  // namespace

void check_data_options(const DataOptions& options) {
  check_instruction_options(options);
  const bool common = !options.data_path.empty();
  const bool apart = !options.train_data_path.empty() || !options.valid_data_path.empty() ||
                     !options.test_data_path.empty();
  const bool weighted = !options.train_weighted_split_paths.empty() ||
                        !options.valid_weighted_split_paths.empty() ||
                        !options.test_weighted_split_paths.empty();
  if (common + apart + weighted > 1) {
    throw Error(Fault::kUsage,
                "data: got more than one of --data-path, --train-data-path (and its like) and "
                "--train-weighted-split-paths (and its like); use one way to name corpora");
  }
  if (apart + weighted > 0 && divides_otherwise(options)) {
    throw Error(
        Fault::kUsage,
        "--split: divides --data-path, and {} names each set by itself; leave one of them "
        "out",
        apart ? "--train-data-path (and its like)" : "--train-weighted-split-paths (and its like)");
  }
  if (options.mock_data && common + apart + weighted > 0) {
    throw Error(Fault::kUsage,
                "--mock-data: corpora are named too; leave out --mock-data, or --data-path and its "
                "like");
  }
  if (options.train_weighted_split_paths.size() > 1) {
    throw Error(Fault::kUsage,
                "--train-weighted-split-paths: got {} texts, training reads one set; put the parts "
                "into one text, divided by commas",
                options.train_weighted_split_paths.size());
  }
  if (options.multiple_validation_sets && options.valid_data_path.empty()) {
    throw Error(Fault::kUsage,
                "--multiple-validation-sets: the sets are the corpora of --valid-data-path, which "
                "is not given{}",
                weighted ? "; each text of --valid-weighted-split-paths is a set without this flag"
                         : "; give it, or leave this out");
  }
  if (options.train_data_exact_num_epochs && *options.train_data_exact_num_epochs < 1) {
    throw Error(Fault::kUsage, "--train-data-exact-num-epochs: got {}, wanted 1 or more",
                *options.train_data_exact_num_epochs);
  }
}

}  // namespace piton
