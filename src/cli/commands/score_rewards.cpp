#include "cli/commands/score_rewards.h"

#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands/model_chat_template.h"
#include "data/instruct/model_prompt.h"
#include "data/records/whole_text.h"
#include "text/chat/chat_tokens.h"
#include "text/chat/conversations.h"

namespace piton::cli {
namespace {

std::vector<std::vector<std::int32_t>> ids_of_conversations(const Model& model,
                                                            const RewardRequest& request) {
  const ChatTemplate chat_template =
      model_chat_template(model, request.chat_template, request.load);
  std::vector<std::vector<std::int32_t>> all;
  for (ChatInput& input : read_conversations(read_whole_text(request.file), request.file)) {
    input.now_seconds = kDateOfPrompts;  // as the data that it was trained with
    const RenderedChat chat = chat_template.render(input, /*add_generation_prompt=*/false);
    all.push_back(encode_chat(model.require_tokenizer(), chat).ids);
  }
  return all;
}

}  // namespace

void print_rewards(Model& model, const RewardRequest& request) {
  const std::vector<std::vector<std::int32_t>> ids =
      request.ids.empty() ? ids_of_conversations(model, request) : request.ids;
  if (ids.empty()) {
    throw Error(Fault::kData, "{}: no conversation, wanted one or more", request.file);
  }
  const std::vector<double> rewards = model.rewards(ids);
  if (!request.prints) return;
  std::string out;
  if (request.json) {
    out = nlohmann::ordered_json{{"rewards", rewards}}.dump() + "\n";
  } else {
    for (const double reward : rewards) out += fmt::format("{:.6f}\n", reward);
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
}

}  // namespace piton::cli
