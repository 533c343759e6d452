// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/values/value.h"

namespace piton::jinja {

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

// What is written in the parentheses of a call: f(a, b, *rest, name=c, **more).
struct CallSyntax {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> named;
  ExpressionPointer more_positional;  // may be null
  ExpressionPointer more_named;       // may be null
};

struct Expression {
  enum class Kind {
    kConstant,
    kName,
    kList,         // parts: items
    kTuple,        // parts: items
    kDict,         // parts: keys and values in turn
    kAttribute,    // parts[0].name
    kItem,         // parts[0][parts[1]]
    kSlice,        // parts[0][parts[1]:parts[2]:parts[3]], each of the last three may be null
    kCall,         // parts[0](call)
    kFilter,       // parts[0] | name(call); parts[0] is null for the text of a block
    kTest,         // parts[0] is name(call)
    kNot,          // parts[0]
    kNegate,       // -parts[0]
    kPlus,         // +parts[0]
    kArithmetic,   // parts[0] name parts[1]
    kConcatenate,  // parts[0] ~ parts[1] ~ ...
    kCompare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kAnd,          // parts[0] and parts[1]
    kOr,           // parts[0] or parts[1]
    kConditional,  // parts[1] if parts[0] else parts[2], which may be null
    kMember,       // as a target: namespace `name`, attribute operators[0]
  };
  Kind kind = Kind::kConstant;
  int line = 1;
  std::string name;
  JinjaValue constant;
  std::vector<ExpressionPointer> parts;
  std::vector<std::string> operators;
  CallSyntax call;
};

struct Statement;
using Body = std::vector<Statement>;

struct MacroSyntax {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPointer> defaults;  // of the last parameters
  // Whether the body uses the names `caller`, `kwargs` and `varargs`.
  bool uses_caller = false;
  bool uses_named = false;
  bool uses_positional = false;
};

struct Statement {
  enum class Kind {
    kData,         // text
    kOutput,       // {{ value }}
    kIf,           // tests[i]: branches[i]; else: otherwise
    kFor,          // target, value, test (may be null), branches[0], otherwise
    kSet,          // target = value
    kSetBlock,     // target = branches[0], through the filters `value` (may be null)
    kMacro,        // macro, branches[0]
    kCallBlock,    // value is the call; macro and branches[0] are its caller
    kFilterBlock,  // branches[0] through the filters `value`
    kWith,         // targets[i] = values[i], branches[0]
    kGeneration,   // branches[0]
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kData;
  int line = 1;
  std::string text;
  ExpressionPointer target;
  ExpressionPointer value;
  ExpressionPointer test;
  std::vector<ExpressionPointer> tests;
  std::vector<ExpressionPointer> targets;
  std::vector<ExpressionPointer> values;
  std::vector<Body> branches;
  Body otherwise;
  // Shared with the values of macros, which may outlive the statement's execution.
  std::shared_ptr<MacroSyntax> macro;
};

// Most levels of expressions and blocks in each other.
inline constexpr int kMostSyntaxLevels = 200;

struct Syntax {
  Body body;
  bool has_generation = false;
};

}  // namespace piton::jinja
