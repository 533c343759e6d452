// By day tests of every layout run some of them; at night (PITON_NIGHTLY) all.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <vector>

namespace piton::test {

inline bool at_night() { return std::getenv("PITON_NIGHTLY") != nullptr; }

// Every `stride`-th of a list, from place `first` mod `stride` on; at night the whole list. Several
// tests, or models, with other values of `first` together meet each.
template <typename T>
std::vector<T> sampled(const std::vector<T>& all, std::size_t stride, std::size_t first = 0) {
  if (at_night()) return all;
  std::vector<T> some;
  for (std::size_t i = first % stride; i < all.size(); i += stride) some.push_back(all[i]);
  return some;
}

}  // namespace piton::test
