// A prompt's continuation as generate shows it: text as it comes, with stop words, and what is
// printed about its tokens.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/model.h"
#include "cli/commands/prompts.h"
#include "generate/constraints/grammar_constraint.h"

namespace piton::cli {

struct Continuation {
  // "" without a tokenizer; without stop word and special tokens. Appended to the prompt it is the
  // text of both, so it may begin with a space. Always UTF-8: bytes that are no
  // characters, such as those of one that the last token left unfinished, are U+FFFD.
  std::string text;
  std::vector<GeneratedToken> tokens;
  std::optional<double> score;  // of a beam
  bool is_cut = false;          // its constraint allows more, and does not allow the end here
};

class Continuer {
 public:
  // Throws Error(kUsage) for an empty stop word, and for stop words without a tokenizer. A word
  // that is a special token of the vocabulary ends a text too.
  Continuer(Model& model, const SamplingOptions& sampling, const BeamOptions& beams,
            const std::vector<std::string>& stop, bool echo = false);

  // All texts satisfy `constraint` from now on. Throws Error(kUsage) as constraint_grammar().
  void set_constraint(const ConstraintText& constraint);

  // Texts end where they have `tokens` with their prompt from now on. Throws Error(kUsage) for a
  // prompt of `prompts` that has as many.
  void set_longest(std::int64_t tokens, std::span<const Prompt> prompts);

  // From now on `interrupted` is asked after each token, and all texts end where it returns true;
  // beams do not ask it.
  void set_interruption(std::function<bool()> interrupted) {
    interrupted_ = std::move(interrupted);
  }

  // The prompt as text: as it was given, or what its ids decode to.
  std::string text_of(const Prompt& prompt) const;

  // For each prompt `samples` continuations, which differ in their draws (DecodingRequest::draw),
  // or as many beams, the best first. `show` gets the first text of the first prompt part by part,
  // as soon as it is certain; with beams the best one's when all is done. Prompts are continued at
  // the same time; with beams one after another.
  std::vector<std::vector<Continuation>> run(std::span<const Prompt> prompts,
                                             const std::function<void(const std::string&)>& show,
                                             std::int64_t samples = 1) const;

  // The JSON object about one prompt and its continuations, and what --logprobs prints otherwise: a
  // line a token.
  std::string json_line(const Prompt& prompt, const std::vector<Continuation>& all) const;
  std::string token_lines(const Continuation& one) const;

 private:
  bool is_stop(std::int32_t id) const;
  // Tokens that may follow this prompt.
  std::int64_t most_tokens(const Prompt& prompt) const;
  // The ids that the text follows: none of a model whose encoder reads the prompt.
  std::span<const std::int32_t> before(std::span<const std::int32_t> prompt) const;
  std::vector<std::vector<Continuation>> sampled(
      std::span<const Prompt> prompts, const std::function<void(const std::string&)>& show,
      std::int64_t samples) const;
  std::vector<Continuation> beams(const Prompt& prompt) const;
  std::string text_of(const Prompt& prompt, const std::vector<std::int32_t>& ids,
                      bool* stopped) const;

  Model& model_;
  const SamplingOptions& sampling_;
  const BeamOptions& beams_;
  bool echo_;  // the text of a JSON object begins with the prompt
  std::vector<std::string> stop_words_;
  std::vector<std::int32_t> stop_ids_;
  std::shared_ptr<const ByteGrammar> grammar_;  // null: every text
  std::shared_ptr<const TokenTree> tokens_;     // for it
  std::function<bool()> interrupted_;           // or none
  std::optional<std::int64_t> longest_;         // tokens of prompt and text
};

}  // namespace piton::cli
