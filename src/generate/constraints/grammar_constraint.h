// Constraints on generated texts: a JSON schema, any JSON object, a regular expression, a choice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generate/constraints/byte_grammar.h"
#include "generate/constraints/token_bytes.h"
#include "generate/decoding_engine.h"

namespace piton {

enum class ConstraintKind : std::uint8_t { kNone, kJsonSchema, kJsonObject, kRegex, kChoices };

// A constraint as text, so that every rank of a model can make the same one.
struct ConstraintText {
  ConstraintKind kind = ConstraintKind::kNone;
  std::string text;  // the schema; the expression; a JSON list of strings; "" for the others
  bool operator==(const ConstraintText&) const = default;
};

// Null for kNone. Throws Error(kUsage), beginning with `where`, if the text is malformed or
// nothing satisfies it.
std::shared_ptr<const ByteGrammar> constraint_grammar(const ConstraintText& constraint,
                                                      std::string_view where);

// Tokens whose bytes continue a text of `grammar`. `ends` are allowed where the text may end; ids
// of them are the end of the text. If no token of the vocabulary can continue a text that may not
// end either (a vocabulary without single bytes), done() is true and complete() is false.
class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const ByteGrammar> grammar,
                    std::shared_ptr<const TokenTree> tokens, std::vector<std::int32_t> ends);
  ~GrammarConstraint() override;

  void allow(std::vector<bool>& allowed) override;
  void advance(std::int32_t id) override;
  bool done() const override;
  // The tokens so far are a whole text of the grammar.
  bool complete() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
