// Requests for the labels of texts: /v1/classify, as of vLLM.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/served_model.h"

namespace piton {

// Of a classifier. Throws RequestError(400) that names the field, and RequestError(404) for another
// model.
std::vector<TextToEmbed> read_classify_request(const nlohmann::ordered_json& body,
                                               const ServedModel& model);

// One entry of "data": the likeliest label, the first of equal ones, and the probability of each.
nlohmann::ordered_json classify_json(std::size_t index, std::span<const float> logits,
                                     const ServedModel& model);

}  // namespace piton
