#include "serve/classify_request.h"

#include <fmt/format.h>

#include "base/error.h"
#include "serve/http/request_error.h"
#include "serve/http/request_fields.h"
#include "serve/text_request.h"
#include "session/label_counts.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostInputs = 2048;

}  // namespace

std::vector<TextToEmbed> read_classify_request(const Json& body, const ServedModel& model) {
  RequestFields fields(body, "");
  named_adapter(fields.text("model"), model);
  const Json* input = fields.value("input");
  const std::string wanted = fmt::format("a string, or a list of 1 to {} strings", kMostInputs);
  std::vector<Json> given;
  if (input != nullptr && input->is_string()) given = {*input};
  if (input != nullptr && input->is_array()) given.assign(input->begin(), input->end());
  if (given.empty() || given.size() > kMostInputs) fields.fail("input", wanted);
  fields.ignore({"user"});
  fields.refuse_others();
  std::vector<TextToEmbed> texts;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].is_string()) fields.fail("input", wanted);
    try {
      texts.push_back(model.read_text(given[i].get<std::string>(), {}));
    } catch (const Error& error) {
      throw RequestError(400, "input", fmt::format("input[{}]: {}", i, error.what()));
    }
  }
  return texts;
}

Json classify_json(std::size_t index, std::span<const float> logits, const ServedModel& model) {
  const std::vector<std::string>& labels = model.labels();
  return {{"index", index},
          {"label", labels.at(static_cast<std::size_t>(largest(logits)))},
          {"probs", label_probabilities(logits, model.several_labels())},
          {"num_classes", labels.size()}};
}

}  // namespace piton
