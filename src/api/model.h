// A trained model from a checkpoint, over the ranks of this run: to generate, score and inspect.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/generator.h"
#include "parallel/parallel_options.h"
#include "text/files/tokenizer_options.h"
#include "text/tokenizer.h"
#include "train/machine.h"
#include "train/pretrain_options.h"
#include "train/session.h"

namespace piton {

class Model {
 public:
  // `path`: a run's folder (its newest checkpoint), one checkpoint, or a Hugging Face folder. The
  // tokenizer is that of the folder, unless `tokenizer` names another. All that follows is collective over the machine's ranks,
  // which give the same arguments and get the same results; the machine outlives the model.
  static std::unique_ptr<Model> load(const Machine& machine, const std::filesystem::path& path,
                                     const TokenizerOptions& tokenizer,
                                     const InferenceOptions& layout = {});
  ~Model();

  const ModelConfig& config() const;
  // Null where the run had none and none was named.
  const Tokenizer* tokenizer() const;
  // Throws Error(kUsage) where there is none.
  const Tokenizer& require_tokenizer() const;

  std::vector<GeneratedToken> generate(std::span<const std::int32_t> prompt,
                                       const SamplingOptions& options,
                                       const std::function<bool(const GeneratedToken&)>& each);

  // One sequence: token i is scored given those before it; the first is not scored.
  struct Score {
    std::vector<double> log_likelihood;  // [tokens - 1], natural logarithm
    double sum() const;
  };
  // fp32 logits of every position [tokens, vocabulary], unpadded.
  Tensor logits(std::span<const std::int32_t> ids);
  Score score(std::span<const std::int32_t> ids);
  // Gradients of the mean loss over all tokens of all `sequences`, under canonical names (fp32). On
  // one process: throws Error(kUsage) where there are more.
  std::map<std::string, Tensor> gradients(const std::vector<std::vector<std::int32_t>>& sequences);

 private:
  Model();
  void check_ids(std::span<const std::int32_t> ids) const;
  void check_length(std::size_t length) const;
  struct State;
  std::unique_ptr<State> state_;
};

// The options a checkpoint was trained with.
PretrainOptions stored_options(const std::filesystem::path& checkpoint);

}  // namespace piton
