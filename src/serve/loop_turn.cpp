#include "serve/loop_turn.h"

#include <optional>
#include <type_traits>

#include "base/json.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
struct OptionalOf : std::false_type {};
template <typename T>
struct OptionalOf<std::optional<T>> : std::true_type {};

// Every option of the sampling, by its name.
Json sampling_json(SamplingOptions sampling) {
  Json json = Json::object();
  sampling.visit([&](const Option& option, const auto& value) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (OptionalOf<Value>::value) {
      if (value) json[option.name] = *value;
    } else {
      json[option.name] = value;
    }
  });
  return json;
}

SamplingOptions read_sampling(const Json& json) {
  SamplingOptions sampling;
  sampling.visit([&](const Option& option, auto& value) {
    using Value = std::decay_t<decltype(value)>;
    const auto found = json.find(option.name);
    if (found == json.end()) return;
    if constexpr (OptionalOf<Value>::value) {
      value = found->template get<typename Value::value_type>();
    } else {
      value = found->template get<Value>();
    }
  });
  sampling.settle();
  return sampling;
}

// An adapter, or null.
Json adapter_json(std::optional<std::int64_t> adapter) {
  return adapter ? Json(*adapter) : Json(nullptr);
}

std::optional<std::int64_t> read_adapter(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return json.get<std::int64_t>();
}

}  // namespace

std::string turn_bytes(const LoopTurn& turn) {
  if (turn.empty()) return "";
  Json json = {{"cancelled", turn.cancelled}, {"last", turn.last}};
  json["embedded"] = Json::array();
  for (const TextToEmbed& text : turn.embedded)
    json["embedded"].push_back(
        {{"ids", text.ids}, {"adapter", adapter_json(text.adapter)}, {"types", text.types}});
  json["submitted"] = Json::array();
  for (const TextToWrite& text : turn.submitted) {
    json["submitted"].push_back({{"prompt", text.request.prompt},
                                 {"sampling", sampling_json(text.request.sampling)},
                                 {"ends", text.request.ends},
                                 {"draw", text.request.draw},
                                 {"adapter", adapter_json(text.request.adapter)},
                                 {"scored_from", text.request.scored_from},
                                 {"alternatives", text.request.alternatives},
                                 {"constraint", static_cast<int>(text.constraint.kind)},
                                 {"constraint_text", text.constraint.text}});
  }
  return json.dump();
}

LoopTurn read_turn(const std::string& bytes) {
  LoopTurn turn;
  if (bytes.empty()) return turn;
  const auto json = read_json<Json>(bytes);
  turn.cancelled = json["cancelled"].get<std::vector<std::int64_t>>();
  turn.last = json["last"].get<bool>();
  for (const Json& one : json["embedded"]) {
    turn.embedded.push_back({one["ids"].get<std::vector<std::int32_t>>(),
                             read_adapter(one["adapter"]),
                             one["types"].get<std::vector<std::int32_t>>()});
  }
  for (const Json& one : json["submitted"]) {
    TextToWrite& text = turn.submitted.emplace_back();
    text.request.prompt = one["prompt"].get<std::vector<std::int32_t>>();
    text.request.sampling = read_sampling(one["sampling"]);
    text.request.ends = one["ends"].get<std::vector<std::int32_t>>();
    text.request.draw = one["draw"].get<std::uint64_t>();
    text.request.adapter = read_adapter(one["adapter"]);
    text.request.scored_from = one["scored_from"].get<std::int64_t>();
    text.request.alternatives = one["alternatives"].get<std::vector<std::int32_t>>();
    text.constraint = {static_cast<ConstraintKind>(one["constraint"].get<int>()),
                       one["constraint_text"].get<std::string>()};
    text.grammar = constraint_grammar(text.constraint, "constraint");
  }
  return turn;
}

}  // namespace piton
