// libraries: piton_generate_constraints
// Any bytes as a regular expression: an Error, or a grammar that can be read.
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "generate/constraints/grammar_constraint.h"
#include "generate/constraints/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.size() > 200) return 0;
  try {
    piton::GrammarWalk walk(
        piton::constraint_grammar({piton::ConstraintKind::kRegex, text}, "regex"));
    piton::GrammarWalk::Position at = walk.start();
    for (int i = 0; i < 20 && at != piton::GrammarWalk::kDead; ++i) at = walk.after(at, 'a');
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kUsage);
    PITON_ASSERT(std::string(error.what()).starts_with("regex"));
  }
  return 0;
}
