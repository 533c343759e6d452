// A trained model, loaded from a checkpoint onto the ranks of this run: generates and scores text.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/label_logits.h"
#include "generate/batched_engine.h"
#include "generate/beam_search.h"
#include "generate/continuations.h"
#include "generate/generator.h"
#include "parallel/parallel_options.h"
#include "session/machine.h"
#include "session/session.h"
#include "text/chat/chat_template_files.h"
#include "text/files/tokenizer_options.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace piton {

// The adapters that a model is loaded with.
struct AdapterFiles {
  AdapterFiles() = default;
  AdapterFiles(std::filesystem::path of_all) : path(std::move(of_all)) {}  // NOLINT
  AdapterFiles(const std::string& of_all) : path(of_all) {}                // NOLINT

  // Folder of a run that trained adapters of the model, or of an adapter of PEFT, or a GGUF file:
  // those of every text. "": none.
  std::filesystem::path path;
  // Of the same kinds, each with the name by which a request chooses it. Not together with `path`.
  std::vector<std::pair<std::string, std::filesystem::path>> choices;
};

class Model {
 public:
  // `path`: the folder of a run (its newest checkpoint is loaded), one checkpoint, a Hugging Face
  // folder, or a GGUF file. The tokenizer is that of the folder or file, unless `tokenizer` names
  // another. `machine` must outlive the model.
  //
  // If `path` is a run that trained adapters, these are loaded, and the base that it names.
  // Adapters to choose from have the tokenizer and the templates of the model. Throws
  // Error(kUsage) for those that train a part of the model in full.
  //
  // load() and the functions below are collective: all ranks of the machine call them with the same
  // arguments and get the same results.
  static std::unique_ptr<Model> load(const Machine& machine, const std::filesystem::path& path,
                                     const TokenizerOptions& tokenizer,
                                     const InferenceOptions& layout = {},
                                     const AdapterFiles& adapters = {});
  ~Model();

  const ModelConfig& config() const;
  // The names of AdapterFiles::choices; requests have their indices (DecodingRequest::adapter).
  const std::vector<std::string>& adapter_names() const;
  // Null if the run had no tokenizer and load() was given none.
  const Tokenizer* tokenizer() const;
  // Throws Error(kUsage) if there is none.
  const Tokenizer& require_tokenizer() const;
  // Of the folder or file of its tokenizer. Throws Error(kData) if they cannot be read.
  const ChatTemplateFiles& chat_templates() const;
  // Whether a text for this model gets the tokenizer's special tokens: as in the corpus of a run,
  // else by the tokenizer's own setting.
  const SpecialTokensRule& special_tokens() const;

  // Continues one prompt; the prompt of a model with an encoder is what that reads. `each` gets
  // every token as soon as it is drawn; if it returns false, the text ends.
  std::vector<GeneratedToken> generate(std::span<const std::int32_t> prompt,
                                       const SamplingOptions& options,
                                       const std::function<bool(const GeneratedToken&)>& each);

  // Continues several prompts at the same time; `each` also gets the index of the prompt. `batch`:
  // draws, constraints and adapters of the prompts; their ends are the model's. See
  // generate_batch() in generate/generator.h. A prompt that begins like an earlier one is not read
  // again as far as its keys and values are still in the cache.
  std::vector<std::vector<GeneratedToken>> generate_batch(
      PromptBatch batch, const SamplingOptions& options,
      const std::function<bool(std::size_t prompt, const GeneratedToken&)>& each);
  // A new engine for requests that come and go; the model must outlive it. On several ranks all of
  // them make it and use it alike.
  std::unique_ptr<DecodingEngine> make_engine(const DecodingLimits& limits) const;
  // Who guesses next tokens in engines that are made from now on; must outlive them. The model
  // itself only if it was loaded for that (InferenceOptions::drafts_later).
  void set_drafter(const DraftSource& drafter);
  // Ids that end a text (model_files/generation_ends.h).
  const std::vector<std::int32_t>& ends() const;
  // The continuations found by beam search, best first. `ends`: see beam_search().
  std::vector<Beam> beams(std::span<const std::int32_t> prompt, std::int64_t max_new_tokens,
                          const BeamOptions& options,
                          const std::function<bool(std::span<const LikelyToken>)>& ends);

  // The log-likelihood of each token of a sequence, except the first, given the tokens before it.
  struct Score {
    std::vector<double> log_likelihood;  // [tokens - 1], natural logarithm
    double sum() const;
  };
  // What the engine of scores, continuations and generate_batch() has done.
  DecodingCounts counts() const;
  // Logits of every position: fp32 [tokens, V], without the padding of the vocabulary.
  Tensor logits(std::span<const std::int32_t> ids);
  // Of each of several sequences, which are read together. Throws Error(kUsage) for ids outside the
  // vocabulary and for sequences that are too long.
  std::vector<Score> scores(std::span<const std::vector<std::int32_t>> sequences);
  Score score(std::span<const std::int32_t> ids);
  // How likely continuations of texts are; see generate/continuations.h. Throws as scores().
  std::vector<ContinuationScore> score_continuations(std::span<const ContinuationRequest> requests);
  // The reward of each of several texts, as a reward model has it (model/label_head.h). Throws
  // Error(kUsage) for a model that is none, and as scores().
  std::vector<double> rewards(std::span<const std::vector<std::int32_t>> sequences);
  // The logits of each label of each of several texts, as a classifier has them. Throws
  // Error(kUsage) for a model that is none, and for a text that is empty, too long, or has an id
  // outside of the vocabulary.
  std::vector<std::vector<float>> label_logits(std::span<const TextToLabel> texts);
  // One vector for a text; see Inference::embedding(). Throws as scores().
  std::vector<float> embedding(std::span<const std::int32_t> ids, EmbeddingPooling pooling,
                               std::optional<std::int64_t> adapter = {});
  // Gradients of the mean loss over all tokens of all `sequences`: canonical tensors in fp32, by
  // name. Throws Error(kUsage) if there is more than one rank.
  std::map<std::string, Tensor> gradients(const std::vector<std::vector<std::int32_t>>& sequences);

 private:
  Model();
  DecodingEngine& engine() const;
  // Of a model with an encoder: of each prompt, which its encoder reads, one after another.
  // The same, with the ids of breakers (generate/repeated_runs.h).
  SamplingOptions with_breakers(const SamplingOptions& options) const;
  std::vector<std::vector<GeneratedToken>> generate_of_sources(
      const PromptBatch& batch, const SamplingOptions& options,
      const std::function<bool(std::size_t prompt, const GeneratedToken&)>& each);
  void refuse_classifier() const;
  void check_read(std::span<const std::int32_t> ids) const;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
