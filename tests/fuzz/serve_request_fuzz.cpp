// libraries: piton_serve
// Any bytes as the body of a request for texts: a RequestError, or a request that the engine can
// take.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "serve/request_error.h"
#include "serve/request_fields.h"
#include "serve/text_request.h"
#include "support/scripted_served_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const piton::test::ScriptedServedModel model;
  const piton::RequestLimits limits{.new_tokens = model.longest_sequence()};
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const bool chat : {false, true}) {
    try {
      const auto json = piton::request_object(body);
      const piton::TextRequest request = chat ? piton::read_chat_request(json, model, limits)
                                              : piton::read_completion_request(json, model, limits);
      request.sampling.check(model.vocabulary());
      for (const piton::TextToWrite& text : request.texts()) {
        PITON_ASSERT(!text.request.prompt.empty());
        PITON_ASSERT(std::ssize(text.request.prompt) <= model.longest_sequence());
      }
    } catch (const piton::RequestError& error) {
      PITON_ASSERT(error.status() == 400 || error.status() == 404);
      error.json().dump();
    }
  }
  return 0;
}
