// The samples of a task as token ids.
//
// As in lm-evaluation-harness 0.4 (TemplateLM._encode_pair, HFLM): a context and its continuation
// are encoded together and divided after as many tokens as the context has alone; white space at
// the end of the context belongs to the continuation. Without a context the continuation follows
// the token that begins a text, or else the one that ends it. What is too long is cut on the left.
// A conversation of kPreference has the tokens of its template alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/evaluated_model.h"
#include "tasks/task_samples.h"

namespace piton {

struct EvaluationRequest {
  std::size_t sample = 0;    // index in TaskData::samples
  std::size_t slot = 0;      // continuation of the sample, window of its text, or answer to it
  ContinuationRequest text;  // of kGeneration, kPreference: all of it given
  bool cut = false;          // tokens were cut off on the left
};

struct RequestRules {
  // kPerplexity: tokens by which windows advance, each with as much context as fits. 0: windows
  // without common tokens.
  std::int64_t overlapping_eval = 0;
  std::int64_t max_new_tokens = 0;  // kGeneration: room that is left for them
  std::int64_t answers = 1;         // kGeneration: to each question
};

// Throws Error(kUsage) if the answer to a task that generates leaves no room for a prompt.
void check_room(const TextReader& model, const Task& task, std::int64_t max_new_tokens);

// The requests of all samples, in their order. Throws Error(kData) for a continuation that has no
// token, or more than the model reads; as check_room().
std::vector<EvaluationRequest> make_requests(const TextReader& model, const TaskData& data,
                                             const RequestRules& rules);

}  // namespace piton
