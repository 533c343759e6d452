#include "serve/text_service.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/seconds.h"
#include "serve/chat/chat_page.h"
#include "serve/classify_request.h"
#include "serve/completion_request.h"
#include "serve/conversation_request.h"
#include "serve/embedding_request.h"
#include "serve/http/json_line.h"
#include "serve/http/request_error.h"
#include "serve/http/request_fields.h"
#include "serve/message_answer.h"
#include "serve/rerank_request.h"
#include "serve/text_writing.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

HttpAnswer json_answer(const Json& json, int status = 200) {
  return {.status = status, .body = json_line(json)};
}

constexpr std::string_view kMessages = "/v1/messages";
constexpr std::string_view kCountTokens = "/v1/messages/count_tokens";

// In the form of the service whose path it is.
HttpAnswer error_answer(const std::string& path, const RequestError& error) {
  const bool is_message = path == kMessages || path.starts_with(fmt::format("{}/", kMessages));
  return json_answer(is_message ? message_error_json(error) : error.json(), error.status());
}

// Requests for texts.
struct TextPath {
  std::string_view path;
  TextRequest (*read)(const Json& body, const ServedModel& model, const RequestLimits& limits);
};
constexpr auto kTextPaths = std::to_array<TextPath>({
    {"/v1/completions", read_completion_request},
    {"/v1/chat/completions", read_chat_request},
    {"/v1/responses", read_response_request},
    {kMessages, read_message_request},
});

// Of llama.cpp and Jina, and of both versions of Cohere's interface.
constexpr auto kRerankPaths =
    std::to_array<std::string_view>({"/rerank", "/v1/rerank", "/v2/rerank"});
// The second one is vLLM's.
constexpr auto kClassifyPaths = std::to_array<std::string_view>({"/v1/classify", "/classify"});
constexpr auto kOtherPaths =
    std::to_array<std::string_view>({"/", "/health", "/metrics", "/v1/models", "/v1/embeddings",
                                     kCountTokens, "/tokenize", "/detokenize"});

bool is_among(const auto& paths, std::string_view path) {
  return std::ranges::find(paths, path) != paths.end();
}

bool is_path(std::string_view path) {
  return std::ranges::find(kTextPaths, path, &TextPath::path) != kTextPaths.end() ||
         is_among(kOtherPaths, path) || is_among(kRerankPaths, path) ||
         is_among(kClassifyPaths, path);
}

// Of answers without a text.
Json prompt_usage(const std::vector<TextToEmbed>& texts) {
  std::int64_t tokens = 0;
  for (const TextToEmbed& text : texts) tokens += std::ssize(text.ids);
  return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
}

// Throws RequestError(400) for a path that another kind of model answers.
void check_answers(const ServedModel& model, std::string_view path) {
  const bool ranks = is_among(kRerankPaths, path);
  const bool labels = is_among(kClassifyPaths, path);
  const std::size_t count = model.labels().size();
  const bool number = count == 1 && !model.several_labels();
  const auto refuse = [](const char* why) { throw RequestError(400, "", why); };
  if (model.gives_rewards() && !ranks)
    refuse("the model gives rewards, it has no texts and no vectors; it answers /v1/rerank");
  if (number && !ranks)
    refuse("the model gives a number for a pair of texts; it answers /v1/rerank");
  if (count > 0 && !number && !labels)
    refuse("the model is a classifier of several labels; it answers /v1/classify");
  if (model.gives_rewards() || count > 0) return;
  if (labels) {
    refuse(
        "the model predicts tokens and has no labels; start the server with a classifier, as "
        "piton finetune --stage classify makes");
  }
  if (ranks) {
    refuse(
        "the model predicts tokens and gives documents no score; start the server with a reward "
        "model, as piton finetune --stage rm makes, or with a cross-encoder");
  }
}

// Takes as long for a wrong key as for the right one, so that its time tells nothing.
bool equal_keys(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return difference == 0;
}

}  // namespace

TextService::TextService(ServedModel& model, DecodingLoop& loop, ServiceOptions options)
    : model_(model),
      loop_(loop),
      options_(std::move(options)),
      started_(seconds_since_1970()),
      next_id_(static_cast<std::uint64_t>(std::random_device()()) << 32) {}

TextService::~TextService() = default;

std::string TextService::error_body(const HttpRefusal& refusal) {
  const int status = refusal.status;
  std::string message = "the request is not HTTP, or has too many headers";
  if (status == 404) message = "no such path";
  if (status == 413) {
    const std::string size =
        refusal.body_bytes ? fmt::format("{} bytes", *refusal.body_bytes) : "more bytes";
    message = fmt::format(
        "the body of the request has {}, wanted at most {}; shorten it, or start the server with "
        "a larger --max-body-bytes",
        size, refusal.most_body_bytes);
  }
  if (status == 414) message = "the path is too long";
  if (status == 503) message = "too many connections; try again later";
  return error_answer(refusal.path, RequestError(status, "", message)).body;
}

HttpAnswer TextService::answer(const HttpRequest& request, const HttpClient& client) {
  const Clock::time_point begin = Clock::now();
  HttpAnswer answer;
  try {
    answer = routed(request, client);
  } catch (const RequestError& error) {
    answer = error_answer(request.path, error);
  } catch (const Error& error) {
    answer = error_answer(request.path, RequestError(500, "", error.what()));
  } catch (const std::exception& error) {
    answer = error_answer(request.path,
                          RequestError(500, "", fmt::format("internal: {}", error.what())));
  }
  const std::string path = is_path(request.path) ? request.path : "other";
  if (!answer.stream) {
    metrics_.add_request(path, answer.status, seconds_since(begin));
    return answer;
  }
  answer.stream = [this, path, begin, inner = std::move(answer.stream)](
                      const HttpAnswer::Write& write, const HttpClient& reader) {
    inner(write, reader);
    metrics_.add_request(path, 200, seconds_since(begin));
  };
  return answer;
}

void TextService::check_key(const HttpRequest& request) const {
  if (options_.api_key.empty()) return;
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view given = request.authorization;
  if (given.starts_with(kScheme)) {
    given.remove_prefix(kScheme.size());
  } else {
    given = request.api_key;
  }
  if (given.empty()) {
    throw RequestError(401, "",
                       "no API key: send the header Authorization: Bearer KEY, or x-api-key: KEY");
  }
  if (!equal_keys(given, options_.api_key)) throw RequestError(401, "", "the API key is wrong");
}

HttpAnswer TextService::routed(const HttpRequest& request, const HttpClient& client) {
  const std::string& path = request.path;
  const bool reads = request.method == "GET" || request.method == "HEAD";
  const auto wants = [&](bool get) {
    if (reads == get && (reads || request.method == "POST")) return;
    throw RequestError(405, "", fmt::format("{} takes {} requests", path, get ? "GET" : "POST"));
  };
  if (path == "/") {
    wants(true);
    return {.type = "text/html; charset=utf-8", .body = std::string(kChatPage)};
  }
  if (path == "/health") {
    wants(true);
    return json_answer({{"status", "ok"}});
  }
  const bool is_model = path.starts_with("/v1/models/");
  if (!is_model && !is_path(path)) throw RequestError(404, "", "no such path; see docs/serving.md");
  check_key(request);
  if (is_model || path == "/v1/models") {
    wants(true);
    return models(request);
  }
  if (path == "/metrics") {
    wants(true);
    return {.type = "text/plain; version=0.0.4", .body = metrics_.text(loop_.counts())};
  }
  wants(false);
  if (path == "/tokenize") return tokenize(request);
  if (path == "/detokenize") return detokenize(request);
  check_answers(model_, path);
  if (is_among(kRerankPaths, path)) return rerank(request, client);
  if (is_among(kClassifyPaths, path)) return classify(request, client);
  if (path == "/v1/embeddings") return embeddings(request, client);
  if (path == kCountTokens) return count_tokens(request);
  const auto* const found = std::ranges::find(kTextPaths, path, &TextPath::path);
  return text(found->read(request_object(request.body), model_, options_.limits), client);
}

HttpAnswer TextService::models(const HttpRequest& request) const {
  // The fields of OpenAI and vLLM, then those of Anthropic.
  const auto entry = [&](std::optional<std::int64_t> adapter) {
    const std::string name = model_.name_of(adapter);
    Json model = {{"id", name},
                  {"object", "model"},
                  {"created", started_},
                  {"owned_by", "piton"},
                  {"max_model_len", model_.longest_sequence()},
                  {"type", "model"},
                  {"display_name", name},
                  {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(started_))},
                  {"max_input_tokens", model_.longest_sequence()}};
    if (adapter) model["parent"] = model_.name();
    return model;
  };
  constexpr std::string_view kList = "/v1/models";
  if (request.path != kList)
    return json_answer(entry(named_adapter(request.path.substr(kList.size() + 1), model_)));
  Json all = Json::array({entry(std::nullopt)});
  for (std::int64_t i = 0; i < std::ssize(model_.adapters()); ++i) all.push_back(entry(i));
  const Json first = all.front()["id"];
  const Json last = all.back()["id"];
  return json_answer({{"object", "list"},
                      {"data", std::move(all)},
                      {"has_more", false},
                      {"first_id", first},
                      {"last_id", last}});
}

HttpAnswer TextService::tokenize(const HttpRequest& request) const {
  const Json body = request_object(request.body);
  RequestFields fields(body, "");
  named_adapter(fields.text("model"), model_);
  const auto text = fields.text("prompt");
  if (!text) fields.fail("prompt", "a string");
  const bool special = fields.flag("add_special_tokens").value_or(true);
  fields.refuse_others();
  const std::vector<std::int32_t> ids =
      special ? model_.encode_prompt(*text)
              : model_.tokenizer().encode(*text, {.parse_special_tokens = true});
  return json_answer(
      {{"count", ids.size()}, {"max_model_len", model_.longest_sequence()}, {"tokens", ids}});
}

HttpAnswer TextService::detokenize(const HttpRequest& request) const {
  const Json body = request_object(request.body);
  RequestFields fields(body, "");
  named_adapter(fields.text("model"), model_);
  const Json* tokens = fields.value("tokens");
  std::vector<std::int32_t> ids;
  if (tokens == nullptr || !tokens->is_array()) fields.fail("tokens", "a list of token ids");
  for (const Json& one : *tokens) {
    if (!one.is_number_integer() || one < 0 || one >= model_.vocabulary())
      fields.fail("tokens", fmt::format("ids from 0 to {}", model_.vocabulary() - 1));
    ids.push_back(one.get<std::int32_t>());
  }
  fields.refuse_others();
  return json_answer({{"prompt", replace_bad_utf8(model_.tokenizer().decode(ids))}});
}

std::vector<std::vector<float>> TextService::embedded(const std::vector<TextToEmbed>& texts,
                                                      const HttpClient& client) {
  const Clock::time_point begin = Clock::now();
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return texts[i].ids.size(); });
  const std::size_t together = model_.texts_together();
  std::vector<std::vector<float>> vectors(texts.size());
  for (std::size_t first = 0; first < order.size(); first += together) {
    if (Clock::now() > begin + options_.deadline)
      throw RequestError(504, "", "the answer took longer than the server's time limit");
    if (!client.is_connected()) throw RequestError(499, "", "the client has closed the connection");
    const std::span<const std::size_t> some =
        std::span(order).subspan(first, std::min(together, order.size() - first));
    std::vector<TextToEmbed> of_them;
    for (const std::size_t i : some) of_them.push_back(texts[i]);
    std::vector<std::vector<float>> found = loop_.embed(std::move(of_them));
    for (std::size_t i = 0; i < some.size(); ++i) vectors[some[i]] = std::move(found.at(i));
  }
  return vectors;
}

HttpAnswer TextService::embeddings(const HttpRequest& request, const HttpClient& client) {
  const EmbeddingRequest asked = read_embedding_request(request_object(request.body), model_);
  std::vector<TextToEmbed> texts;
  for (const auto& ids : asked.texts)
    texts.push_back({.ids = ids, .adapter = asked.adapter, .types = {}});
  const auto vectors = embedded(texts, client);
  Json data = Json::array();
  for (std::size_t i = 0; i < vectors.size(); ++i)
    data.push_back(embedding_json(i, vectors[i], asked.base64));
  return json_answer({{"object", "list"},
                      {"data", std::move(data)},
                      {"model", model_.name_of(asked.adapter)},
                      {"usage", prompt_usage(texts)}});
}

HttpAnswer TextService::rerank(const HttpRequest& request, const HttpClient& client) {
  const RerankRequest asked = read_rerank_request(request_object(request.body), model_);
  std::vector<double> scores;
  for (const auto& one : embedded(asked.texts, client)) {
    const double number = one.at(0);
    scores.push_back(model_.gives_rewards() ? number : 1 / (1 + std::exp(-number)));
  }
  return json_answer({{"object", "list"},
                      {"id", fmt::format("rerank-{:016x}", next_id_++)},
                      {"model", model_.name()},
                      {"results", rerank_results(asked, scores)},
                      {"usage", prompt_usage(asked.texts)}});
}

HttpAnswer TextService::classify(const HttpRequest& request, const HttpClient& client) {
  const auto texts = read_classify_request(request_object(request.body), model_);
  const auto logits = embedded(texts, client);
  Json data = Json::array();
  for (std::size_t i = 0; i < logits.size(); ++i)
    data.push_back(classify_json(i, logits[i], model_));
  return json_answer({{"id", fmt::format("classify-{:016x}", next_id_++)},
                      {"object", "list"},
                      {"created", seconds_since_1970()},
                      {"model", model_.name()},
                      {"data", std::move(data)},
                      {"usage", prompt_usage(texts)}});
}

HttpAnswer TextService::count_tokens(const HttpRequest& request) const {
  const auto prompt = read_message_prompt(request_object(request.body), model_);
  return json_answer({{"input_tokens", prompt.size()}});
}

HttpAnswer TextService::text(TextRequest request, const HttpClient& client) {
  const WritingPlace place{model_, loop_, metrics_, options_.deadline};
  const auto writing = std::make_shared<TextWriting>(place, std::move(request), next_id_++, client);
  if (!writing->request().stream) return json_answer(writing->whole(client));
  return {.type = "text/event-stream",
          .stream = [writing](const HttpAnswer::Write& write, const HttpClient& reader) {
            writing->stream(write, reader);
          }};
}

}  // namespace piton
