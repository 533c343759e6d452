#include "serve/text_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "serve/answers.h"
#include "serve/chat/chat_messages.h"
#include "serve/http/request_error.h"
#include "serve/http/request_fields.h"
#include "text/chat/chat_tokens.h"
#include "text/chat/turn_ends.h"
#include "text/gap_marks.h"
#include "text/special_tokens.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostLikeliest = 20;
constexpr std::size_t kMostStopWords = 16;

// An object with ids of tokens as names, as OpenAI has it.
void read_bias(RequestFields& fields, SamplingOptions& sampling, std::int64_t vocabulary) {
  const Json* biases = fields.value("logit_bias");
  if (biases == nullptr) return;
  const auto fail = [&] {
    fields.fail("logit_bias",
                fmt::format("an object with ids of tokens (0 to {}) and numbers from -100 to 100",
                            vocabulary - 1));
  };
  if (!biases->is_object()) fail();
  for (const auto& [name, bias] : biases->items()) {
    std::int32_t id = -1;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), id);
    const bool is_id = read.ec == std::errc() && read.ptr == name.data() + name.size() && id >= 0 &&
                       id < vocabulary;
    if (!is_id || !bias.is_number() || std::abs(bias.get<double>()) > 100) fail();
    sampling.bias_texts.push_back(fmt::format("{}={}", id, bias.get<double>()));
  }
}

// The DRY penalty, with the names of llama.cpp's server.
void read_runs(RequestFields& fields, SamplingOptions& sampling, std::int64_t longest) {
  RunPenalty& dry = sampling.dry;
  dry.multiplier = fields.number("dry_multiplier", 0, kMostRunPenalty).value_or(dry.multiplier);
  dry.base = fields.number("dry_base", 1, kMostRunPenalty).value_or(dry.base);
  dry.allowed_length =
      fields.integer("dry_allowed_length", 0, longest).value_or(dry.allowed_length);
  dry.last_tokens = fields.integer("dry_penalty_last_n", -1, longest).value_or(dry.last_tokens);
  sampling.dry_breakers = fields.texts("dry_sequence_breakers", kMostStopWords);
}

void read_sampling(RequestFields& fields, TextRequest& request, const ServedModel& model) {
  SamplingOptions& sampling = request.sampling;
  const auto read = [&](const char* field, double least, double most, double& place) {
    place = fields.number(field, least, most).value_or(place);
  };
  // A temperature near 0 divides logits to infinity; 0 is the greedy choice.
  read("temperature", 0, 100, sampling.temperature);
  read("top_p", 0, 1, sampling.top_p);
  read("min_p", 0, 1, sampling.min_p);
  read("repetition_penalty", kLeastRepetitionPenalty, kMostRepetitionPenalty,
       sampling.repetition_penalty);
  read("presence_penalty", -2, 2, sampling.presence_penalty);
  read("frequency_penalty", -2, 2, sampling.frequency_penalty);
  if (sampling.temperature > 0 && sampling.temperature < 1e-4) sampling.temperature = 0;
  read("typical_p", 0, 1, sampling.typical_p);
  read("top_n_sigma", -1, kMostPenalty, sampling.top_n_sigma);
  sampling.top_n_sigma = std::max(sampling.top_n_sigma, 0.0);  // -1 is llama.cpp's "all"
  read("xtc_probability", 0, 1, sampling.xtc_probability);
  read("xtc_threshold", 0, 1, sampling.xtc_threshold);
  if (sampling.typical_p == 0) fields.fail("typical_p", "a number above 0, at most 1");
  if (sampling.xtc_threshold == 0) fields.fail("xtc_threshold", "a number above 0, at most 1");
  if (sampling.top_p == 0) fields.fail("top_p", "a number above 0, at most 1");
  if (const auto top_k = fields.integer("top_k", -1, model.vocabulary()))
    sampling.top_k = std::max<std::int64_t>(*top_k, 0);
  sampling.no_repeat_ngram_size =
      fields.integer("no_repeat_ngram_size", 0, model.longest_sequence()).value_or(0);
  read_runs(fields, sampling, model.longest_sequence());
  read_bias(fields, sampling, model.vocabulary());
  if (const auto seed = fields.integer("seed", std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max())) {
    sampling.seed = static_cast<std::uint64_t>(*seed);
  } else {
    std::random_device device;
    sampling.seed = static_cast<std::uint64_t>(device()) << 32 | device();
  }
  sampling.settle();
}

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
  if (found.empty()) return;
  request.constraint = found.front();
  try {
    request.grammar = constraint_grammar(request.constraint, named);
  } catch (const Error& error) {
    throw RequestError(400, named, error.what());
  }
}

// The answer must be a call.
void set_call_constraint(const Json& schema, TextRequest& request) {
  if (request.grammar)
    throw RequestError(400, "tool_choice", "tool_choice: a request has at most one constraint");
  request.constraint = {ConstraintKind::kJsonSchema, schema.dump()};
  try {
    request.grammar = constraint_grammar(request.constraint, "tools");
  } catch (const Error& error) {
    throw RequestError(400, "tools", error.what());
  }
}

void read_stream(RequestFields& fields, TextRequest& request) {
  request.stream = fields.flag("stream").value_or(false);
  if (const Json* options = fields.value("stream_options")) {
    if (!request.stream) fields.fail("stream_options", "nothing, since stream is not true");
    RequestFields inner(*options, "stream_options");
    request.stream_usage = inner.flag("include_usage").value_or(false);
    inner.flag("include_obfuscation");
    inner.refuse_others();
  }
}

// Fields of both kinds of request. `default_tokens`: of max_tokens; unset: what the model has room
// for.
void read_shared(RequestFields& fields, TextRequest& request, const ServedModel& model) {
  request.adapter = named_adapter(fields.text("model"), model);
  request.samples = fields.integer("n", 1, 128).value_or(1);
  request.stop = fields.texts("stop", kMostStopWords);
  request.ends = model.ends();
  read_sampling(fields, request, model);
  refuse_unsupported(fields);
  read_constraint(fields, request);
  read_stream(fields, request);
  // A prediction of the answer would only make it faster.
  fields.ignore(
      {"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prediction"});
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

// A variable that the template does not read would be ignored silently.
void check_variables(const Json& variables, const ChatTemplate& chat_template) {
  const auto unread = chat_template.unread_variable(variables);
  if (!unread) return;
  const bool is_effort = *unread == "reasoning_effort";
  const std::string field = is_effort ? *unread : "chat_template_kwargs." + *unread;
  throw RequestError(400, field,
                     json_line(field) + ": the chat template does not read it; leave it out");
}

}  // namespace

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

TextRequest read_completion_request(const Json& body, const ServedModel& model,
                                    const RequestLimits& limits) {
  RequestFields fields(body, "");
  TextRequest request;
  read_shared(fields, request, model);
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

TextRequest read_chat_request(const Json& body, const ServedModel& model,
                              const RequestLimits& limits) {
  RequestFields fields(body, "");
  TextRequest request{.chat = true};
  read_shared(fields, request, model);
  auto length = fields.integer("max_completion_tokens", 1, limits.new_tokens);
  const auto old_name = fields.integer("max_tokens", 1, limits.new_tokens);
  set_length(request, length ? length : old_name, limits);
  const bool with_logprobs = fields.flag("logprobs").value_or(false);
  const auto likeliest = fields.integer("top_logprobs", 0, kMostLikeliest);
  if (likeliest && !with_logprobs)
    fields.fail("top_logprobs", "nothing, since logprobs is not true");
  if (with_logprobs) {
    request.likeliest = likeliest.value_or(0);
    request.sampling.log_probabilities = request.likeliest;
  }
  request.several_calls = fields.flag("parallel_tool_calls").value_or(true);
  ChatRequest chat = read_chat(fields);
  const ChatInput& input = chat.input;
  request.tools = std::move(chat.tools);
  if (!chat.call_schema.is_null()) set_call_constraint(chat.call_schema, request);
  fields.refuse_others();
  const ChatTemplate* chat_template = model.chat_template(!input.tools.is_null());
  if (chat_template == nullptr) {
    throw RequestError(400, "messages",
                       "messages: the model has no chat template; start the server with "
                       "--chat-template, or use /v1/completions");
  }
  check_variables(input.variables, *chat_template);
  try {
    const RenderedChat prompt = chat_template->render(input, /*add_generation_prompt=*/true);
    request.prompts = {encode_chat(model.tokenizer(), prompt).ids};
    // A constraint begins with the first token.
    if (limits.finds_reasoning && !request.grammar)
      request.reasoning = reasoning_after(prompt.text, chat_template->source());
  } catch (const Error& error) {
    throw RequestError(400, "messages", fmt::format("messages: {}", error.what()));
  }
  for (const std::int32_t id : turn_ends(*chat_template, model.tokenizer())) {
    if (std::find(request.ends.begin(), request.ends.end(), id) == request.ends.end())
      request.ends.push_back(id);
  }
  check_prompts(request, model, limits, "messages");
  return request;
}

}  // namespace piton
