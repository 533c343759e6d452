// libraries: piton_generate_constraints
// Any bytes as a JSON schema: an Error, or a grammar in which every beginning of a text can be
// completed; a text that is drawn from it is JSON.
#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "generate/constraints/grammar_constraint.h"
#include "generate/constraints/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.size() > 4096) return 0;
  std::shared_ptr<const piton::ByteGrammar> grammar;
  try {
    grammar = piton::constraint_grammar({piton::ConstraintKind::kJsonSchema, text}, "schema");
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kUsage);
    PITON_ASSERT(std::string(error.what()).starts_with("schema"));
    return 0;
  }
  piton::GrammarWalk walk(grammar);
  std::mt19937_64 random(size);
  piton::GrammarWalk::Position at = walk.start();
  std::string drawn;
  for (int i = 0; i < 300; ++i) {
    if (walk.may_end(at) && (!walk.may_continue(at) || random() % 4 == 0)) {
      PITON_ASSERT(!piton::read_json_or_discarded<nlohmann::json>(drawn).is_discarded());
      break;
    }
    std::string possible;
    for (int byte = 0; byte < 256; ++byte) {
      if (walk.after(at, static_cast<std::uint8_t>(byte)) != piton::GrammarWalk::kDead)
        possible += static_cast<char>(byte);
    }
    PITON_ASSERT(!possible.empty());
    drawn += possible[random() % possible.size()];
    at = walk.after(at, static_cast<std::uint8_t>(drawn.back()));
  }
  return 0;
}
