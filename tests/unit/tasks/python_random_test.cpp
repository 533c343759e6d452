#include "tasks/python_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace piton {
namespace {

using Draw = std::vector<std::int64_t>;

// From Python 3.11.7: random.Random(1234).sample(range(n), k), one after another.
TEST(PythonRandom, DrawsTheSamplesOfPython) {
  PythonRandom random(1234);
  EXPECT_EQ(random.sample(20, 5), Draw({14, 3, 0, 2, 1}));
  EXPECT_EQ(random.sample(20, 5), Draw({2, 3, 11, 7, 0}));
  EXPECT_EQ(random.sample(20, 5), Draw({0, 19, 11, 15, 14}));
  EXPECT_EQ(random.sample(7473, 5), Draw({1216, 747, 1499, 5844, 937}));
  EXPECT_EQ(random.sample(7473, 5), Draw({6925, 119, 4121, 3987, 7212}));
  EXPECT_EQ(random.sample(7473, 5), Draw({2046, 528, 5466, 4432, 3816}));
  EXPECT_EQ(random.sample(100, 6), Draw({8, 76, 86, 11, 65, 74}));
  EXPECT_EQ(random.sample(400, 8), Draw({23, 138, 284, 32, 330, 154, 246, 181}));
}

TEST(PythonRandom, DrawsAllOfAPopulation) {
  PythonRandom random(7);
  Draw all = random.sample(9, 9);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, Draw({0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_TRUE(random.sample(3, 0).empty());
}

// From Python 3.11.2: random.Random(seed).shuffle(list(range(12))), and .choice(range(7)).
TEST(PythonRandom, ShufflesAndChoosesAsPython) {
  Draw list(12);
  std::iota(list.begin(), list.end(), 0);
  PythonRandom(0).shuffle(list);
  EXPECT_EQ(list, Draw({1, 9, 8, 5, 10, 2, 3, 7, 4, 0, 11, 6}));
  std::iota(list.begin(), list.end(), 0);
  PythonRandom(3).shuffle(list);
  EXPECT_EQ(list, Draw({1, 7, 10, 0, 6, 11, 4, 5, 2, 8, 9, 3}));
  Draw chosen;
  for (std::uint32_t seed = 0; seed < 10; ++seed) chosen.push_back(PythonRandom(seed).below(7));
  EXPECT_EQ(chosen, Draw({6, 1, 6, 1, 1, 4, 6, 2, 1, 3}));
}

}  // namespace
}  // namespace piton
