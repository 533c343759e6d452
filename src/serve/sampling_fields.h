// The fields of a request that say how tokens are drawn.
#pragma once

#include "generate/sampling.h"
#include "serve/http/request_fields.h"
#include "serve/served_model.h"

namespace piton {

// With the names of OpenAI's, vLLM's and llama.cpp's servers. Without "seed" a random one. Throws
// RequestError(400) that names the field.
void read_sampling(RequestFields& fields, SamplingOptions& sampling, const ServedModel& model);

}  // namespace piton
