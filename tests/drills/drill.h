// Shared by drills: number of rounds, seeds, and the program under test.
//
// A drill repeats one kind of failure at random places that depend on a seed. The daily tests run a
// few rounds; with PITON_NIGHTLY set, all. PITON_DRILL_SEED=n sets another seed (a failing round
// prints its own), PITON_DRILL_ROUNDS=n runs n rounds, PITON_DRILL_FIRST=n begins with round n:
// PITON_DRILL_FIRST=14 PITON_DRILL_ROUNDS=1 runs only round 14.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "support/sampled.h"

namespace piton::drill {

inline std::int64_t number(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoll(text) : otherwise;
}

inline bool whole() { return test::nightly(); }

inline std::int64_t rounds(std::int64_t sampled, std::int64_t all) {
  return number("PITON_DRILL_ROUNDS", whole() ? all : sampled);
}

// A drill runs the rounds [first_round(), end_round(...)).
inline std::int64_t first_round() { return number("PITON_DRILL_FIRST", 0); }
inline std::int64_t end_round(std::int64_t sampled, std::int64_t all) {
  const std::int64_t first = first_round();
  return std::getenv("PITON_DRILL_ROUNDS") != nullptr ? first + rounds(sampled, all)
                                                      : std::max(first, rounds(sampled, all));
}

// The seed of round `round`; does not depend on earlier rounds.
inline std::uint64_t seed(std::int64_t round) {
  return static_cast<std::uint64_t>(number("PITON_DRILL_SEED", 1)) * 1'000'003U +
         static_cast<std::uint64_t>(round);
}

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  // A random integer in 0 .. count-1.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(count));
  }
  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11U) * 0x1p-53;
  }

 private:
  std::mt19937_64 engine_;
};

// Of the launcher: mpirun waits that long, twice, for the other ranks after one has failed. They
// need a tenth of a second; what users have is for nights.
inline std::string grace() { return whole() ? "PITON_GRACE_SECONDS=3" : "PITON_GRACE_SECONDS=1"; }

// The binary under test and the launcher of ranks.
inline std::string piton() { return PITON_PROGRAM; }
inline std::string launcher() { return std::string(PITON_SOURCE_DIR) + "/tools/launch.sh"; }

}  // namespace piton::drill
