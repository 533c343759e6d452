#include "serve/text_service.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <random>

#include "base/error.h"
#include "base/seconds.h"
#include "serve/answers.h"
#include "serve/chat/reasoning_text.h"
#include "serve/chat/tool_calls.h"
#include "serve/chat_page.h"
#include "serve/embedding_request.h"
#include "serve/http/request_error.h"
#include "serve/http/request_fields.h"
#include "serve/written_text.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kLookAtClient{100};

std::int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

HttpAnswer json_answer(const Json& json, int status = 200) {
  return {.status = status, .body = json_line(json)};
}

HttpAnswer error_answer(const RequestError& error) {
  return json_answer(error.json(), error.status());
}

constexpr auto kPaths = std::to_array<std::string_view>(
    {"/", "/health", "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions",
     "/v1/embeddings", "/tokenize", "/detokenize"});

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

// One request for texts while it is answered.
class TextService::Writing {
 public:
  Writing(TextService& service, TextRequest request, const HttpClient& client)
      : service_(service),
        request_(std::move(request)),
        form_(request_, service.model_,
              fmt::format("{}-{:016x}", request_.chat ? "chatcmpl" : "cmpl", service.next_id_++),
              seconds_since_1970()) {
    const Tokenizer& tokenizer = service.model_.tokenizer();
    const std::vector<TextToWrite> all = request_.texts();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& prompt = request_.prompts[request_.prompt_of(i)];
      texts_.emplace_back(tokenizer, prompt, request_.stop, request_.ends);
      reasoning_.emplace_back(request_.reasoning);
      tool_calls_.emplace_back(request_.tools);
      if (i % static_cast<std::size_t>(request_.samples) == 0) usage_.prompt += std::ssize(prompt);
    }
    if (request_.reasoning != ReasoningPlace::kNone) usage_.reasoning = 0;
    if (request_.echo) read_prompts(client);
    if (request_.generates) job_ = service.loop_.submit(all);
  }

  const TextRequest& request() const { return request_; }

  HttpAnswer whole(const HttpClient& client) {
    shown_.resize(texts_.size());
    write(
        [&](std::size_t i, const std::string& written) {
          const ReasoningText::Parts parts = parts_of(i, written);
          shown_[i].reasoning += parts.reasoning;
          shown_[i].answer += parts.answer;
          return true;
        },
        client);
    std::vector<AnswerForm::Choice> choices;
    std::vector<std::vector<GeneratedToken>> tokens(texts_.size());
    std::vector<std::vector<std::int64_t>> offsets(texts_.size());
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const Echo* echo = echo_of(i);
      if (echo != nullptr) {
        tokens[i] = echo->tokens;
        offsets[i] = echo->offsets;
      }
      tokens[i].insert(tokens[i].end(), texts_[i].tokens().begin(), texts_[i].tokens().end());
      for (const std::int64_t offset : texts_[i].offsets())
        offsets[i].push_back(begin_of(i) + offset);
      choices.push_back({.text = (echo != nullptr ? echo->text : "") + shown_[i].answer,
                         .reasoning = shown_[i].reasoning,
                         .tokens = tokens[i],
                         .offsets = offsets[i],
                         .first_is_unknown = echo != nullptr,
                         .reason = reason_of(i),
                         .calls = calls_of(i)});
    }
    return json_answer(form_.whole(choices, usage_));
  }

  void stream(const HttpAnswer::Write& to_client, const HttpClient& client) {
    bool connected = true;
    const auto send = [&](const Json& json) {
      connected = connected && to_client(stream_event(json));
      return connected;
    };
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (request_.chat) send(form_.first_part(i));
      if (const Echo* echo = echo_of(i)) {
        send(form_.part(i, {.text = echo->text,
                            .tokens = echo->tokens,
                            .offsets = echo->offsets,
                            .first_is_unknown = true}));
      }
    }
    try {
      write(
          [&](std::size_t i, const std::string& written) {
            const ReasoningText::Parts parts = parts_of(i, written);
            const std::span<const GeneratedToken> all = texts_[i].tokens();
            const auto last = all.last(std::min<std::size_t>(all.size(), 1));
            if (!parts.answer.empty() || !parts.reasoning.empty() || request_.likeliest) {
              const std::int64_t offset =
                  begin_of(i) + (last.empty() ? 0 : texts_[i].offsets().back());
              send(form_.part(i, {.text = parts.answer,
                                  .reasoning = parts.reasoning,
                                  .tokens = last,
                                  .offsets = {&offset, last.size()}}));
            }
            if (texts_[i].finished()) {
              const std::vector<FunctionCall> calls = calls_of(i);
              if (!calls.empty()) send(form_.calls_part(i, calls));
              send(form_.last_part(i, reason_of(i), !calls.empty()));
            }
            return connected;
          },
          client);
      if (!request_.generates) {
        for (std::size_t i = 0; i < texts_.size(); ++i) send(form_.last_part(i, reason_of(i)));
      }
      if (request_.stream_usage) send(form_.usage_part(usage_));
      if (connected) to_client("data: [DONE]\n\n");
    } catch (const RequestError& error) {  // the status was sent long ago
      send(error.json());
    }
  }

 private:
  struct Echo {
    std::string text;
    std::int64_t characters = 0;         // of `text`
    std::vector<GeneratedToken> tokens;  // the first has no likelihood; none without logprobs
    std::vector<std::int64_t> offsets;   // of `tokens`
  };

  // Throws RequestError.
  void check_time_and(const HttpClient& client) const {
    if (Clock::now() > begin_ + service_.options_.deadline)
      throw RequestError(504, "", "the answer took longer than the server's time limit");
    if (!client.is_connected()) throw RequestError(499, "", "the client has closed the connection");
  }

  void read_prompts(const HttpClient& client) {
    for (const auto& prompt : request_.prompts) {
      Echo& echo = echoes_.emplace_back();
      PromptText shown = prompt_text(service_.model_.tokenizer(), prompt);
      echo.text = std::move(shown.text);
      echo.characters = characters(echo.text);
      if (!request_.likeliest) continue;
      echo.offsets = std::move(shown.offsets);
      echo.tokens.push_back({{prompt.front(), 0}, {}});
      if (prompt.size() == 1) continue;
      const std::unique_ptr<WritingJob> job =
          service_.loop_.submit_to_score(prompt, *request_.likeliest, request_.adapter);
      std::optional<WritingJob::Event> event;
      while (!(event = job->next(kLookAtClient))) check_time_and(client);
      std::ranges::move(event->scored, std::back_inserter(echo.tokens));
    }
  }

  const Echo* echo_of(std::size_t text) const {
    return request_.echo ? &echoes_[request_.prompt_of(text)] : nullptr;
  }

  // Characters before the text, in its answer.
  std::int64_t begin_of(std::size_t text) const {
    const Echo* echo = echo_of(text);
    return echo != nullptr ? echo->characters : 0;
  }

  // The next parts of a text that has grown by `written`. After its last one calls_of() is known.
  ReasoningText::Parts parts_of(std::size_t text, const std::string& written) {
    ReasoningText::Parts parts = reasoning_[text].push(written);
    parts.answer = tool_calls_[text].push(parts.answer);
    if (!texts_[text].finished()) return parts;
    ReasoningText::Parts rest = reasoning_[text].finish();
    parts.reasoning += rest.reasoning;
    parts.answer += tool_calls_[text].push(rest.answer);
    parts.answer += tool_calls_[text].finish();
    return parts;
  }

  std::vector<FunctionCall> calls_of(std::size_t text) const {
    std::vector<FunctionCall> calls = tool_calls_[text].calls();
    if (!request_.several_calls && calls.size() > 1) calls.resize(1);
    return calls;
  }

  FinishReason reason_of(std::size_t text) const {
    return request_.generates ? texts_[text].reason() : FinishReason::kLength;
  }

  // Reads tokens until all texts are finished; `each` gets the new text of one, and returns false
  // if the client is gone. Throws RequestError.
  template <typename Each>
  void write(Each&& each, const HttpClient& client) {
    std::size_t left = request_.generates ? texts_.size() : 0;
    while (left > 0) {
      const auto event = job_->next(kLookAtClient);
      if (Clock::now() > begin_ + service_.options_.deadline) {
        job_.reset();
        throw RequestError(504, "", "the answer took longer than the server's time limit");
      }
      if (!event) {
        if (client.is_connected()) continue;
        job_.reset();
        throw RequestError(499, "", "the client has closed the connection");
      }
      WrittenText& text = texts_[event->text];
      if (text.finished()) continue;
      // A constraint may allow the empty text alone, which has no token.
      if (event->token.id >= 0 && usage_.written++ == 0)
        service_.metrics_.add_first_token(seconds_since(begin_));
      if (reasoning_[event->text].is_inside()) ++*usage_.reasoning;
      const std::string part = text.push(event->token, event->finish);
      if (text.finished()) {
        --left;
        job_->cancel(event->text);
      }
      if (!each(event->text, part)) {
        job_.reset();
        return;
      }
    }
  }

  TextService& service_;
  TextRequest request_;
  AnswerForm form_;
  std::vector<WrittenText> texts_;
  std::vector<ReasoningText> reasoning_;     // in them
  std::vector<ToolCallText> tool_calls_;     // in what comes after it
  std::vector<ReasoningText::Parts> shown_;  // of whole answers
  std::vector<Echo> echoes_;                 // of each prompt
  std::unique_ptr<WritingJob> job_;
  TokenUsage usage_;
  Clock::time_point begin_ = Clock::now();
};

TextService::TextService(ServedModel& model, DecodingLoop& loop, ServiceOptions options)
    : model_(model),
      loop_(loop),
      options_(std::move(options)),
      started_(seconds_since_1970()),
      next_id_(static_cast<std::uint64_t>(std::random_device()()) << 32) {}

TextService::~TextService() = default;

std::string TextService::error_body(int status) {
  const char* message = "the request is not HTTP, or has too many headers";
  if (status == 404) message = "no such path";
  if (status == 413) message = "the body of the request is too large";
  if (status == 414) message = "the path is too long";
  if (status == 503) message = "too many connections; try again later";
  return json_line(RequestError(status, "", message).json());
}

HttpAnswer TextService::answer(const HttpRequest& request, const HttpClient& client) {
  const Clock::time_point begin = Clock::now();
  HttpAnswer answer;
  try {
    answer = routed(request, client);
  } catch (const RequestError& error) {
    answer = error_answer(error);
  } catch (const Error& error) {
    answer = error_answer(RequestError(500, "", error.what()));
  } catch (const std::exception& error) {
    answer = error_answer(RequestError(500, "", fmt::format("internal: {}", error.what())));
  }
  const bool known = std::find(kPaths.begin(), kPaths.end(), request.path) != kPaths.end();
  const std::string path = known ? request.path : "other";
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
  if (!given.starts_with(kScheme))
    throw RequestError(401, "", "no API key: send the header Authorization: Bearer KEY");
  given.remove_prefix(kScheme.size());
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
  if (!is_model && std::find(kPaths.begin(), kPaths.end(), path) == kPaths.end())
    throw RequestError(404, "", "no such path; see docs/serving.md");
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
  if (path == "/v1/embeddings") return embeddings(request, client);
  if (path == "/tokenize") return tokenize(request);
  if (path == "/detokenize") return detokenize(request);
  const Json body = request_object(request.body);
  return text(path == "/v1/completions" ? read_completion_request(body, model_, options_.limits)
                                        : read_chat_request(body, model_, options_.limits),
              client);
}

HttpAnswer TextService::models(const HttpRequest& request) const {
  const auto entry = [&](std::optional<std::int64_t> adapter) {
    Json model = {{"id", model_.name_of(adapter)},
                  {"object", "model"},
                  {"created", started_},
                  {"owned_by", "piton"},
                  {"max_model_len", model_.longest_sequence()}};
    if (adapter) model["parent"] = model_.name();
    return model;
  };
  constexpr std::string_view kList = "/v1/models";
  if (request.path != kList)
    return json_answer(entry(named_adapter(request.path.substr(kList.size() + 1), model_)));
  Json all = Json::array({entry(std::nullopt)});
  for (std::int64_t i = 0; i < std::ssize(model_.adapters()); ++i) all.push_back(entry(i));
  return json_answer({{"object", "list"}, {"data", std::move(all)}});
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
      special ? model_.encode_prompt(*text) : model_.tokenizer().encode(*text);
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

HttpAnswer TextService::embeddings(const HttpRequest& request, const HttpClient& client) {
  const EmbeddingRequest asked = read_embedding_request(request_object(request.body), model_);
  const Clock::time_point begin = Clock::now();
  Json data = Json::array();
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < asked.texts.size(); ++i) {
    if (Clock::now() > begin + options_.deadline)
      throw RequestError(504, "", "the answer took longer than the server's time limit");
    if (!client.is_connected()) throw RequestError(499, "", "the client has closed the connection");
    data.push_back(embedding_json(i, loop_.embed(asked.texts[i], asked.adapter), asked.base64));
    tokens += std::ssize(asked.texts[i]);
  }
  return json_answer({{"object", "list"},
                      {"data", std::move(data)},
                      {"model", model_.name_of(asked.adapter)},
                      {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

HttpAnswer TextService::text(TextRequest request, const HttpClient& client) {
  const auto writing = std::make_shared<Writing>(*this, std::move(request), client);
  if (!writing->request().stream) return writing->whole(client);
  return {.type = "text/event-stream",
          .stream = [writing](const HttpAnswer::Write& write, const HttpClient& reader) {
            writing->stream(write, reader);
          }};
}

}  // namespace piton
