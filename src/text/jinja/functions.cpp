#include "text/jinja/functions.h"

#include <fmt/format.h>

#include <array>
#include <ctime>

#include "text/jinja/values/operators.h"
#include "text/jinja/values/value_text.h"

namespace piton::jinja {
namespace {

// As Jinja's sandbox.
constexpr std::int64_t kLongestRange = 100000;

JinjaValue range_function(Runtime&, Arguments& arguments) {
  const Parameters parameters("range", arguments, {"start", "stop", "step"});
  auto range = std::make_shared<Range>();
  const bool has_stop = parameters.has(1);
  range->start = has_stop ? parameters.need_integer(0) : 0;
  range->stop = parameters.need_integer(has_stop ? 1 : 0);
  range->step = parameters.integer_or(2, 1);
  if (range->step == 0) throw TemplateFailure("range(): the step must not be zero");
  if (range->size() > kLongestRange) {
    throw TemplateFailure(fmt::format("range(): more than {} items", kLongestRange));
  }
  return JinjaValue::object(Kind::kRange, std::move(range));
}

// dict(mapping or pairs, name=value, ...)
JinjaValue dict_function(Runtime& runtime, Arguments& arguments) {
  std::vector<Entry> entries;
  if (arguments.positional.size() > 1)
    throw TemplateFailure("dict() got more than one positional argument");
  if (!arguments.positional.empty()) {
    const JinjaValue& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      entries = source.dict().entries();
    } else {
      for (const JinjaValue& item : iterate(source, runtime.budget())) {
        const Values pair = iterate(item, runtime.budget());
        if (pair.size() != 2) throw TemplateFailure("dict() got an item that is not a pair");
        check_key(pair[0]);
        entries.emplace_back(pair[0], pair[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) entries.emplace_back(JinjaValue::text(name), value);
  runtime.budget().use_bytes(entries.size() * 2 * sizeof(JinjaValue));
  return JinjaValue::dict(std::move(entries));
}

JinjaValue namespace_function(Runtime& runtime, Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  const JinjaValue attributes = dict_function(runtime, arguments);
  runtime.budget().use_bytes(sizeof(Namespace));
  for (const auto& [key, value] : attributes.dict().entries()) {
    if (!key.is_text()) throw TemplateFailure("namespace() got a key that is not a text");
    check_namespace_name(key.str());
    space->set(key.str(), value);
  }
  runtime.keep(space);
  return JinjaValue::object(Kind::kNamespace, std::move(space));
}

JinjaValue raise_function(Runtime& runtime, Arguments& arguments) {
  const Parameters parameters("raise_exception", arguments, {"message"});
  throw TemplateFailure("the template refuses the conversation: " +
                        to_text(parameters.need(0), runtime.budget()));
}

// datetime.strftime() of a time without a zone: %f has no microseconds, %z and %Z are empty.
JinjaValue strftime_function(Runtime& runtime, Arguments& arguments) {
  const Parameters parameters("strftime_now", arguments, {"format"});
  const std::string& format = parameters.need_text(0);
  std::string plain;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      plain.push_back(format[i]);
      continue;
    }
    const char letter = format[++i];
    if (letter == 'f') plain += "000000";
    if (letter != 'f' && letter != 'z' && letter != 'Z') plain.append({'%', letter});
  }
  runtime.budget().use_bytes(plain.size() * 32);
  const auto seconds = static_cast<std::time_t>(runtime.now_seconds());
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  // A directive makes less than 64 characters; the blank tells an empty text from a full buffer.
  plain.push_back(' ');
  std::string text(plain.size() * 32 + 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), plain.c_str(), &parts));
  if (!text.empty()) text.pop_back();
  return JinjaValue::text(std::move(text));
}

using GlobalFunction = JinjaValue (*)(Runtime&, Arguments&);

constexpr auto kFunctions = std::to_array<std::pair<std::string_view, GlobalFunction>>({
    {"range", range_function},
    {"dict", dict_function},
    {"namespace", namespace_function},
    {"raise_exception", raise_function},
    {"strftime_now", strftime_function},
    {"lipsum", nullptr},
    {"cycler", nullptr},
    {"joiner", nullptr},
    {"self", nullptr},
});

}  // namespace

void check_namespace_name(std::string_view name) {
  if (name.starts_with('_')) {
    throw TemplateFailure(
        fmt::format("a namespace cannot have the attribute '{}', which begins with \"_\"", name));
  }
}

std::optional<JinjaValue> global_function(Runtime& runtime, std::string_view name) {
  for (const auto& [known, function] : kFunctions) {
    if (known != name) continue;
    return make_function(
        std::string(name), 0,
        [&runtime, function = function, name = std::string(name)](Arguments& arguments) {
          if (function == nullptr) {
            throw TemplateFailure(fmt::format("the function '{}' is not supported", name));
          }
          return function(runtime, arguments);
        });
  }
  return std::nullopt;
}

}  // namespace piton::jinja
