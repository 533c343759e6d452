#include "evaluate/answer_sampling.h"

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {

void AnswerSampling::check() const {
  check_range("--num-samples", answers, 1, kMostAnswers);
  if (!draws()) return;
  if (temperature == 0)
    throw Error(Fault::kUsage,
                "--temperature: got 0 with --num-samples {}, wanted more: all answers would be the "
                "greedy one",
                answers);
  options(1).check();
}

SamplingOptions AnswerSampling::options(std::int64_t max_new_tokens) const {
  if (!draws()) return {.max_new_tokens = max_new_tokens, .greedy = true};
  return {.max_new_tokens = max_new_tokens,
          .temperature = temperature,
          .top_k = top_k,
          .top_p = top_p,
          .seed = seed};
}

}  // namespace piton
