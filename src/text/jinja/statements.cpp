// Statements of templates.
#include <fmt/format.h>

#include "text/jinja/evaluator.h"
#include "text/jinja/functions.h"
#include "text/jinja/levels.h"
#include "text/jinja/values/value_text.h"

namespace piton::jinja {

struct Evaluator::Capture {
  explicit Capture(Evaluator& evaluator)
      : evaluator(evaluator), outer(std::exchange(evaluator.out_, &text)) {}
  ~Capture() { evaluator.out_ = outer; }
  Evaluator& evaluator;
  std::string text;
  std::string* outer;
};

void Evaluator::write(std::string_view text) {
  budget_.use_bytes(text.size());
  out_->append(text);
}

std::string Evaluator::captured(const Body& body, const ScopePointer& scope) {
  Capture capture(*this);
  execute(body, scope);
  return std::move(capture.text);
}

Evaluator::Flow Evaluator::execute(const Body& body, const ScopePointer& scope) {
  const CountedLevel level(level_);
  for (const Statement& statement : body) {
    const Flow flow = execute(statement, scope);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const Statement& statement, const ScopePointer& scope) {
  budget_.step();
  line_ = statement.line;
  using Kind = Statement::Kind;
  switch (statement.kind) {
    case Kind::kData:
      write(statement.text);
      break;
    case Kind::kOutput:
      write(to_text(evaluate(*statement.value, scope), budget_));
      break;
    case Kind::kIf:
      return execute_if(statement, scope);
    case Kind::kFor:
      return execute_for(statement, scope);
    case Kind::kSet:
      assign(*statement.target, evaluate(*statement.value, scope), scope);
      break;
    case Kind::kSetBlock:
      assign(*statement.target, filtered_block(statement, scope), scope);
      break;
    case Kind::kMacro:
      scope->set(statement.macro->name, make_macro(statement, scope));
      break;
    case Kind::kCallBlock:
      execute_call_block(statement, scope);
      break;
    case Kind::kFilterBlock:
      write(to_text(filtered_block(statement, scope), budget_));
      break;
    case Kind::kWith:
      return execute_with(statement, scope);
    case Kind::kGeneration:
      execute_generation(statement, scope);
      break;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_if(const Statement& statement, const ScopePointer& scope) {
  for (std::size_t i = 0; i < statement.tests.size(); ++i) {
    line_ = statement.tests[i]->line;
    if (truth(evaluate(*statement.tests[i], scope))) return execute(statement.branches[i], scope);
  }
  return execute(statement.otherwise, scope);
}

std::shared_ptr<Loop> Evaluator::make_loop(const Statement& statement, const JinjaValue& source,
                                           const ScopePointer& scope) {
  if (!is_iterable(source) || source.is(Kind::kLoop)) {
    throw TemplateFailure(fmt::format("'{}' object is not iterable", type_name(source)));
  }
  auto loop = std::make_shared<Loop>();
  if (source.is(Kind::kIterator)) {
    loop->pull = [source](JinjaValue& item) {
      auto& iterator = source.as<Iterator>();
      if (iterator.next == iterator.items.size()) return false;
      item = iterator.items[iterator.next++];
      return true;
    };
  } else if (source.is(Kind::kRange)) {
    loop->size = length(source);
    loop->pull = [source, next = std::int64_t{0}](JinjaValue& item) mutable {
      const auto& range = source.as<Range>();
      if (next == range.size()) return false;
      item = JinjaValue::integer(range.start + next++ * range.step);
      return true;
    };
  } else {
    const JinjaValue items =
        source.is_sequence() ? source : JinjaValue::list(iterate(source, budget_));
    loop->size = length(items);
    loop->pull = [items, next = std::size_t{0}](JinjaValue& item) mutable {
      if (next == items.items().size()) return false;
      item = items.items()[next++];
      return true;
    };
  }
  loop->depth = source.depth();
  if (statement.test == nullptr) return loop;
  loop->size.reset();
  loop->pull = [this, &statement, scope, next = std::move(loop->pull)](JinjaValue& item) {
    while (next(item)) {
      budget_.step();
      const ScopePointer tested = inner(scope);
      assign(*statement.target, item, tested);
      if (truth(evaluate(*statement.test, tested))) return true;
    }
    return false;
  };
  return loop;
}

Evaluator::Flow Evaluator::execute_for(const Statement& statement, const ScopePointer& scope) {
  const JinjaValue source = evaluate(*statement.value, scope);
  const std::shared_ptr<Loop> loop = make_loop(statement, source, scope);
  const JinjaValue loop_value = JinjaValue::object(Kind::kLoop, loop);
  bool any = false;
  while (loop->advance()) {
    any = true;
    budget_.step();
    const ScopePointer body_scope = inner(scope);
    assign(*statement.target, loop->current, body_scope);
    body_scope->set("loop", loop_value);
    if (execute(statement.branches[0], body_scope) == Flow::kBreak) break;
    line_ = statement.line;
  }
  // A break or continue here belongs to the loop around this one.
  return any ? Flow::kNext : execute(statement.otherwise, inner(scope));
}

Evaluator::Flow Evaluator::execute_with(const Statement& statement, const ScopePointer& scope) {
  const ScopePointer body_scope = inner(scope);
  Values values;
  for (const auto& value : statement.values) values.push_back(evaluate(*value, scope));
  for (std::size_t i = 0; i < values.size(); ++i) {
    assign(*statement.targets[i], values[i], body_scope);
  }
  return execute(statement.branches[0], body_scope);
}

void Evaluator::execute_generation(const Statement& statement, const ScopePointer& scope) {
  const bool in_place = out_ == &rendering_.text;
  const std::string text = captured(statement.branches[0], inner(scope));
  rendering_.misplaced_generation = rendering_.misplaced_generation || !in_place;
  if (in_place) {
    rendering_.generation.push_back({out_->size(), out_->size() + text.size()});
  }
  write(text);
}

void Evaluator::execute_call_block(const Statement& statement, const ScopePointer& scope) {
  const JinjaValue function = evaluate(*statement.value->parts[0], scope);
  Arguments arguments = evaluate_arguments(statement.value->call, scope);
  arguments.named.emplace_back("caller", make_macro(statement, scope));
  write(to_text(call(function, arguments), budget_));
}

JinjaValue Evaluator::filtered_block(const Statement& statement, const ScopePointer& scope) {
  const JinjaValue text = JinjaValue::text(captured(statement.branches[0], inner(scope)));
  if (statement.value == nullptr) return text;
  const JinjaValue* const outer = std::exchange(block_text_, &text);
  JinjaValue result = evaluate(*statement.value, scope);
  block_text_ = outer;
  return result;
}

void Evaluator::assign(const Expression& target, const JinjaValue& value,
                       const ScopePointer& scope) {
  if (target.kind == Expression::Kind::kName) return scope->set(target.name, value);
  if (target.kind == Expression::Kind::kMember) {
    const JinjaValue space = look_up(target.name, scope);
    if (!space.is(Kind::kNamespace)) {
      throw TemplateFailure(
          fmt::format("cannot assign attribute on non-namespace object '{}'", target.name));
    }
    check_namespace_name(target.operators[0]);
    return space.as<Namespace>().set(target.operators[0], value);
  }
  if (!is_iterable(value)) {
    throw TemplateFailure(fmt::format("cannot unpack non-iterable {} object", type_name(value)));
  }
  const Values items = iterate(value, budget_);
  if (items.size() != target.parts.size()) {
    throw TemplateFailure(
        fmt::format("got {} values to unpack, wanted {}", items.size(), target.parts.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
}

}  // namespace piton::jinja
