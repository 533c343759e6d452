// What an evaluation needs of a model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "evaluate/answer_sampling.h"
#include "generate/continuations.h"
#include "text/tokenizer.h"

namespace piton {

// Where a generated text ends; it also ends where the model ends it.
struct TextEnd {
  std::int64_t max_new_tokens = 0;
  std::vector<std::string> stop;  // the text ends before these words
};

// How a model reads texts.
class TextReader {
 public:
  virtual ~TextReader() = default;

  virtual const Tokenizer& tokenizer() const = 0;
  // Whether a text gets the special tokens that the tokenizer puts before it.
  virtual bool adds_special_tokens() const = 0;
  // The most tokens that the model reads at once.
  virtual std::int64_t longest_sequence() const = 0;
  // Whether a larger --seq-length lets it read more.
  virtual bool reads_more_if_asked() const { return false; }
};

class EvaluatedModel : public TextReader {
 public:
  // Collective, as Model::score_continuations().
  virtual std::vector<ContinuationScore> score(std::span<const ContinuationRequest> requests) = 0;
  // A continuation of each prompt as text, without special tokens.
  virtual std::vector<std::string> generate(std::span<const std::vector<std::int32_t>> prompts,
                                            const TextEnd& end, const AnswerDraws& draws) = 0;
  // The reward of each text, of a reward model. Collective, as Model::rewards().
  virtual std::vector<double> rewards(std::span<const std::vector<std::int32_t>> texts) {
    PITON_ASSERT(false, "{} texts for a model that gives no rewards", texts.size());
    return {};
  }
  // Tokens that the model has computed for scores since it was made.
  virtual std::int64_t computed_tokens() const = 0;
};

}  // namespace piton
