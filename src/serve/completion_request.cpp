#include "serve/completion_request.h"

#include "serve/http/request_error.h"
#include "text/gap_marks.h"
#include "text/special_tokens.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// A prompt that ends in a gap, after which `suffix` follows. Its text ends at a mark too.
void read_gap(RequestFields& fields, const std::string& suffix, const ServedModel& model,
              TextRequest& request) {
  const Json* prompt = fields.value("prompt");
  if (prompt == nullptr || !prompt->is_string())
    fields.fail("prompt", "a string, since there is a suffix");
  if (request.echo) fields.fail("echo", "nothing, since there is a suffix");
  const Tokenizer& tokenizer = model.tokenizer();
  const std::optional<GapMarks> marks = gap_marks(tokenizer);
  if (!marks)
    throw RequestError(400, "suffix",
                       "suffix: the vocabulary has no tokens for a gap, such as <|fim_middle|>; "
                       "leave it out");
  std::vector<std::int32_t> ids;
  if (model.encode_prompt("a") != tokenizer.encode("a")) ids = frame_of(tokenizer).before;
  ids.push_back(marks->before);
  tokenizer.encode(prompt->get<std::string>(), {}, ids);
  ids.push_back(marks->after);
  tokenizer.encode(suffix, {}, ids);
  ids.push_back(marks->gap);
  request.prompts = {std::move(ids)};
  request.ends.insert(request.ends.end(), {marks->before, marks->after, marks->gap});
}

}  // namespace

TextRequest read_completion_request(const Json& body, const ServedModel& model,
                                    const RequestLimits& limits) {
  RequestFields fields(body, "");
  TextRequest request;
  read_shared_fields(fields, request, model);
  read_completion_fields(fields, request);
  set_length(request, fields.integer("max_tokens", 0, limits.new_tokens).value_or(16), limits);
  request.echo = fields.flag("echo").value_or(false);
  request.likeliest = fields.integer("logprobs", 0, kMostLikeliest);
  if (request.likeliest) request.sampling.log_probabilities = request.likeliest;
  if (fields.integer("best_of", 1, 128).value_or(request.samples) != request.samples)
    fields.fail("best_of", "the value of n");
  if (!request.generates && !request.echo)
    fields.fail("max_tokens", "1 or more, or \"echo\": true");
  const std::string suffix = fields.text("suffix").value_or("");
  if (suffix.empty()) {
    request.prompts = read_texts(fields, "prompt", model);
  } else {
    read_gap(fields, suffix, model, request);
  }
  fields.refuse_others();
  check_prompts(request, model, limits, "prompt");
  return request;
}

}  // namespace piton
