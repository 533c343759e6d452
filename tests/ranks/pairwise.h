// Few combinations of settings in which each pair of values meets.
//
// A combination is one value (0, 1, ...) for each factor. Of all that are allowed, rows are chosen
// one after another, each the one that has most pairs that no row before has; of equal ones the
// first in an order that is mixed, so that the values of the other factors vary. The same input
// gives the same rows on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace piton::test {

using Combination = std::vector<int>;

// All combinations of values below `sizes` that `allowed` accepts.
inline std::vector<Combination> all_combinations(
    const std::vector<int>& sizes, const std::function<bool(const Combination&)>& allowed) {
  std::vector<Combination> all;
  Combination now(sizes.size(), 0);
  for (;;) {
    if (allowed(now)) all.push_back(now);
    std::size_t place = 0;
    while (place < sizes.size() && ++now[place] == sizes[place]) now[place++] = 0;
    if (place == sizes.size()) return all;
  }
}

// The numbers of the pairs of values that a combination has.
inline std::vector<std::size_t> pairs_of(const Combination& one, const std::vector<int>& sizes) {
  std::vector<std::size_t> pairs;
  std::size_t base = 0;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    for (std::size_t b = a + 1; b < sizes.size(); ++b) {
      pairs.push_back(base + static_cast<std::size_t>(one[a] * sizes[b] + one[b]));
      base += static_cast<std::size_t>(sizes[a] * sizes[b]);
    }
  }
  return pairs;
}

// Rows of `all` in which each pair that any row of `all` has is met at least once.
inline std::vector<Combination> pairwise_cover(std::vector<Combination> all,
                                               const std::vector<int>& sizes) {
  std::uint64_t state = 88172645463325252ULL;
  for (std::size_t i = all.size(); i > 1; --i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::swap(all[i - 1], all[(state >> 33) % i]);
  }
  std::vector<bool> missing;
  for (const Combination& one : all) {
    for (const std::size_t pair : pairs_of(one, sizes)) {
      if (pair >= missing.size()) missing.resize(pair + 1);
      missing[pair] = true;
    }
  }
  std::vector<Combination> rows;
  for (;;) {
    std::size_t most = 0;
    const Combination* best = nullptr;
    for (const Combination& one : all) {
      std::size_t news = 0;
      for (const std::size_t pair : pairs_of(one, sizes)) news += missing[pair] ? 1 : 0;
      if (news > most) {
        most = news;
        best = &one;
      }
    }
    if (best == nullptr) return rows;
    for (const std::size_t pair : pairs_of(*best, sizes)) missing[pair] = false;
    rows.push_back(*best);
  }
}

}  // namespace piton::test
