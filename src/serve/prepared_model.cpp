#include "serve/prepared_model.h"

#include "base/error.h"
#include "data/instruct/chosen_chat_template.h"
#include "data/instruct/labeled_texts.h"
#include "model/label_head.h"

namespace piton {
namespace {

// Of a reward model or a classifier, which is asked for no texts.
class IdleEngine final : public DecodingEngine {
 public:
  std::int64_t submit(DecodingRequest) override {
    throw Error(Fault::kUsage, "the model writes no texts");
  }
  void cancel(std::int64_t) override {}
  std::vector<DecodingEvent> step() override { return {}; }
  bool idle() const override { return true; }
  DecodingCounts counts() const override { return {}; }
};

}  // namespace

PreparedModel::PreparedModel(Model& model, Names names, std::int64_t texts)
    : model_(model), names_(std::move(names)) {
  if (model.config().classifies()) labels_ = names_of_labels(model.config());
  if (model.config().labels > 0) {
    engine_ = std::make_unique<IdleEngine>();
  } else {
    engine_ = model.make_engine({.texts = texts});
  }
  static_cast<void>(model.require_tokenizer());
  const ChatTemplateFiles& files = model.chat_templates();
  const std::string& wanted = names_.chat_template;
  if (wanted.empty() && files.templates.empty()) {
    if (names_.variables.is_null()) return;
    throw Error(Fault::kUsage,
                "--chat-template-kwargs: {} has no chat template; leave it out, or give "
                "--chat-template",
                names_.model);
  }
  plain_ = chosen_chat_template(files, wanted, /*with_tools=*/false, tokenizer());
  with_tools_ = chosen_chat_template(files, wanted, /*with_tools=*/true, tokenizer());
  const auto unread = plain_->unread_variable(names_.variables);
  if (unread && with_tools_->unread_variable(names_.variables)) {
    throw Error(Fault::kUsage,
                "--chat-template-kwargs: {} does not read \"{}\", which would change nothing; "
                "leave it out",
                plain_->name(), *unread);
  }
  plain_->set_variables(names_.variables);
  with_tools_->set_variables(names_.variables);
}

std::vector<std::int32_t> PreparedModel::encode_prompt(const std::string& text) const {
  const Tokenizer& words = tokenizer();
  const bool add = model_.special_tokens().add;
  std::vector<std::int32_t> ids =
      words.encode(text, {.add_special_tokens = add, .parse_special_tokens = true});
  if (!ids.empty()) return ids;
  // Nothing to continue: a text begins as a document does.
  const SpecialIds& special = words.special();
  const auto first = special.bos && add ? special.bos : special.eod ? special.eod : special.bos;
  if (first) ids.push_back(*first);
  return ids;
}

TextToEmbed PreparedModel::read_text(const std::string& text,
                                     const std::optional<std::string>& pair) const {
  Conversation both{.messages = {{MessageRole::kUser, text}}};
  if (pair) both.messages.push_back({MessageRole::kUser, *pair});
  TaughtText tokens = LabelPrompt(tokenizer()).encode(both).front();
  if (!cut_labeled(tokens, longest_sequence()))
    throw Error(Fault::kData, "its special tokens are more than the model takes");
  const std::optional<EncoderFacts>& encoder = model_.config().encoder;
  TextToEmbed read{.ids = std::move(tokens.ids), .adapter = {}, .types = {}};
  if (encoder && encoder->token_types > 1) read.types = types_of_pair(tokens.labels);
  return read;
}

std::vector<std::vector<float>> PreparedModel::embed(std::span<const TextToEmbed> texts) {
  std::vector<std::vector<float>> vectors;
  if (model_.config().classifies()) {
    std::vector<TextToLabel> all;
    for (const TextToEmbed& text : texts) all.push_back({.ids = text.ids, .types = text.types});
    return model_.label_logits(all);
  }
  if (gives_rewards()) {
    std::vector<std::vector<std::int32_t>> all;
    for (const TextToEmbed& text : texts) all.push_back(text.ids);
    for (const double reward : model_.rewards(all)) vectors.push_back({static_cast<float>(reward)});
    return vectors;
  }
  for (const TextToEmbed& text : texts)
    vectors.push_back(model_.embedding(text.ids, names_.pooling, text.adapter));
  return vectors;
}

const ChatTemplate* PreparedModel::chat_template(bool with_tools) const {
  if (with_tools && with_tools_) return &*with_tools_;
  return plain_ ? &*plain_ : nullptr;
}

}  // namespace piton
