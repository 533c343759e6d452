// Speculative decoding of a loaded model: who guesses the next tokens (generate/drafts.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/model.h"
#include "base/options/options.h"
#include "generate/drafts.h"

namespace piton {

struct SpeculationOptions {
  std::int64_t prompt_lookup = 0;
  std::int64_t draft_mtp = 0;
  std::string draft_model;
  std::optional<std::int64_t> draft_tokens;
  std::string draft_quantize;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"prompt-lookup",
             "guess up to N next tokens from earlier places of the text with the same last tokens, "
             "and check the guesses in one pass: the texts are the same, and where they repeat "
             "their prompts they come faster (0: no guesses)",
             {.placeholder = "N"}},
      prompt_lookup);
    v(Option{"draft-mtp",
             "guess up to N next tokens with the model's first layer that predicts later tokens "
             "(--mtp-num-layers in training; folders of DeepSeek-V3 and GLM-4.5), which is loaded "
             "then; the texts are the same (0: no guesses)",
             {.placeholder = "N"}},
      draft_mtp);
    v(Option{"draft-model",
             "a smaller model with the same vocabulary, which guesses the next tokens; the texts "
             "are the same",
             {.placeholder = "DIR"}},
      draft_model);
    v(Option{"draft-tokens", "number of tokens that --draft-model guesses at a time (4)"},
      draft_tokens);
    v(Option{"draft-quantize",
             "as --quantize, of --draft-model (default: as it is stored; --quantize and "
             "--kv-cache-dtype are of the model alone)",
             {.choices = InferenceOptions::code_formats()}},
      draft_quantize);
  }
  // The flags of those who guess: one, or none.
  std::vector<const char*> flags() const;
  // Throws Error(kUsage) naming the flag.
  void check() const;
};

// Owns the draft model, if there is one.
class Speculation {
 public:
  // Gives `model` a drafter, for engines that it makes from now on; `model` must not be used after
  // this object is gone. The draft model has the ranks of the model, and its own types. `layout`:
  // the model was loaded with it. Throws Error(kUsage) if the vocabularies differ or the model has
  // no layer that predicts later tokens, and as Model::load(). Collective, as Model::load().
  Speculation(const Machine& machine, const SpeculationOptions& options, Model& model,
              const InferenceOptions& layout);
  ~Speculation();

 private:
  std::unique_ptr<Model> draft_model_;
  std::unique_ptr<DecodingEngine> engine_;  // of the draft model
  std::unique_ptr<Drafter> drafter_;
};

// Says how many guesses of an engine were right, if there were any.
void report_drafts(const DecodingCounts& counts, Log& log);

}  // namespace piton
