// What one turn of a DecodingLoop does, as the first rank sends it to the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/decoding_loop.h"

namespace piton {

struct LoopTurn {
  std::vector<std::int64_t> cancelled;  // numbers of the engine
  std::vector<TextToWrite> submitted;
  std::vector<TextToEmbed> embedded;
  bool last = false;  // the loop ends after this turn

  bool empty() const { return cancelled.empty() && submitted.empty() && embedded.empty() && !last; }
};

// "" for an empty turn. Grammars are not written: other ranks make theirs of the constraint.
std::string turn_bytes(const LoopTurn& turn);
LoopTurn read_turn(const std::string& bytes);

}  // namespace piton
