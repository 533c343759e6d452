// Requests for /v1/completions.
#pragma once

#include "serve/text_request.h"

namespace piton {

// Throws RequestError(400) that names the field, and RequestError(404) for another model.
TextRequest read_completion_request(const nlohmann::ordered_json& body, const ServedModel& model,
                                    const RequestLimits& limits);

}  // namespace piton
