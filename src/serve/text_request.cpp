#include "serve/text_request.h"

#include <algorithm>

#include "base/error.h"
#include "serve/http/json_line.h"
#include "serve/http/request_error.h"
#include "serve/sampling_fields.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostStopWords = 16;

// Fields of OpenAI's that would change the answer and cannot be honored: allowed with the values
// that change nothing.
void refuse_unsupported(RequestFields& fields) {
  if (fields.flag("store").value_or(false)) fields.fail("store", "false (answers are not stored)");
  const Json* modalities = fields.value("modalities");
  if (modalities != nullptr && *modalities != Json::array({"text"}))
    fields.fail("modalities", "[\"text\"] (answers are texts)");
}

void read_constraint(RequestFields& fields, TextRequest& request) {
  std::vector<ConstraintText> found;
  std::string named;
  const auto add = [&](ConstraintKind kind, std::string text, const std::string& name) {
    found.push_back({kind, std::move(text)});
    named = name;
  };
  if (const Json* format = fields.value("response_format")) {
    RequestFields inner(*format, "response_format");
    const std::string type = inner.text("type").value_or("");
    if (type == "json_object") {
      add(ConstraintKind::kJsonObject, "", "response_format");
    } else if (type == "json_schema") {
      const Json* wrapped = inner.value("json_schema");
      if (wrapped == nullptr) inner.fail("json_schema", "an object with name and schema");
      RequestFields schema(*wrapped, "response_format.json_schema");
      schema.text("name");
      schema.text("description");
      schema.flag("strict");
      const Json* text = schema.value("schema");
      if (text == nullptr) schema.fail("schema", "a JSON schema");
      schema.refuse_others();
      add(ConstraintKind::kJsonSchema, text->dump(), "response_format.json_schema.schema");
    } else if (type != "text") {
      inner.fail("type", "text, json_object or json_schema");
    }
    inner.refuse_others();
  }
  if (const Json* schema = fields.value("guided_json")) {
    add(ConstraintKind::kJsonSchema,
        schema->is_string() ? schema->get<std::string>() : schema->dump(), "guided_json");
  }
  if (const auto pattern = fields.text("guided_regex"))
    add(ConstraintKind::kRegex, *pattern, "guided_regex");
  if (const Json* choices = fields.value("guided_choice"))
    add(ConstraintKind::kChoices, choices->dump(), "guided_choice");
  if (found.size() > 1)
    throw RequestError(400, named, named + ": a request has at most one constraint");
  if (!found.empty()) set_constraint(request, found.front(), named);
}

void read_stream_options(RequestFields& fields, TextRequest& request) {
  if (const Json* options = fields.value("stream_options")) {
    if (!request.stream) fields.fail("stream_options", "nothing, since stream is not true");
    RequestFields inner(*options, "stream_options");
    request.stream_usage = inner.flag("include_usage").value_or(false);
    inner.flag("include_obfuscation");
    inner.refuse_others();
  }
}

}  // namespace

void read_shared_fields(RequestFields& fields, TextRequest& request, const ServedModel& model,
                        const std::string& stop) {
  request.adapter = named_adapter(fields.text("model"), model);
  request.stop = fields.texts(stop, kMostStopWords);
  request.ends = model.ends();
  read_sampling(fields, request.sampling, model);
  request.stream = fields.flag("stream").value_or(false);
  fields.ignore({"metadata", "service_tier"});
}

void read_completion_fields(RequestFields& fields, TextRequest& request) {
  request.samples = fields.integer("n", 1, 128).value_or(1);
  refuse_unsupported(fields);
  read_constraint(fields, request);
  read_stream_options(fields, request);
  // A prediction of the answer would only make it faster.
  fields.ignore({"user", "safety_identifier", "prompt_cache_key", "prediction"});
}

void set_constraint(TextRequest& request, ConstraintText constraint, const std::string& field) {
  request.constraint = std::move(constraint);
  try {
    request.grammar = constraint_grammar(request.constraint, field);
  } catch (const Error& error) {
    throw RequestError(400, field, error.what());
  }
}

void set_length(TextRequest& request, std::optional<std::int64_t> asked,
                const RequestLimits& limits) {
  request.generates = asked.value_or(1) > 0;
  request.sampling.max_new_tokens =
      std::clamp<std::int64_t>(asked.value_or(limits.new_tokens), 1, limits.new_tokens);
}

void check_prompts(const TextRequest& request, const ServedModel& model,
                   const RequestLimits& limits, const std::string& field) {
  for (const auto& prompt : request.prompts) {
    const auto length = std::ssize(prompt);
    if (length == 0) throw RequestError(400, field, field + ": the prompt is empty");
    // A prompt that is only scored may fill the model.
    const std::int64_t longest = model.longest_sequence() - (request.generates ? 1 : 0);
    if (length > longest) {
      throw RequestError(400, field,
                         fmt::format("{}: the prompt has {} tokens and the model takes {} in all; "
                                     "shorten the prompt",
                                     field, length, model.longest_sequence()));
    }
    for (const std::int32_t id : prompt) {
      if (id >= 0 && id < model.vocabulary()) continue;
      throw RequestError(
          400, field,
          fmt::format("{}: got id {}, wanted 0 to {}", field, id, model.vocabulary() - 1));
    }
  }
  if (std::ssize(request.prompts) * request.samples > limits.texts) {
    throw RequestError(400, "n",
                       fmt::format("n: {} prompts x {} texts are more than {}",
                                   request.prompts.size(), request.samples, limits.texts));
  }
}

std::vector<std::vector<std::int32_t>> read_texts(RequestFields& fields, const std::string& name,
                                                  const ServedModel& model) {
  const Json* given = fields.value(name);
  const std::string wanted = "a string, a list of strings, or lists of token ids";
  if (given == nullptr) fields.fail(name, wanted);
  const auto ids_of = [&](const Json& list) {
    std::vector<std::int32_t> ids;
    for (const Json& one : list) {
      const bool fits = one.is_number_integer() && one >= 0 && one <= INT32_MAX;
      if (!fits) fields.fail(name, wanted);
      ids.push_back(one.get<std::int32_t>());
    }
    return ids;
  };
  if (given->is_string()) return {model.encode_prompt(given->get<std::string>())};
  if (!given->is_array() || given->empty()) fields.fail(name, wanted);
  if (given->front().is_number()) return {ids_of(*given)};
  std::vector<std::vector<std::int32_t>> texts;
  for (const Json& one : *given) {
    if (one.is_string()) {
      texts.push_back(model.encode_prompt(one.get<std::string>()));
    } else if (one.is_array()) {
      texts.push_back(ids_of(one));
    } else {
      fields.fail(name, wanted);
    }
  }
  return texts;
}

std::vector<TextToWrite> TextRequest::texts() const {
  std::vector<TextToWrite> all;
  for (const auto& prompt : prompts) {
    for (std::int64_t i = 0; i < samples; ++i) {
      TextToWrite& text = all.emplace_back();
      text.request.prompt = prompt;
      text.request.sampling = sampling;
      text.request.ends = ends;
      text.request.draw = static_cast<std::uint64_t>(i);
      text.request.adapter = adapter;
      text.constraint = constraint;
      text.grammar = grammar;
    }
  }
  return all;
}

std::optional<std::int64_t> named_adapter(const std::optional<std::string>& name,
                                          const ServedModel& model) {
  if (!name || *name == model.name()) return std::nullopt;
  const std::vector<std::string>& adapters = model.adapters();
  const auto found = std::ranges::find(adapters, *name);
  if (found != adapters.end()) return found - adapters.begin();
  // A name of a path may have any bytes.
  std::string names = json_line(model.name());
  for (const std::string& one : adapters) names += ", " + json_line(one);
  throw RequestError(
      404, "model",
      fmt::format("model: {} is not here; this server has {}", json_line(*name), names));
}

}  // namespace piton
