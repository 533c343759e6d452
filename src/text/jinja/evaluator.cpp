#include "text/jinja/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/functions.h"
#include "text/jinja/levels.h"
#include "text/jinja/value_tests.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/value_text.h"

namespace piton::jinja {

JinjaValue* Scope::find(std::string_view name) {
  for (auto& [known, value] : variables) {
    if (known == name) return &value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, JinjaValue value) {
  if (JinjaValue* known = find(name)) {
    *known = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

struct Evaluator::Level : CountedLevel {
  explicit Level(Evaluator& evaluator) : CountedLevel(evaluator.level_) {}
};

Evaluator::~Evaluator() {
  // Each is emptied while all others exist, so that no chain of them is freed by recursion.
  for (const auto& space : namespaces_) {
    const auto attributes = std::exchange(space->attributes, {});
  }
  for (const ScopePointer& scope : macro_scopes_) {
    const auto variables = std::exchange(scope->variables, {});
  }
}

Rendering Evaluator::run() {
  execute(syntax_.body, std::make_shared<Scope>());
  return std::move(rendering_);
}

ScopePointer Evaluator::inner(const ScopePointer& scope) {
  auto made = std::make_shared<Scope>();
  made->parent = scope;
  return made;
}

JinjaValue Evaluator::look_up(std::string_view name, const ScopePointer& scope) {
  for (Scope* at = scope.get(); at != nullptr; at = at->parent.get()) {
    if (const JinjaValue* found = at->find(name)) return *found;
  }
  for (const auto& [known, value] : surroundings_.variables) {
    if (known == name) return value;
  }
  if (auto function = global_function(*this, name)) return *function;
  return JinjaValue::undefined(fmt::format("'{}' is undefined", name));
}

JinjaValue Evaluator::evaluate(const Expression& expression, const ScopePointer& scope) {
  const Level level(*this);
  budget_.step();
  const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i], scope); };
  using Kind = Expression::Kind;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.constant;
    case Kind::kName:
      return look_up(expression.name, scope);
    case Kind::kList:
    case Kind::kTuple:
      return evaluate_items(expression, scope);
    case Kind::kDict:
      return evaluate_dict(expression, scope);
    case Kind::kAttribute:
      return attribute_of(*this, part(0), expression.name);
    case Kind::kItem: {
      const JinjaValue container = part(0);
      return item_of(*this, container, part(1));
    }
    case Kind::kSlice:
      return evaluate_slice(expression, scope);
    case Kind::kCall: {
      const JinjaValue function = part(0);
      Arguments arguments = evaluate_arguments(expression.call, scope);
      return call(function, arguments);
    }
    case Kind::kFilter:
      return evaluate_filter(expression, scope);
    case Kind::kTest: {
      const JinjaValue value = part(0);
      return JinjaValue::boolean(
          apply_test(*this, expression.name, value, evaluate_arguments(expression.call, scope)));
    }
    case Kind::kNot:
      return JinjaValue::boolean(!truth(part(0)));
    case Kind::kNegate:
      return negated(part(0));
    case Kind::kPlus:
      return plus(part(0));
    case Kind::kArithmetic: {
      const JinjaValue left = part(0);
      return arithmetic(expression.name, left, part(1), budget_);
    }
    case Kind::kConcatenate:
      return concatenate(expression, scope);
    case Kind::kCompare:
      return evaluate_compare(expression, scope);
    case Kind::kAnd: {
      JinjaValue left = part(0);
      return truth(left) ? part(1) : left;
    }
    case Kind::kOr: {
      JinjaValue left = part(0);
      return truth(left) ? left : part(1);
    }
    case Kind::kConditional:
      if (truth(part(0))) return part(1);
      if (expression.parts[2] != nullptr) return part(2);
      return JinjaValue::undefined(
          fmt::format("the inline if-expression on line {} evaluated to false and no else section "
                      "was defined.",
                      expression.line));
    case Kind::kMember:
      break;
  }
  throw TemplateFailure("this expression is only a target");
}

JinjaValue Evaluator::evaluate_items(const Expression& expression, const ScopePointer& scope) {
  Values items;
  budget_.use_bytes(expression.parts.size() * sizeof(JinjaValue));
  for (const auto& part : expression.parts) items.push_back(evaluate(*part, scope));
  return expression.kind == Expression::Kind::kList ? JinjaValue::list(std::move(items))
                                                    : JinjaValue::tuple(std::move(items));
}

JinjaValue Evaluator::evaluate_dict(const Expression& expression, const ScopePointer& scope) {
  std::vector<Entry> entries;
  budget_.use_bytes(expression.parts.size() * sizeof(JinjaValue));
  for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
    JinjaValue key = evaluate(*expression.parts[i], scope);
    check_key(key);
    entries.emplace_back(std::move(key), evaluate(*expression.parts[i + 1], scope));
  }
  return JinjaValue::dict(std::move(entries));
}

JinjaValue Evaluator::evaluate_slice(const Expression& expression, const ScopePointer& scope) {
  const JinjaValue value = evaluate(*expression.parts[0], scope);
  const auto bound = [&](std::size_t i) -> std::optional<std::int64_t> {
    if (expression.parts[i] == nullptr) return std::nullopt;
    const JinjaValue at = evaluate(*expression.parts[i], scope);
    if (at.is_none()) return std::nullopt;
    if (!at.is_integral()) throw TemplateFailure("slice indices must be integers or None");
    return at.as_integer();
  };
  SliceBounds bounds;
  bounds.start = bound(1);
  bounds.stop = bound(2);
  bounds.step = bound(3);
  return slice_of(value, bounds, budget_);
}

JinjaValue Evaluator::evaluate_compare(const Expression& expression, const ScopePointer& scope) {
  JinjaValue left = evaluate(*expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    JinjaValue right = evaluate(*expression.parts[i + 1], scope);
    budget_.step();
    if (!compare(expression.operators[i], left, right)) return JinjaValue::boolean(false);
    left = std::move(right);
  }
  return JinjaValue::boolean(true);
}

JinjaValue Evaluator::evaluate_filter(const Expression& expression, const ScopePointer& scope) {
  const Expression* source = expression.parts[0].get();
  const JinjaValue value = source != nullptr ? evaluate(*source, scope) : *block_text_;
  return apply_filter(*this, expression.name, value, evaluate_arguments(expression.call, scope));
}

JinjaValue Evaluator::concatenate(const Expression& expression, const ScopePointer& scope) {
  std::string text;
  for (const auto& part : expression.parts) {
    text += to_text(evaluate(*part, scope), budget_);
    if (text.size() > (std::size_t{1} << 28))
      throw TemplateFailure("a text is longer than 256 MiB");
  }
  budget_.use_bytes(text.size());
  return JinjaValue::text(std::move(text));
}

Arguments Evaluator::evaluate_arguments(const CallSyntax& call, const ScopePointer& scope) {
  Arguments arguments;
  for (const auto& argument : call.positional) {
    arguments.positional.push_back(evaluate(*argument, scope));
  }
  if (call.more_positional != nullptr) {
    const Values more = iterate(evaluate(*call.more_positional, scope), budget_);
    arguments.positional.insert(arguments.positional.end(), more.begin(), more.end());
  }
  for (const auto& [name, argument] : call.named) {
    arguments.named.emplace_back(name, evaluate(*argument, scope));
  }
  if (call.more_named != nullptr) {
    const JinjaValue more = evaluate(*call.more_named, scope);
    if (!more.is(Kind::kDict)) throw TemplateFailure("the argument after ** must be a mapping");
    for (const auto& [key, value] : more.dict().entries()) {
      if (!key.is_text()) throw TemplateFailure("keywords must be texts");
      arguments.named.emplace_back(key.str(), value);
    }
  }
  return arguments;
}

JinjaValue Evaluator::call(const JinjaValue& function, Arguments& arguments) {
  budget_.step();
  if (function.is_undefined()) throw TemplateFailure(function.str());
  if (function.is(Kind::kLoop))
    throw TemplateFailure("recursive loops are not supported; write a macro");
  if (!function.is(Kind::kFunction)) {
    throw TemplateFailure(fmt::format("'{}' object is not callable", type_name(function)));
  }
  return function.as<Function>().call(arguments);
}

JinjaValue Evaluator::make_macro(const Statement& statement, const ScopePointer& scope) {
  budget_.use_bytes(sizeof(Scope));
  macro_scopes_.push_back(scope);
  return make_function(statement.macro->name, 0, [this, &statement, scope](Arguments& arguments) {
    return call_macro(statement, scope, arguments);
  });
}

void Evaluator::bind_parameters(const MacroSyntax& macro, const ScopePointer& scope,
                                Arguments& arguments) {
  const std::size_t count = macro.parameters.size();
  const std::size_t without_default = count - macro.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    std::optional<JinjaValue> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = arguments.take(name);
    }
    if (!value && i >= without_default) {
      value = evaluate(*macro.defaults[i - without_default], scope);
    }
    if (!value) value = JinjaValue::undefined(fmt::format("parameter '{}' was not provided", name));
    scope->set(name, std::move(*value));
  }
  if (macro.uses_caller && scope->find("caller") == nullptr) {
    const auto caller = arguments.take("caller");
    scope->set("caller", caller ? *caller : JinjaValue::undefined("No caller defined"));
  }
  if (macro.uses_named) {
    std::vector<Entry> entries;
    for (const auto& [name, value] : arguments.named) {
      entries.emplace_back(JinjaValue::text(name), value);
    }
    scope->set("kwargs", JinjaValue::dict(std::move(entries)));
  } else if (!arguments.named.empty()) {
    throw TemplateFailure(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name,
                                      arguments.named[0].first));
  }
  const std::size_t used = std::min(arguments.positional.size(), count);
  if (macro.uses_positional) {
    const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(used);
    scope->set("varargs", JinjaValue::tuple(Values(rest, arguments.positional.end())));
  } else if (arguments.positional.size() > count) {
    throw TemplateFailure(
        fmt::format("macro '{}' takes not more than {} arguments", macro.name, count));
  }
}

JinjaValue Evaluator::call_macro(const Statement& statement, const ScopePointer& scope,
                                 Arguments& arguments) {
  const Level level(*this);
  const int line = line_;
  const ScopePointer body_scope = inner(scope);
  bind_parameters(*statement.macro, body_scope, arguments);
  std::string text = captured(statement.branches[0], body_scope);
  line_ = line;
  return JinjaValue::text(std::move(text));
}

}  // namespace piton::jinja
