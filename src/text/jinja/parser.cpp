#include "text/jinja/parser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "text/jinja/expression_parser.h"

namespace piton::jinja {
namespace {

using Type = Lexeme::Type;
using Names = std::initializer_list<std::string_view>;

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Syntax run() {
    Syntax syntax;
    syntax.body = parse_body({});
    syntax.has_generation = has_generation_;
    return syntax;
  }

 private:
  // Statements up to one of the tags `ends`, whose name is the current token then.
  Body parse_body(Names ends) {
    if (++block_level_ > kMostSyntaxLevels / 2) fail("blocks are nested too deeply");
    Body body;
    while (current().type != Type::kEnd) {
      Statement statement;
      statement.line = current().line;
      if (current().type == Type::kData) {
        statement.text = take().text;
        body.push_back(std::move(statement));
      } else if (current().type == Type::kVariableBegin) {
        take();
        statement.kind = Statement::Kind::kOutput;
        statement.value = parse_tuple({});
        expect(Type::kVariableEnd);
        settle_unknown();
        body.push_back(std::move(statement));
      } else {
        expect(Type::kBlockBegin);
        if (std::any_of(ends.begin(), ends.end(),
                        [&](std::string_view name) { return at_keyword(name); })) {
          --block_level_;
          return body;
        }
        parse_statement(body, ends);
        expect(Type::kBlockEnd);
        settle_unknown();
      }
    }
    if (ends.size() > 0) {
      fail(fmt::format("the template ends inside a block: wanted {}", shown_tags(ends)));
    }
    --block_level_;
    return body;
  }

  static std::string shown_tags(Names names) {
    std::vector<std::string> tags;
    for (const std::string_view name : names) tags.push_back(fmt::format("{{% {} %}}", name));
    return fmt::format("{}", fmt::join(tags, " or "));
  }

  void settle_unknown() {
    if (!soft_) refuse_unknown();
    unknown_.clear();
  }

  // The rest of a tag, and the statements up to one of `ends`.
  Body parse_block(Names ends) {
    skip_operator(":");
    expect(Type::kBlockEnd);
    return parse_body(ends);
  }

  // The same for blocks in which unknown filters are errors at once.
  Body parse_strict_block(Names ends) {
    settle_unknown();
    const bool soft = std::exchange(soft_, false);
    Body body = parse_block(ends);
    soft_ = soft;
    return body;
  }

  void parse_statement(Body& body, Names ends) {
    const std::string tag = current().type == Type::kName ? current().text : "";
    Statement statement;
    statement.line = current().line;
    if (tag == "if") return body.push_back(parse_if());
    if (tag == "for") return body.push_back(parse_for());
    if (tag == "set") return body.push_back(parse_set());
    if (tag == "macro") return body.push_back(parse_macro());
    if (tag == "call") return body.push_back(parse_call_block());
    if (tag == "filter") return body.push_back(parse_filter_block());
    if (tag == "with") return body.push_back(parse_with());
    if (tag == "generation") return body.push_back(parse_generation());
    if (tag == "break" || tag == "continue") return body.push_back(parse_loop_control());
    if (tag == "print") return parse_print(body);
    constexpr auto kOtherTags = std::to_array<std::string_view>(
        {"extends", "block", "include", "import", "from", "autoescape"});
    if (std::find(kOtherTags.begin(), kOtherTags.end(), tag) != kOtherTags.end()) {
      fail(fmt::format("the tag \"{}\" is not supported; write the template in one piece", tag));
    }
    if (tag.empty()) fail(fmt::format("got \"{}\", wanted the name of a tag", shown(current())));
    fail(ends.size() == 0
             ? fmt::format("unknown tag \"{}\"", tag)
             : fmt::format("unknown tag \"{}\", wanted {} here", tag, shown_tags(ends)));
  }

  Statement begin(Statement::Kind kind) {
    Statement statement;
    statement.kind = kind;
    statement.line = take().line;
    return statement;
  }

  Statement parse_if() {
    Statement statement = begin(Statement::Kind::kIf);
    const bool soft = std::exchange(soft_, true);
    while (true) {
      statement.tests.push_back(parse_tuple({.with_condition = false}));
      statement.branches.push_back(parse_block({"elif", "else", "endif"}));
      const std::string tag = take().text;
      if (tag == "elif") continue;
      if (tag == "else") {
        statement.otherwise = parse_block({"endif"});
        take();
      }
      break;
    }
    soft_ = soft;
    unknown_.clear();
    return statement;
  }

  Statement parse_for() {
    Statement statement = begin(Statement::Kind::kFor);
    statement.target = parse_target(false, "in");
    if (!skip_keyword("in")) fail(fmt::format("got \"{}\", wanted \"in\"", shown(current())));
    statement.value = parse_tuple({.with_condition = false, .end = "recursive"});
    settle_unknown();
    if (skip_keyword("if")) {
      statement.test = parse_expression();
      refuse_unknown();
    }
    if (at_keyword("recursive")) fail("recursive loops are not supported; write a macro");
    ++loops_;
    statement.branches.push_back(parse_strict_block({"endfor", "else"}));
    --loops_;
    if (take().text == "else") {
      statement.otherwise = parse_strict_block({"endfor"});
      take();
    }
    return statement;
  }

  Statement parse_set() {
    Statement statement = begin(Statement::Kind::kSet);
    statement.target = parse_target(true);
    if (skip_operator("=")) {
      statement.value = parse_tuple({});
      return statement;
    }
    statement.kind = Statement::Kind::kSetBlock;
    if (at_operator("|")) statement.value = parse_filters(nullptr, false);
    refuse_unknown();
    statement.branches.push_back(parse_captured("endset"));
    return statement;
  }

  // A body whose output is a value. A break in it would lose the value.
  Body parse_captured(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = parse_strict_block({end});
    loops_ = loops;
    take();
    return body;
  }

  void parse_signature(MacroSyntax& macro) {
    expect_operator("(");
    while (!at_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      macro.parameters.push_back(parse_name());
      if (skip_operator("=")) {
        macro.defaults.push_back(parse_expression());
      } else if (!macro.defaults.empty()) {
        fail("a parameter without a default follows one that has a default");
      }
    }
    expect_operator(")");
  }

  // A body that is called: loops around it are not its loops.
  Body parse_called(MacroSyntax& macro, Names ends) {
    open_macros_.push_back(&macro);
    const int loops = std::exchange(loops_, 0);
    Body body = parse_strict_block(ends);
    loops_ = loops;
    open_macros_.pop_back();
    take();
    return body;
  }

  Statement parse_macro() {
    Statement statement = begin(Statement::Kind::kMacro);
    statement.macro = std::make_shared<MacroSyntax>();
    statement.macro->name = parse_name();
    parse_signature(*statement.macro);
    statement.branches.push_back(parse_called(*statement.macro, {"endmacro"}));
    return statement;
  }

  Statement parse_call_block() {
    Statement statement = begin(Statement::Kind::kCallBlock);
    statement.macro = std::make_shared<MacroSyntax>();
    statement.macro->name = "caller";
    if (at_operator("(")) parse_signature(*statement.macro);
    statement.value = parse_expression();
    if (statement.value->kind != Expression::Kind::kCall) fail("wanted a call after \"call\"");
    statement.branches.push_back(parse_called(*statement.macro, {"endcall"}));
    return statement;
  }

  Statement parse_filter_block() {
    Statement statement = begin(Statement::Kind::kFilterBlock);
    statement.value = parse_filters(nullptr, true);
    refuse_unknown();
    statement.branches.push_back(parse_captured("endfilter"));
    return statement;
  }

  Statement parse_with() {
    Statement statement = begin(Statement::Kind::kWith);
    while (current().type != Type::kBlockEnd) {
      if (!statement.targets.empty()) expect_operator(",");
      statement.targets.push_back(parse_target(false));
      expect_operator("=");
      statement.values.push_back(parse_expression());
    }
    statement.branches.push_back(parse_strict_block({"endwith"}));
    take();
    return statement;
  }

  Statement parse_generation() {
    Statement statement = begin(Statement::Kind::kGeneration);
    has_generation_ = true;
    MacroSyntax unused;
    statement.branches.push_back(parse_called(unused, {"endgeneration"}));
    return statement;
  }

  Statement parse_loop_control() {
    if (loops_ == 0) fail(fmt::format("\"{}\" is outside of a loop", current().text));
    const bool breaks = current().text == "break";
    return begin(breaks ? Statement::Kind::kBreak : Statement::Kind::kContinue);
  }

  void parse_print(Body& body) {
    take();
    bool first = true;
    while (current().type != Type::kBlockEnd) {
      if (!first) expect_operator(",");
      first = false;
      Statement statement;
      statement.kind = Statement::Kind::kOutput;
      statement.line = current().line;
      statement.value = parse_expression();
      body.push_back(std::move(statement));
    }
  }

  int block_level_ = 0;
  int loops_ = 0;  // around the current tag, in the same macro
  bool has_generation_ = false;
};

}  // namespace

Syntax parse(std::string_view source) { return Parser(tokens_of(source)).run(); }

}  // namespace piton::jinja
