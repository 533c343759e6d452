// libraries: piton_serve piton_comm piton_device
// Any bytes as the body of a request to each path that reads one, and as the name of a model: a
// RequestError or the same as an answer, or a request that the engine can take.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "device/host_device.h"
#include "serve/classify_request.h"
#include "serve/completion_request.h"
#include "serve/conversation_request.h"
#include "serve/embedding_request.h"
#include "serve/http/request_error.h"
#include "serve/http/request_fields.h"
#include "serve/rerank_request.h"
#include "serve/text_request.h"
#include "serve/text_service.h"
#include "support/scripted_served_model.h"

namespace {

using FuzzedModel = piton::test::ScriptedServedModel;

FuzzedModel& model_with_adapters() {
  static FuzzedModel model;
  model.adapter_names = {"dialect", "other"};
  return model;
}

struct NeverGone final : piton::HttpClient {
  bool is_connected() const override { return true; }
};

template <typename Read>
void or_refused(Read&& read) {
  try {
    read();
  } catch (const piton::RequestError& error) {
    PITON_ASSERT(error.status() == 400 || error.status() == 404);
    error.json().dump();
  }
}

using ReadsRequest = piton::TextRequest (*)(const nlohmann::ordered_json& body,
                                            const piton::ServedModel& model,
                                            const piton::RequestLimits& limits);

void read_texts_to_write(const FuzzedModel& model, std::string_view body, ReadsRequest read) {
  const piton::RequestLimits limits{.new_tokens = model.longest_sequence()};
  const piton::TextRequest request = read(piton::request_object(body), model, limits);
  request.sampling.check(model.vocabulary());
  PITON_ASSERT(!request.adapter || *request.adapter < std::ssize(model.adapters()));
  for (const piton::TextToWrite& text : request.texts()) {
    PITON_ASSERT(!text.request.prompt.empty());
    PITON_ASSERT(std::ssize(text.request.prompt) <= model.longest_sequence());
  }
}

void read_texts_to_embed(const FuzzedModel& model, std::string_view body) {
  const piton::EmbeddingRequest request =
      piton::read_embedding_request(piton::request_object(body), model);
  PITON_ASSERT(!request.adapter || *request.adapter < std::ssize(model.adapters()));
  for (const auto& text : request.texts) {
    PITON_ASSERT(!text.empty() && std::ssize(text) <= model.longest_sequence());
    for (const std::int32_t id : text) PITON_ASSERT(id >= 0);
  }
}

void read_texts_to_label(const FuzzedModel& model, std::string_view body) {
  for (const piton::TextToEmbed& text :
       piton::read_classify_request(piton::request_object(body), model))
    PITON_ASSERT(!text.ids.empty() && text.types.size() == text.ids.size());
}

// Of a model that reads pairs.
void read_documents(const FuzzedModel& model, std::string_view body) {
  const piton::RerankRequest request =
      piton::read_rerank_request(piton::request_object(body), model);
  PITON_ASSERT(request.texts.size() == request.documents.size());
  PITON_ASSERT(request.most >= 1 && request.most <= std::ssize(request.documents));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static FuzzedModel& model = model_with_adapters();
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const ReadsRequest read : {piton::read_completion_request, piton::read_chat_request,
                                  piton::read_response_request, piton::read_message_request})
    or_refused([&] { read_texts_to_write(model, body, read); });
  or_refused([&] { read_texts_to_embed(model, body); });
  or_refused([&] { read_texts_to_label(model, body); });
  or_refused([&] { read_documents(model, body); });

  static piton::HostDevice device;
  static const std::unique_ptr<piton::World> world = piton::make_single_world(device);
  static const std::unique_ptr<piton::Communicator> ranks =
      piton::make_group_of_all(*world, "fuzz");
  static piton::DecodingLoop loop(model, *ranks, {});
  static piton::TextService service(model, loop, {});
  const auto ask = [&](const char* method, std::string path, std::string_view sent) {
    const piton::HttpAnswer answer = service.answer({.method = method,
                                                     .path = std::move(path),
                                                     .authorization = {},
                                                     .api_key = {},
                                                     .body = std::string(sent)},
                                                    NeverGone());
    PITON_ASSERT(answer.status == 200 || answer.status == 400 || answer.status == 404,
                 "status {}: {}", answer.status, answer.body);
  };
  ask("POST", "/tokenize", body);
  ask("POST", "/detokenize", body);
  ask("POST", "/v1/messages/count_tokens", body);
  ask("GET", "/v1/models/" + std::string(body), "");
  return 0;
}
