#include "serve/rerank_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/instruct/model_prompt.h"
#include "serve/http/request_error.h"
#include "serve/http/request_fields.h"
#include "serve/text_request.h"
#include "text/chat/chat_tokens.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostDocuments = 2048;

// Strings, or objects with the field "text".
std::vector<std::string> read_documents(RequestFields& fields) {
  const Json* given = fields.value("documents");
  const std::string wanted =
      fmt::format("a list of 1 to {} strings, or objects with a text", kMostDocuments);
  if (given == nullptr || !given->is_array() || given->empty() || given->size() > kMostDocuments)
    fields.fail("documents", wanted);
  std::vector<std::string> documents;
  for (const Json& one : *given) {
    const Json text = one.is_object() ? one.value("text", Json()) : one;
    if (!text.is_string()) fields.fail("documents", wanted);
    documents.push_back(text.get<std::string>());
  }
  return documents;
}

std::vector<std::int32_t> conversation_ids(const std::string& query, const std::string& document,
                                           const ServedModel& model) {
  const ChatTemplate* chat_template = model.chat_template(/*with_tools=*/false);
  if (chat_template == nullptr) {
    throw RequestError(400, "documents",
                       "documents: the model has no chat template; start the server with "
                       "--chat-template");
  }
  ChatInput input;
  input.messages = {{{"role", "user"}, {"content", query}},
                    {{"role", "assistant"}, {"content", document}}};
  input.now_seconds = kDateOfPrompts;  // as the data that it was trained with
  try {
    const RenderedChat chat = chat_template->render(input, /*add_generation_prompt=*/false);
    return encode_chat(model.tokenizer(), chat).ids;
  } catch (const Error& error) {
    throw RequestError(400, "documents", fmt::format("documents: {}", error.what()));
  }
}

TextToEmbed pair_of(const std::string& query, const std::string& document, std::size_t index,
                    const ServedModel& model) {
  try {
    return model.read_text(query, document);
  } catch (const Error& error) {
    throw RequestError(400, "documents", fmt::format("documents[{}]: {}", index, error.what()));
  }
}

}  // namespace

RerankRequest read_rerank_request(const Json& body, const ServedModel& model) {
  RequestFields fields(body, "");
  named_adapter(fields.text("model"), model);
  RerankRequest request;
  const auto query = fields.text("query");
  if (!query) fields.fail("query", "a string");
  request.documents = read_documents(fields);
  const std::int64_t all = std::ssize(request.documents);
  request.most = std::min(
      all, fields.integer("top_n", 1, static_cast<std::int64_t>(kMostDocuments)).value_or(all));
  request.returns_documents = fields.flag("return_documents").value_or(false);
  fields.ignore({"user"});
  fields.refuse_others();
  for (std::size_t i = 0; i < request.documents.size(); ++i) {
    if (!model.gives_rewards()) {
      request.texts.push_back(pair_of(*query, request.documents[i], i, model));
      continue;
    }
    request.texts.push_back({.ids = conversation_ids(*query, request.documents[i], model)});
    const auto length = std::ssize(request.texts.back().ids);
    if (length <= model.longest_sequence() && length > 0) continue;
    throw RequestError(400, "documents",
                       fmt::format("documents[{}]: with the query it has {} tokens, and the model "
                                   "takes 1 to {}; cut it",
                                   i, length, model.longest_sequence()));
  }
  return request;
}

Json rerank_results(const RerankRequest& request, const std::vector<double>& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return scores[i]; });
  order.resize(static_cast<std::size_t>(request.most));
  Json results = Json::array();
  for (const std::size_t i : order) {
    Json one = {{"index", i}, {"relevance_score", scores[i]}};
    if (request.returns_documents) one["document"] = {{"text", request.documents[i]}};
    results.push_back(std::move(one));
  }
  return results;
}

}  // namespace piton
