// Long lists of cases: a share of them by day, all where PITON_NIGHTLY is set.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

namespace piton::test {

inline bool nightly() { return std::getenv("PITON_NIGHTLY") != nullptr; }

// `by_day`, or 1 at night: of how many cases one is taken.
inline int one_of(int by_day) { return nightly() ? 1 : by_day; }

// Numbers first, first + by_day, first + 2 * by_day ... of `all`; at night all of them.
template <typename T>
std::vector<T> sampled(std::vector<T> all, int by_day, std::size_t first = 0) {
  if (nightly()) return all;
  std::vector<T> some;
  for (std::size_t i = first; i < all.size(); i += static_cast<std::size_t>(by_day))
    some.push_back(std::move(all[i]));
  return some;
}

}  // namespace piton::test
