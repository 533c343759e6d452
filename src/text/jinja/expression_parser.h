// Parses expressions: the precedence of operators is Jinja's.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/syntax.h"
#include "text/jinja/token_reader.h"

namespace piton::jinja {

class ExpressionParser : protected TokenReader {
 public:
  using TokenReader::TokenReader;

 protected:
  // Where a tuple without parentheses may be, and what may be in it.
  struct TupleRules {
    bool simplified = false;     // names and literals alone, as the target of a loop
    bool with_members = false;   // ns.x too, as the target of a set
    bool with_condition = true;  // `a if b else c` too
    bool in_parentheses = false;
    std::string_view end;  // a name that ends it
  };
  struct NestedSyntax;  // counts levels while it lives

  ExpressionPointer parse_expression(bool with_condition = true);
  ExpressionPointer parse_tuple(const TupleRules& rules);
  // A name, or names in parentheses or separated by commas; ns.x too if `with_members`.
  ExpressionPointer parse_target(bool with_members, std::string_view end = "");
  CallSyntax parse_call();
  // `value | filter | filter`; `value` may be null. `at_name`: the first "|" is left out.
  ExpressionPointer parse_filters(ExpressionPointer value, bool at_name);

  // Unknown filters and tests are errors at once, except in `if` and `a if b`, where the template
  // may never reach them.
  void refuse_unknown() const;

  bool soft_ = false;
  std::vector<SyntaxFailure> unknown_;
  std::vector<MacroSyntax*> open_macros_;  // around what is parsed

 private:
  ExpressionPointer parse_or();
  ExpressionPointer parse_and();
  ExpressionPointer parse_not();
  ExpressionPointer parse_compare();
  ExpressionPointer parse_sum();
  ExpressionPointer parse_concatenation();
  ExpressionPointer parse_product();
  ExpressionPointer parse_power();
  ExpressionPointer parse_unary(bool with_filter);
  ExpressionPointer parse_primary(bool with_members);
  ExpressionPointer parse_postfix(ExpressionPointer value);
  ExpressionPointer parse_filters_and_tests(ExpressionPointer value);
  ExpressionPointer parse_test(ExpressionPointer value);
  ExpressionPointer parse_subscript(ExpressionPointer value);
  ExpressionPointer parse_subscribed(ExpressionPointer value);
  ExpressionPointer parse_list();
  ExpressionPointer parse_dict();
  ExpressionPointer parse_name_or_constant(bool with_members);

  // Operators of one level, from the left.
  using Part = ExpressionPointer (ExpressionParser::*)();
  ExpressionPointer parse_chain(std::initializer_list<std::string_view> operators, Part part);

  ExpressionPointer make(Expression::Kind kind, int line,
                         std::vector<ExpressionPointer> parts = {});
  ExpressionPointer constant(JinjaValue value, int line);

  int level_ = 0;
};

}  // namespace piton::jinja
