// NeedleBench, the retrieval of a single needle, as MindSpeed-LLM asks it: a sentence (the needle)
// is put into a long text (the haystack), and the model is asked for what the sentence says.
//
//   needles.jsonl            language (English or Chinese), needle, retrieval_question, arg2 (the
//                            keyword of the right answer)
//   PaulGrahamEssays.jsonl   text; the haystack of the needles in English
//   zh_finance.jsonl         text; the haystack of the needles in Chinese
//   cl100k_base.tiktoken     not required: the tokens in which MindSpeed-LLM counts lengths
//
// MindSpeed-LLM 2.0 (eval_impl/needlebench_single.py, needlebench_eval.py), which has it from
// OpenCompass. For each repetition c = 0, 1, ... Python's generator with the seed c shuffles the
// texts, in the order that repetition c - 1 left, and the same seed chooses the needle. The texts
// are joined and cut to a number of tokens, and the needle is put after a share of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/task_samples.h"
#include "text/tokenizer.h"

namespace piton {

struct Needle {
  std::string text;
  std::string question;
  std::string keyword;  // of a right answer
};

struct Haystack {
  std::string name;  // of the file, without extension
  bool chinese = false;
  std::vector<std::string> texts;
  std::vector<Needle> needles;  // in the language of the texts
};

struct NeedleFiles {
  std::vector<Haystack> haystacks;
  std::unique_ptr<Tokenizer> tokenizer;  // of cl100k_base.tiktoken; null: there is none
  NeedleOptions options;
  std::optional<std::int64_t> max_samples;  // of each length and depth
};

// Reads the folder. The samples are made later, with the tokenizer of a model. Throws Error(kUsage)
// for files that are not there and options out of range, Error(kData) for other records.
TaskData load_needlebench(const Task& task, const TaskDataOptions& options);

// Makes the samples of what load_needlebench() returned; a subject is a haystack, a length and a
// depth, such as PaulGrahamEssays_1000_5.263. Without a tokenizer file `model_tokenizer` cuts the
// texts. `longest`: tokens that the model reads, which choose the lengths unless the options do.
// Throws Error(kUsage) if they do not.
void make_needle_samples(TaskData& data, const Tokenizer& model_tokenizer, std::int64_t longest);

// The share of the score of an answer: 1 if it has the keyword; else a fifth of the likeness to the
// needle, 1 - (Levenshtein distance / length of the longer one), both without white space, the
// answer cut at about the length of the needle. Lengths are in characters.
double needle_score(std::string_view answer, std::string_view needle, std::string_view keyword);

}  // namespace piton
