// Requests for an answer in a conversation, which a chat template makes a prompt of:
// /v1/chat/completions, /v1/responses and /v1/messages.
#pragma once

#include "serve/text_request.h"

namespace piton {

// Throw RequestError(400) that names the field, and RequestError(404) for another model.
TextRequest read_chat_request(const nlohmann::ordered_json& body, const ServedModel& model,
                              const RequestLimits& limits);
TextRequest read_response_request(const nlohmann::ordered_json& body, const ServedModel& model,
                                  const RequestLimits& limits);
TextRequest read_message_request(const nlohmann::ordered_json& body, const ServedModel& model,
                                 const RequestLimits& limits);

// The prompt of a request for /v1/messages/count_tokens, which has neither "max_tokens" nor fields
// of sampling.
std::vector<std::int32_t> read_message_prompt(const nlohmann::ordered_json& body,
                                              const ServedModel& model);

}  // namespace piton
