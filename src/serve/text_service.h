// The paths of the server: OpenAI's and Anthropic's under /v1, /tokenize, /detokenize, /health,
// /metrics, and the chat page at /.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "serve/decoding_loop.h"
#include "serve/http/http_server.h"
#include "serve/served_model.h"
#include "serve/server_metrics.h"
#include "serve/text_request.h"

namespace piton {

struct ServiceOptions {
  std::string api_key;  // that clients send in one of two headers; "": none is needed
  RequestLimits limits;
  std::chrono::milliseconds deadline{600'000};  // from a request to the end of its answer
};

class TextService {
 public:
  // References must outlive it.
  TextService(ServedModel& model, DecodingLoop& loop, ServiceOptions options);
  ~TextService();

  // An HttpHandler: any thread. Errors become answers.
  HttpAnswer answer(const HttpRequest& request, const HttpClient& client);
  // An HttpErrorBody.
  static std::string error_body(const HttpRefusal& refusal);

 private:
  HttpAnswer routed(const HttpRequest& request, const HttpClient& client);
  HttpAnswer models(const HttpRequest& request) const;
  HttpAnswer tokenize(const HttpRequest& request) const;
  HttpAnswer detokenize(const HttpRequest& request) const;
  HttpAnswer embeddings(const HttpRequest& request, const HttpClient& client);
  HttpAnswer rerank(const HttpRequest& request, const HttpClient& client);
  HttpAnswer classify(const HttpRequest& request, const HttpClient& client);
  // ServedModel::embed() of each text, those of near lengths together. Throws RequestError.
  std::vector<std::vector<float>> embedded(const std::vector<TextToEmbed>& texts,
                                           const HttpClient& client);
  HttpAnswer count_tokens(const HttpRequest& request) const;
  HttpAnswer text(TextRequest request, const HttpClient& client);
  void check_key(const HttpRequest& request) const;

  ServedModel& model_;
  DecodingLoop& loop_;
  ServiceOptions options_;
  ServerMetrics metrics_;
  std::int64_t started_ = 0;  // seconds since 1970
  std::atomic<std::uint64_t> next_id_{0};
};

}  // namespace piton
