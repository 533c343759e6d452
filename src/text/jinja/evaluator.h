// Runs a syntax tree.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/syntax.h"
#include "text/jinja/values/arguments.h"
#include "text/jinja/values/loop.h"

namespace piton::jinja {

// Variables of a block, and the block around it.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, JinjaValue>> variables;  // names of the syntax tree

  JinjaValue* find(std::string_view name);
  void set(std::string_view name, JinjaValue value);
};
using ScopePointer = std::shared_ptr<Scope>;

// What the caller gives to a template.
struct Surroundings {
  std::vector<std::pair<std::string, JinjaValue>> variables;
  std::int64_t now_seconds = 0;
};

// Bytes [begin, end) of the output that a {% generation %} block wrote.
struct GenerationRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct Rendering {
  std::string text;
  std::vector<GenerationRange> generation;
  // A generation block was inside a macro or another block whose output is not written in place:
  // its range is unknown.
  bool misplaced_generation = false;
};

class Evaluator final : public Runtime {
 public:
  // Both must outlive the evaluator.
  Evaluator(const Syntax& syntax, const Surroundings& surroundings)
      : syntax_(syntax), surroundings_(surroundings) {}
  ~Evaluator() override;

  // Once. Throws TemplateFailure; line() is its line then.
  Rendering run();
  int line() const { return line_; }

  Budget& budget() override { return budget_; }
  std::int64_t now_seconds() const override { return surroundings_.now_seconds; }
  void keep(std::shared_ptr<Namespace> space) override { namespaces_.push_back(std::move(space)); }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  struct Level;    // counts recursion while it lives
  struct Capture;  // redirects the output while it lives

  // Expressions.
  JinjaValue evaluate(const Expression& expression, const ScopePointer& scope);
  JinjaValue evaluate_slice(const Expression& expression, const ScopePointer& scope);
  JinjaValue evaluate_compare(const Expression& expression, const ScopePointer& scope);
  JinjaValue evaluate_filter(const Expression& expression, const ScopePointer& scope);
  JinjaValue evaluate_dict(const Expression& expression, const ScopePointer& scope);
  JinjaValue evaluate_items(const Expression& expression, const ScopePointer& scope);
  JinjaValue concatenate(const Expression& expression, const ScopePointer& scope);
  Arguments evaluate_arguments(const CallSyntax& call, const ScopePointer& scope);
  JinjaValue call(const JinjaValue& function, Arguments& arguments);
  JinjaValue look_up(std::string_view name, const ScopePointer& scope);

  // Statements.
  Flow execute(const Body& body, const ScopePointer& scope);
  Flow execute(const Statement& statement, const ScopePointer& scope);
  Flow execute_if(const Statement& statement, const ScopePointer& scope);
  Flow execute_for(const Statement& statement, const ScopePointer& scope);
  Flow execute_with(const Statement& statement, const ScopePointer& scope);
  void execute_generation(const Statement& statement, const ScopePointer& scope);
  void execute_call_block(const Statement& statement, const ScopePointer& scope);
  JinjaValue filtered_block(const Statement& statement, const ScopePointer& scope);
  std::shared_ptr<Loop> make_loop(const Statement& statement, const JinjaValue& source,
                                  const ScopePointer& scope);
  void assign(const Expression& target, const JinjaValue& value, const ScopePointer& scope);
  std::string captured(const Body& body, const ScopePointer& scope);
  void write(std::string_view text);

  JinjaValue make_macro(const Statement& statement, const ScopePointer& scope);
  JinjaValue call_macro(const Statement& statement, const ScopePointer& scope,
                        Arguments& arguments);
  void bind_parameters(const MacroSyntax& macro, const ScopePointer& scope, Arguments& arguments);

  static ScopePointer inner(const ScopePointer& scope);

  const Syntax& syntax_;
  const Surroundings& surroundings_;
  Budget budget_;
  int line_ = 1;
  int level_ = 0;
  Rendering rendering_;
  std::string* out_ = &rendering_.text;
  const JinjaValue* block_text_ = nullptr;  // of the block whose filters are applied
  // What may refer to itself, and is emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<ScopePointer> macro_scopes_;
};

}  // namespace piton::jinja
