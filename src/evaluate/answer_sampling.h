// Several answers to a question, drawn from the model.
#pragma once

#include <cstdint>
#include <vector>

#include "base/options/options.h"
#include "generate/sampling.h"

namespace piton {

struct AnswerSampling {
  std::int64_t answers = 1;  // to each question; 1: the greedy one
  double temperature = 0.2;
  std::int64_t top_k = 0;  // 0: all
  double top_p = 0.95;
  std::uint64_t seed = 1234;

  bool draws() const { return answers > 1; }

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"num-samples",
             "humaneval, mbpp: answers that are drawn for each question, for pass@k (1: the greedy "
             "one)",
             {.aliases = {"n-samples"}, .placeholder = "N"}},
      answers);
    v(Option{"temperature", "with --num-samples: divisor of the logits"}, temperature);
    v(Option{"top-k", "with --num-samples: draw from the k most likely tokens (0: all)"}, top_k);
    v(Option{"top-p", "with --num-samples: draw from the fewest tokens that reach p"}, top_p);
  }
  // Throws Error(kUsage) with the flag.
  void check() const;

  SamplingOptions options(std::int64_t max_new_tokens) const;
  // DecodingRequest::draw of an answer to a sample: no two texts have the same random numbers.
  static std::uint64_t draw(std::size_t sample, std::size_t answer) {
    return static_cast<std::uint64_t>(sample) * kMostAnswers + answer;
  }
  static constexpr std::int64_t kMostAnswers = 10'000;
};

// How the texts after some prompts are drawn.
struct AnswerDraws {
  AnswerSampling sampling;
  std::vector<std::uint64_t> draws;  // AnswerSampling::draw of each; empty: greedy
};

}  // namespace piton
