#include "serve/http/request_fields.h"

#include <cmath>

#include "base/error.h"
#include "base/nesting.h"
#include "serve/http/request_error.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump();
  if (text.size() <= kLongest) return text;
  text.resize(valid_utf8_prefix(std::string_view(text).substr(0, kLongest)));
  return text + "...";
}

}  // namespace

RequestFields::RequestFields(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    throw RequestError(400, where_,
                       fmt::format("{}: got {}, wanted an object", where_, shown(object)));
}

std::string RequestFields::path_of(const std::string& name) const {
  return where_.empty() ? name : where_ + "." + name;
}

void RequestFields::fail(const std::string& name, const std::string& wanted) const {
  const auto found = object_.find(name);
  const std::string got = found == object_.end() ? "nothing" : shown(*found);
  throw RequestError(400, path_of(name),
                     fmt::format("{}: got {}, wanted {}", path_of(name), got, wanted));
}

const Json* RequestFields::value(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> RequestFields::number(const std::string& name, double least, double most) {
  const Json* json = value(name);
  if (json == nullptr) return std::nullopt;
  const double number = json->is_number() ? json->get<double>() : std::nan("");
  if (!(number >= least && number <= most))
    fail(name, fmt::format("a number from {} to {}", least, most));
  return number;
}

std::optional<std::int64_t> RequestFields::integer(const std::string& name, std::int64_t least,
                                                   std::int64_t most) {
  const Json* json = value(name);
  if (json == nullptr) return std::nullopt;
  const bool too_large = json->is_number_unsigned() &&
                         json->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  const bool fits = json->is_number_integer() && !too_large && json->get<std::int64_t>() >= least &&
                    json->get<std::int64_t>() <= most;
  if (!fits) fail(name, fmt::format("a whole number from {} to {}", least, most));
  return json->get<std::int64_t>();
}

std::optional<bool> RequestFields::flag(const std::string& name) {
  const Json* json = value(name);
  if (json == nullptr) return std::nullopt;
  if (!json->is_boolean()) fail(name, "true or false");
  return json->get<bool>();
}

std::optional<std::string> RequestFields::text(const std::string& name) {
  const Json* json = value(name);
  if (json == nullptr) return std::nullopt;
  if (!json->is_string()) fail(name, "a string");
  return json->get<std::string>();
}

std::vector<std::string> RequestFields::texts(const std::string& name, std::size_t most) {
  const Json* json = value(name);
  if (json == nullptr) return {};
  std::vector<std::string> list;
  const auto add = [&](const Json& one) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty() || list.size() == most)
      fail(name, fmt::format("a string that is not empty, or a list of at most {}", most));
    list.push_back(one.get<std::string>());
  };
  if (json->is_array()) {
    for (const Json& one : *json) add(one);
  } else {
    add(*json);
  }
  return list;
}

void RequestFields::ignore(std::initializer_list<const char*> names) {
  known_.insert(names.begin(), names.end());
}

void RequestFields::refuse_others() const {
  for (const auto& [name, value] : object_.items()) {
    if (known_.contains(name)) continue;
    const std::vector<std::string> names(known_.begin(), known_.end());
    const std::string near = nearest_name(name, names);
    const std::string hint = near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near);
    const std::string path = shown(Json(path_of(name)));
    throw RequestError(400, path_of(name), fmt::format("unknown field {}{}", path, hint));
  }
}

Json request_object(std::string_view body) {
  if (valid_utf8_prefix(body) != body.size())
    throw RequestError(400, "", "the body of the request is not UTF-8");
  try {
    check_json_depth(body, "body");
  } catch (const Error&) {
    throw RequestError(400, "",
                       fmt::format("the body of the request is nested too deeply: got more than {} "
                                   "levels",
                                   kMostLevels));
  }
  Json json = read_json_or_discarded<Json>(body);
  if (json.is_discarded()) throw RequestError(400, "", "the body of the request is not JSON");
  if (!json.is_object())
    throw RequestError(400, "", "the body of the request is not a JSON object");
  return json;
}

}  // namespace piton
