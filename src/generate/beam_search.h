// Decoding by beams: several continuations side by side, of which the likeliest are kept.
//
// Gives what the beam search of Transformers 5 gives: of 2 B candidates, or (1 + n) B with n ids
// that end a text, the first B that end are finished, the first B that do not continue. With B
// finished ones early stopping says when it is over.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/options/options.h"
#include "generate/inference.h"
#include "generate/sampling.h"

namespace piton {

enum class EarlyStopping : std::uint8_t {
  kNo,     // if the best running beam, by its length as it is now, is no better than the worst
  kYes,    // at once
  kNever,  // if the best running beam cannot become better, also not at the greatest length
};

struct BeamOptions {
  std::int64_t num_beams = 1;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kNo;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"num-beams", "number of continuations that beam search follows (1: no beam search)"},
      num_beams);
    v(Option{"length-penalty",
             "power of the length by which the log-probability of a beam is divided"},
      length_penalty);
    v(Option{"early-stopping",
             "when beam search is over, once as many beams have ended as are followed: false: if "
             "the best other one is not better at its length; true: at once; never: if no other "
             "one can become better"},
      Choice(early_stopping, {{"false", EarlyStopping::kNo},
                              {"true", EarlyStopping::kYes},
                              {"never", EarlyStopping::kNever}}));
  }
  // Throws Error(kUsage) naming the flag.
  void check(std::int64_t vocabulary) const;
};

struct BeamPrompt {
  std::span<const std::int32_t> ids;     // that are continued
  std::span<const std::int32_t> source;  // what the encoder of a model with one reads; else empty
};

struct Beam {
  std::vector<LikelyToken> tokens;
  double score = 0;  // sum of log-probabilities / length^length_penalty
};

// Where a beam ends; it also ends at the model's longest sequence.
struct BeamEnd {
  std::int64_t max_new_tokens = 0;
  std::vector<std::int32_t> ids;
  std::function<bool(std::span<const LikelyToken>)> ends;  // is asked about each candidate
};

// The B best continuations of `prompt.ids`, the best first; fewer only where there are no more.
// Collective over the model's ranks, as generate() is, and throws as it does.
std::vector<Beam> beam_search(Inference& inference, const BeamPrompt& prompt,
                              const BeamOptions& options, const BeamEnd& end);

}  // namespace piton
