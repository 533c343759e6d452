#include "serve/prepared_model.h"

#include "base/error.h"
#include "data/instruct/chosen_chat_template.h"

namespace piton {
namespace {

// Of a reward model, which is asked for no texts.
class IdleEngine final : public DecodingEngine {
 public:
  std::int64_t submit(DecodingRequest) override {
    throw Error(Fault::kUsage, "the model gives rewards, it writes no texts");
  }
  void cancel(std::int64_t) override {}
  std::vector<DecodingEvent> step() override { return {}; }
  bool idle() const override { return true; }
  DecodingCounts counts() const override { return {}; }
};

}  // namespace

PreparedModel::PreparedModel(Model& model, Names names, std::int64_t texts)
    : model_(model), names_(std::move(names)) {
  if (gives_rewards()) {
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
  std::vector<std::int32_t> ids = words.encode(text, {.add_special_tokens = add});
  if (!ids.empty()) return ids;
  // Nothing to continue: a text begins as a document does.
  const SpecialIds& special = words.special();
  const auto first = special.bos && add ? special.bos : special.eod ? special.eod : special.bos;
  if (first) ids.push_back(*first);
  return ids;
}

std::vector<float> PreparedModel::embed(const std::vector<std::int32_t>& ids,
                                        std::optional<std::int64_t> adapter) {
  if (!gives_rewards()) return model_.embedding(ids, names_.pooling, adapter);
  return {static_cast<float>(model_.rewards(std::span(&ids, 1)).front())};
}

const ChatTemplate* PreparedModel::chat_template(bool with_tools) const {
  if (with_tools && with_tools_) return &*with_tools_;
  return plain_ ? &*plain_ : nullptr;
}

}  // namespace piton
