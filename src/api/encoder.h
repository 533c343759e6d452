// An encoder (BERT), loaded from a checkpoint or a Hugging Face folder: turns texts into vectors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "session/machine.h"
#include "text/files/tokenizer_options.h"

namespace piton {

// Which hidden states of the last layer are the vector of a text.
enum class Pooling : std::uint8_t {
  kMean,    // the mean over its tokens, [CLS] and [SEP] too, without padding
  kFirst,   // that of the first token, [CLS]
  kPooler,  // what the model's pooler makes of that one: tanh of a linear map
};

class Encoder {
 public:
  // `path` as of Model::load (api/model.h). Throws Error(kData) for a decoder and for a model
  // without a tokenizer, Error(kUsage) if there is more than one rank.
  static std::unique_ptr<Encoder> load(const Machine& machine, const std::filesystem::path& path,
                                       const TokenizerOptions& tokenizer);
  ~Encoder();

  const ModelConfig& config() const;

  // The ids of a text with [CLS] before and [SEP] after it, all of them.
  std::vector<std::int32_t> ids_of(const std::string& text) const;

  // fp32 [texts, h], a row for each text. Of a text that is longer than the model takes, the ids
  // before the last one are cut. Throws Error(kUsage) for an empty text, an id outside the
  // vocabulary, and kPooler of a model without one. Texts of about one length are computed
  // together, so a row may differ in its last bits with the texts around it.
  Tensor embed(std::span<const std::vector<std::int32_t>> texts, Pooling pooling);

 private:
  Encoder();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
