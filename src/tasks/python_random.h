// Python's random.Random: MT19937 seeded by a list of words, and random.sample() of Python 3.11 and
// later. lm-evaluation-harness draws the few-shot examples of most tasks with it, needlebench its
// texts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace piton {

class PythonRandom {
 public:
  // random.Random(seed), seed below 2^32.
  explicit PythonRandom(std::uint32_t seed);

  // random.sample(range(population), count); 0 <= count <= population < 2^32.
  std::vector<std::int64_t> sample(std::int64_t population, std::int64_t count);
  // random.shuffle(list).
  void shuffle(std::span<std::int64_t> list);
  // random.choice(range(limit)): uniform in 0 .. limit - 1.
  std::int64_t below(std::int64_t limit);

 private:
  static constexpr int kWords = 624;
  std::uint32_t next32();

  std::array<std::uint32_t, kWords> state_{};
  int next_ = kWords;
};

}  // namespace piton
