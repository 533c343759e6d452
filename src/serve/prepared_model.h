// A Model as the server uses it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/model.h"
#include "serve/served_model.h"

namespace piton {

class PreparedModel final : public ServedModel {
 public:
  struct Names {
    std::string model;                 // in requests and answers
    std::string chat_template;         // as of chosen_chat_template(); "": the model's own
    nlohmann::ordered_json variables;  // of the template; null: none
    EmbeddingPooling pooling = EmbeddingPooling::kMean;
  };
  // `texts`: that are written at the same time. `model` must outlive it and have a tokenizer
  // (Error(kUsage)). Throws Error(kData) for chat templates that are malformed, and if the one that
  // is named does not exist, and Error(kUsage) for a variable that no template reads.
  PreparedModel(Model& model, Names names, std::int64_t texts);

  const std::string& name() const override { return names_.model; }
  const std::vector<std::string>& adapters() const override { return model_.adapter_names(); }
  const Tokenizer& tokenizer() const override { return model_.require_tokenizer(); }
  std::int64_t vocabulary() const override { return model_.config().vocabulary; }
  std::int64_t longest_sequence() const override { return model_.config().longest_sequence(); }
  const std::vector<std::int32_t>& ends() const override { return model_.ends(); }
  std::vector<std::int32_t> encode_prompt(const std::string& text) const override;
  bool gives_rewards() const override { return model_.config().gives_rewards(); }
  const ChatTemplate* chat_template(bool with_tools) const override;
  DecodingEngine& engine() override { return *engine_; }
  const std::vector<std::string>& labels() const override { return labels_; }
  bool several_labels() const override { return model_.config().several_labels; }
  TextToEmbed read_text(const std::string& text,
                        const std::optional<std::string>& pair) const override;
  std::vector<std::vector<float>> embed(std::span<const TextToEmbed> texts) override;

 private:
  Model& model_;
  Names names_;
  std::vector<std::string> labels_;
  std::optional<ChatTemplate> plain_;
  std::optional<ChatTemplate> with_tools_;
  std::unique_ptr<DecodingEngine> engine_;
};

}  // namespace piton
