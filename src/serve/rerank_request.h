// Requests to order documents by how well they answer a query: /v1/rerank.
//
// A reward model judges each document as the answer of a conversation that begins with the query,
// as it was trained (preferences/): the prompt is that of its chat template. A model of numbers (a
// cross-encoder) reads both as a pair; the score is the sigmoid of its number, as that of
// sentence-transformers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/served_model.h"

namespace piton {

struct RerankRequest {
  std::vector<std::string> documents;
  std::vector<TextToEmbed> texts;  // a conversation, or a pair, with each document
  std::int64_t most = 0;           // results
  bool returns_documents = false;
};

// Throws RequestError(400) that names the field, and RequestError(404) for another model.
RerankRequest read_rerank_request(const nlohmann::ordered_json& body, const ServedModel& model);

// "results": the best document first, the earlier one on ties. `scores`: of each document.
nlohmann::ordered_json rerank_results(const RerankRequest& request,
                                      const std::vector<double>& scores);

}  // namespace piton
