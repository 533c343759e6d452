#include "text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/value_tests.h"

namespace piton::jinja {

using Type = Lexeme::Type;

struct ExpressionParser::NestedSyntax {
  explicit NestedSyntax(ExpressionParser& parser) : parser(parser) {
    if (++parser.level_ > kMostSyntaxLevels) {
      parser.fail(fmt::format("expressions or blocks are nested too deeply: more than {} levels",
                              kMostSyntaxLevels));
    }
  }
  ~NestedSyntax() { --parser.level_; }
  ExpressionParser& parser;
};

void ExpressionParser::refuse_unknown() const {
  if (!unknown_.empty()) throw unknown_.front();
}

ExpressionPointer ExpressionParser::make(Expression::Kind kind, int line,
                                         std::vector<ExpressionPointer> parts) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->parts = std::move(parts);
  return made;
}

ExpressionPointer ExpressionParser::constant(JinjaValue value, int line) {
  ExpressionPointer made = make(Expression::Kind::kConstant, line);
  made->constant = std::move(value);
  return made;
}

namespace {

// A list of one to three pointers, which an initializer list cannot hold.
template <typename... Pointers>
std::vector<ExpressionPointer> parts_of(Pointers... pointers) {
  std::vector<ExpressionPointer> parts;
  (parts.push_back(std::move(pointers)), ...);
  return parts;
}

}  // namespace

ExpressionPointer ExpressionParser::parse_expression(bool with_condition) {
  const NestedSyntax nested(*this);
  if (!with_condition) return parse_or();
  const std::size_t known = unknown_.size();
  const int line = current().line;
  ExpressionPointer value = parse_or();
  const int level = level_;
  while (skip_keyword("if")) {
    // A chain of conditions is a tree as deep as it is long; the same holds for other chains.
    const NestedSyntax in_chain(*this);
    ++level_;
    ExpressionPointer condition = parse_or();
    ExpressionPointer otherwise = skip_keyword("else") ? parse_expression() : nullptr;
    value = make(Expression::Kind::kConditional, line,
                 parts_of(std::move(condition), std::move(value), std::move(otherwise)));
    unknown_.resize(known);
  }
  level_ = level;
  return value;
}

ExpressionPointer ExpressionParser::parse_or() {
  const int line = current().line;
  ExpressionPointer left = parse_and();
  const int level = level_;
  while (skip_keyword("or")) {
    const NestedSyntax nested(*this);
    ++level_;
    left = make(Expression::Kind::kOr, line, parts_of(std::move(left), parse_and()));
  }
  level_ = level;
  return left;
}

ExpressionPointer ExpressionParser::parse_and() {
  const int line = current().line;
  ExpressionPointer left = parse_not();
  const int level = level_;
  while (skip_keyword("and")) {
    const NestedSyntax nested(*this);
    ++level_;
    left = make(Expression::Kind::kAnd, line, parts_of(std::move(left), parse_not()));
  }
  level_ = level;
  return left;
}

ExpressionPointer ExpressionParser::parse_not() {
  const int line = current().line;
  if (!skip_keyword("not")) return parse_compare();
  const NestedSyntax nested(*this);
  return make(Expression::Kind::kNot, line, parts_of(parse_not()));
}

ExpressionPointer ExpressionParser::parse_compare() {
  const int line = current().line;
  std::vector<ExpressionPointer> parts = parts_of(parse_sum());
  std::vector<std::string> operators;
  while (true) {
    if (at_operator("==") || at_operator("!=") || at_operator("<") || at_operator("<=") ||
        at_operator(">") || at_operator(">=")) {
      operators.push_back(take().text);
    } else if (skip_keyword("in")) {
      operators.emplace_back("in");
    } else if (at_keyword("not") && next_token().type == Type::kName && next_token().text == "in") {
      take();
      take();
      operators.emplace_back("not in");
    } else {
      break;
    }
    parts.push_back(parse_sum());
  }
  if (operators.empty()) return std::move(parts[0]);
  ExpressionPointer made = make(Expression::Kind::kCompare, line, std::move(parts));
  made->operators = std::move(operators);
  return made;
}

ExpressionPointer ExpressionParser::parse_chain(std::initializer_list<std::string_view> operators,
                                                Part part) {
  const int line = current().line;
  ExpressionPointer left = (this->*part)();
  const int level = level_;
  while (std::any_of(operators.begin(), operators.end(),
                     [&](std::string_view text) { return at_operator(text); })) {
    const NestedSyntax nested(*this);
    ++level_;
    const std::string name = take().text;
    left = make(Expression::Kind::kArithmetic, line, parts_of(std::move(left), (this->*part)()));
    left->name = name;
  }
  level_ = level;
  return left;
}

ExpressionPointer ExpressionParser::parse_sum() {
  return parse_chain({"+", "-"}, &ExpressionParser::parse_concatenation);
}

ExpressionPointer ExpressionParser::parse_concatenation() {
  const int line = current().line;
  std::vector<ExpressionPointer> parts = parts_of(parse_product());
  while (skip_operator("~")) parts.push_back(parse_product());
  if (parts.size() == 1) return std::move(parts[0]);
  return make(Expression::Kind::kConcatenate, line, std::move(parts));
}

ExpressionPointer ExpressionParser::parse_product() {
  return parse_chain({"*", "/", "//", "%"}, &ExpressionParser::parse_power);
}

ExpressionPointer ExpressionParser::parse_power() {
  const int line = current().line;
  ExpressionPointer left = parse_unary(true);
  const int level = level_;
  while (skip_operator("**")) {
    const NestedSyntax nested(*this);
    ++level_;
    left = make(Expression::Kind::kArithmetic, line, parts_of(std::move(left), parse_unary(true)));
    left->name = "**";
  }
  level_ = level;
  return left;
}

ExpressionPointer ExpressionParser::parse_unary(bool with_filter) {
  const NestedSyntax nested(*this);
  const int line = current().line;
  ExpressionPointer value;
  if (skip_operator("-")) {
    value = make(Expression::Kind::kNegate, line, parts_of(parse_unary(false)));
  } else if (skip_operator("+")) {
    value = make(Expression::Kind::kPlus, line, parts_of(parse_unary(false)));
  } else {
    value = parse_primary(false);
  }
  value = parse_postfix(std::move(value));
  return with_filter ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPointer ExpressionParser::parse_name_or_constant(bool with_members) {
  const Lexeme token = take();
  if (token.text == "true" || token.text == "True") {
    return constant(JinjaValue::boolean(true), token.line);
  }
  if (token.text == "false" || token.text == "False") {
    return constant(JinjaValue::boolean(false), token.line);
  }
  if (token.text == "none" || token.text == "None") return constant(JinjaValue(), token.line);
  for (MacroSyntax* macro : open_macros_) {
    if (token.text == "caller") macro->uses_caller = true;
    if (token.text == "kwargs") macro->uses_named = true;
    if (token.text == "varargs") macro->uses_positional = true;
  }
  const bool member = with_members && skip_operator(".");
  ExpressionPointer made =
      make(member ? Expression::Kind::kMember : Expression::Kind::kName, token.line);
  made->name = token.text;
  if (member) made->operators.push_back(parse_name());
  return made;
}

ExpressionPointer ExpressionParser::parse_primary(bool with_members) {
  const int line = current().line;
  if (current().type == Type::kName) return parse_name_or_constant(with_members);
  if (current().type == Type::kText) {
    std::string text;
    while (current().type == Type::kText) text += take().text;
    return constant(JinjaValue::text(std::move(text)), line);
  }
  if (current().type == Type::kInteger) return constant(JinjaValue::integer(take().integer), line);
  if (current().type == Type::kReal) return constant(JinjaValue::real(take().real), line);
  if (skip_operator("(")) {
    ExpressionPointer value = parse_tuple({.in_parentheses = true});
    expect_operator(")");
    return value;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail(fmt::format("unexpected \"{}\"", shown(current())));
}

ExpressionPointer ExpressionParser::parse_list() {
  const int line = take().line;
  std::vector<ExpressionPointer> items;
  while (!at_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (at_operator("]")) break;
    items.push_back(parse_expression());
  }
  expect_operator("]");
  return make(Expression::Kind::kList, line, std::move(items));
}

ExpressionPointer ExpressionParser::parse_dict() {
  const int line = take().line;
  std::vector<ExpressionPointer> parts;
  while (!at_operator("}")) {
    if (!parts.empty()) expect_operator(",");
    if (at_operator("}")) break;
    parts.push_back(parse_expression());
    expect_operator(":");
    parts.push_back(parse_expression());
  }
  expect_operator("}");
  return make(Expression::Kind::kDict, line, std::move(parts));
}

ExpressionPointer ExpressionParser::parse_tuple(const TupleRules& rules) {
  const NestedSyntax nested(*this);
  const int line = current().line;
  std::vector<ExpressionPointer> items;
  bool is_tuple = false;
  const auto at_end = [&] {
    return current().type == Type::kVariableEnd || current().type == Type::kBlockEnd ||
           at_operator(")") || (!rules.end.empty() && at_keyword(rules.end));
  };
  while (true) {
    if (!items.empty()) expect_operator(",");
    if (at_end()) break;
    items.push_back(rules.simplified ? parse_primary(rules.with_members)
                                     : parse_expression(rules.with_condition));
    if (!at_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!rules.in_parentheses) {
      fail(fmt::format("got \"{}\", wanted an expression", shown(current())));
    }
  }
  return make(Expression::Kind::kTuple, line, std::move(items));
}

namespace {

bool can_assign(const Expression& target) {
  using Kind = Expression::Kind;
  if (target.kind == Kind::kTuple) {
    return std::all_of(target.parts.begin(), target.parts.end(),
                       [](const ExpressionPointer& part) { return can_assign(*part); });
  }
  return target.kind == Kind::kName || target.kind == Kind::kMember;
}

}  // namespace

ExpressionPointer ExpressionParser::parse_target(bool with_members, std::string_view end) {
  ExpressionPointer target =
      parse_tuple({.simplified = true, .with_members = with_members, .end = end});
  if (!can_assign(*target)) fail("cannot assign to this; wanted a name, names, or ns.name");
  return target;
}

ExpressionPointer ExpressionParser::parse_postfix(ExpressionPointer value) {
  const int level = level_;
  while (at_operator(".") || at_operator("[") || at_operator("(")) {
    const NestedSyntax nested(*this);
    ++level_;
    const int line = current().line;
    if (at_operator("(")) {
      value = make(Expression::Kind::kCall, line, parts_of(std::move(value)));
      value->call = parse_call();
    } else {
      value = parse_subscript(std::move(value));
    }
  }
  level_ = level;
  return value;
}

ExpressionPointer ExpressionParser::parse_filters_and_tests(ExpressionPointer value) {
  const int level = level_;
  while (true) {
    const NestedSyntax nested(*this);
    ++level_;
    if (at_operator("|")) {
      value = parse_filters(std::move(value), false);
    } else if (at_keyword("is")) {
      value = parse_test(std::move(value));
    } else if (at_operator("(")) {
      const int line = current().line;
      value = make(Expression::Kind::kCall, line, parts_of(std::move(value)));
      value->call = parse_call();
    } else {
      break;
    }
  }
  level_ = level;
  return value;
}

ExpressionPointer ExpressionParser::parse_filters(ExpressionPointer value, bool at_name) {
  const int level = level_;
  while (at_name || at_operator("|")) {
    const NestedSyntax nested(*this);
    ++level_;
    if (!at_name) take();
    at_name = false;
    const int line = current().line;
    std::string name = parse_name();
    while (skip_operator(".")) name += "." + parse_name();
    value = make(Expression::Kind::kFilter, line, parts_of(std::move(value)));
    value->name = std::move(name);
    if (!is_filter(value->name)) {
      unknown_.push_back({fmt::format("no filter named '{}'", value->name), line});
    }
    if (at_operator("(")) value->call = parse_call();
  }
  level_ = level;
  return value;
}

ExpressionPointer ExpressionParser::parse_test(ExpressionPointer value) {
  const int line = take().line;
  const bool negated = skip_keyword("not");
  std::string name = parse_name();
  while (skip_operator(".")) name += "." + parse_name();
  value = make(Expression::Kind::kTest, line, parts_of(std::move(value)));
  value->name = std::move(name);
  if (!is_test(value->name)) {
    unknown_.push_back({fmt::format("no test named '{}'", value->name), line});
  }
  const Type type = current().type;
  const bool word =
      type == Type::kName && !at_keyword("else") && !at_keyword("or") && !at_keyword("and");
  if (at_operator("(")) {
    value->call = parse_call();
  } else if (word || type == Type::kText || type == Type::kInteger || type == Type::kReal ||
             at_operator("[") || at_operator("{")) {
    if (at_keyword("is")) fail("two tests in a row: write `a is x and a is y`");
    value->call.positional.push_back(parse_postfix(parse_primary(false)));
  }
  return negated ? make(Expression::Kind::kNot, line, parts_of(std::move(value)))
                 : std::move(value);
}

ExpressionPointer ExpressionParser::parse_subscript(ExpressionPointer value) {
  const int line = current().line;
  if (skip_operator(".")) {
    if (current().type == Type::kInteger) {
      return make(Expression::Kind::kItem, line,
                  parts_of(std::move(value), constant(JinjaValue::integer(take().integer), line)));
    }
    ExpressionPointer made = make(Expression::Kind::kAttribute, line, parts_of(std::move(value)));
    made->name = parse_name();
    return made;
  }
  take();
  ExpressionPointer made = parse_subscribed(std::move(value));
  if (at_operator(",")) fail("several subscripts are not supported; write a[b][c]");
  expect_operator("]");
  return made;
}

ExpressionPointer ExpressionParser::parse_subscribed(ExpressionPointer value) {
  const int line = current().line;
  if (at_operator("]")) fail("got \"]\", wanted a subscript");
  ExpressionPointer start = at_operator(":") ? nullptr : parse_expression();
  if (!skip_operator(":")) {
    return make(Expression::Kind::kItem, line, parts_of(std::move(value), std::move(start)));
  }
  const auto at_end = [&] { return at_operator("]") || at_operator(","); };
  ExpressionPointer stop = at_operator(":") || at_end() ? nullptr : parse_expression();
  ExpressionPointer step;
  if (skip_operator(":") && !at_end()) step = parse_expression();
  return make(Expression::Kind::kSlice, line,
              parts_of(std::move(value), std::move(start), std::move(stop), std::move(step)));
}

CallSyntax ExpressionParser::parse_call() {
  CallSyntax call;
  expect_operator("(");
  bool first = true;
  while (!at_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (at_operator(")")) break;
    }
    first = false;
    const bool plain = !call.more_positional && !call.more_named;
    bool valid = true;
    if (skip_operator("*")) {
      valid = plain;
      call.more_positional = parse_expression();
    } else if (skip_operator("**")) {
      valid = !call.more_named;
      call.more_named = parse_expression();
    } else if (current().type == Type::kName && next_token().type == Type::kOperator &&
               next_token().text == "=") {
      valid = !call.more_named;
      std::string name = take().text;
      take();
      call.named.emplace_back(std::move(name), parse_expression());
    } else {
      valid = plain && call.named.empty();
      call.positional.push_back(parse_expression());
    }
    if (!valid) fail("arguments of a call are in the wrong order");
  }
  expect_operator(")");
  return call;
}

}  // namespace piton::jinja
