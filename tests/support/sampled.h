// Long lists of cases: a share of them by day, all where PITON_NIGHTLY is set.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <vector>

namespace piton::test {

inline bool nightly() { return std::getenv("PITON_NIGHTLY") != nullptr; }

// `by_day`, or 1 at night: of how many cases one is taken.
inline int one_of(int by_day) { return nightly() ? 1 : by_day; }

// Every `stride`-th of a list, from place `first` mod `stride` on; at night the whole list. Several
// tests, or models, with other values of `first` together meet each.
template <typename T>
std::vector<T> sampled(const std::vector<T>& all, std::size_t stride, std::size_t first = 0) {
  if (nightly()) return all;
  std::vector<T> some;
  for (std::size_t i = first % stride; i < all.size(); i += stride) some.push_back(all[i]);
  return some;
}

}  // namespace piton::test
