// The options that every bench has.
#pragma once

#include "base/options/option_range.h"
#include "base/options/options.h"

namespace piton::cli {

struct BenchRounds {
  int rounds = 7;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"rounds", "number of measurements of each case, taken alternately; the best counts"},
      rounds);
    v(Option{"json", "print one JSON object"}, json);
  }

  // Throws Error(kUsage) with the flag.
  void check() const { check_range("--rounds", rounds, 1); }
};

}  // namespace piton::cli
