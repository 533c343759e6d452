// Options of `piton preprocess` for instruction data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "base/options/problem_types.h"
#include "data/instruct/mixing.h"
#include "data/instruct/thinking.h"

namespace piton {

struct InstructOptions {
  std::string handler_name;
  std::string prompt_type;
  std::string prompt_type_path;
  Thinking thinking = Thinking::kAsGiven;
  std::optional<std::int64_t> cutoff_len;
  std::optional<std::int64_t> seq_length;
  bool pack = false;
  bool neat_pack = false;
  std::optional<std::int64_t> max_samples;
  MixStrategy mix_strategy = MixStrategy::kConcat;
  std::string interleave_probs;
  std::uint64_t seed = 1234;
  std::vector<std::string> label_names;
  std::optional<std::int64_t> num_labels;
  std::optional<std::string> problem_type;

  // Whether the records are conversations, although no handler is named.
  bool asks_for_answers() const {
    return !prompt_type.empty() || !prompt_type_path.empty() || thinking != Thinking::kAsGiven ||
           cutoff_len || seq_length || pack || neat_pack;
  }
  bool packs() const { return pack || neat_pack; }

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"handler-name",
             "how records are read: auto (from the first record), or a handler of AscendSpeed or "
             "MindSpeed-LLM; see docs/instruction_data.md (default: texts, or auto with an option "
             "of "
             "this group)",
             {.placeholder = "NAME"}},
      handler_name);
    v(Option{"prompt-type",
             "named template of the prompt: qwen, llama2, default, empty, ... (default: the chat "
             "template in the tokenizer's folder)",
             {.placeholder = "NAME"}},
      prompt_type);
    v(Option{"prompt-type-path",
             "JSON file with the template that --prompt-type names",
             {.placeholder = "FILE"}},
      prompt_type_path);
    v(
        Option{
            "enable-thinking",
            "reasoning templates (qwen3): learn the thoughts of answers, and an empty one where "
            "there is none (true, or no value), remove thoughts (false), or learn those that there "
            "are (none, the default)"},
        thinking);
    v(Option{"cutoff-len",
             "cut longer samples to this number of tokens, as LlamaFactory does",
             {.placeholder = "N"}},
      cutoff_len);
    v(Option{"seq-length",
             "leave out samples that have this number of tokens or more; the length of packed ones",
             {.placeholder = "N"}},
      seq_length);
    v(Option{"pack", "join samples to sequences of --seq-length tokens (best fit)"}, pack);
    v(Option{"neat-pack",
             "pack, number the samples of a sequence in attention_mask, and cut longer ones"},
      neat_pack);
    v(Option{"max-samples",
             "take at most this number of samples of each --input and --datasets",
             {.placeholder = "N"}},
      max_samples);
    v(Option{"mix-strategy",
             "order of several data sets: one after another, or in turns until the first "
             "(interleave_under) or the last (interleave_over) is exhausted"},
      Choice(mix_strategy, {{"concat", MixStrategy::kConcat},
                            {"interleave_under", MixStrategy::kUnder},
                            {"interleave_over", MixStrategy::kOver}}));
    v(Option{"interleave-probs",
             "with an interleaving --mix-strategy: draw the next data set with these probabilities",
             {.placeholder = "P,P,..."}},
      interleave_probs);
    v(Option{"seed", "seed of --interleave-probs"}, seed);
    v(Option{"label-names",
             "TextLabelHandler: names of the labels in their order, with spaces or commas between "
             "them (default: records have numbers)",
             {.placeholder = "NAME"}},
      label_names);
    v(Option{"num-labels",
             "TextLabelHandler: how many labels there are, if they have no names; 1: each label is "
             "a number, for regression",
             {.placeholder = "N"}},
      num_labels);
    v(Option{"problem-type",
             "TextLabelHandler: multi_label_classification: a record has a list of labels; "
             "regression: a number",
             {.choices = {kOneOfLabels, kSeveralLabels, kRegression}}},
      problem_type);
  }
};

}  // namespace piton
