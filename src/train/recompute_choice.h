// What `--recompute-granularity auto` becomes: the rules of a run, found before it allocates.
#pragma once

#include <cstdint>
#include <string>

#include "ops/recompute.h"

namespace piton {

struct RecomputeChoice {
  RecomputeRules rules;
  std::string why;  // for the log
};

// The flags that ask for these rules, for a message.
std::string flags_of(const RecomputeRules& rules);

// As text, for the other ranks; and back.
std::string encode(const RecomputeChoice& choice);
RecomputeChoice decode_choice(const std::string& text);

}  // namespace piton
