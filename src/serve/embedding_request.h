// Requests for vectors of texts: /v1/embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/served_model.h"

namespace piton {

struct EmbeddingRequest {
  std::vector<std::vector<std::int32_t>> texts;
  std::optional<std::int64_t> adapter;  // ServedModel::adapters
  bool base64 = false;  // vectors as base64 of fp32, little-endian; else lists of numbers
};

// Throws RequestError(400) that names the field, and RequestError(404) for another model.
EmbeddingRequest read_embedding_request(const nlohmann::ordered_json& body,
                                        const ServedModel& model);

// One entry of "data": the vector with the length 1.
nlohmann::ordered_json embedding_json(std::size_t index, std::span<const float> vector,
                                      bool base64);

}  // namespace piton
