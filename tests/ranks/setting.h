// The world in which the tests of a program of ranks run.
#pragma once

#include <gtest/gtest.h>

#include "ranks/launched_world.h"

namespace piton::ranks {

RankOptions options();

struct Setting {
  Device* device = nullptr;
  World* world = nullptr;
  Communicator* everyone = nullptr;
};

// The world in which the tests of this program run.
inline Setting& setting() {
  static Setting setting;
  return setting;
}
inline World& world() { return *setting().world; }
inline Device& device() { return *setting().device; }
inline Communicator& everyone() { return *setting().everyone; }  // all ranks

}  // namespace piton::ranks
