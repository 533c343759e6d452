#include "optim/weight_decay.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace piton {
namespace {

TEST(WeightDecay, IsThatOfTheOptionsWhereItIsConstant) {
  OptimizerOptions options;
  options.weight_decay = 0.3;
  const WeightDecay decay(options, 10);
  EXPECT_EQ(decay.at(0), 0.3);
  EXPECT_EQ(decay.at(100), 0.3);
  EXPECT_FALSE(decay.changes());
}

// Every style against Megatron-core (the file names its version).
TEST(WeightDecay, IsThatOfMegatronCore) {
  const std::map<std::string, WeightDecayIncrease> styles{
      {"constant", WeightDecayIncrease::kConstant},
      {"linear", WeightDecayIncrease::kLinear},
      {"cosine", WeightDecayIncrease::kCosine}};
  std::ifstream file(std::filesystem::path(PITON_SOURCE_DIR) /
                     "tests/golden/megatron_weight_decays.txt");
  std::string line;
  int cases = 0;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    std::istringstream words(line);
    std::string style;
    double start = 0, end = 0, batch = 0, samples = 0;
    words >> style >> start >> end >> batch >> samples;
    OptimizerOptions options;
    options.weight_decay_increase = styles.at(style);
    options.weight_decay = end;
    if (style != "constant") {
      options.start_weight_decay = start;
      options.end_weight_decay = end;
    }
    options.check();
    const WeightDecay decay(options, samples / batch);
    for (const double step : {0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144}) {
      double megatron = -1;
      words >> megatron;
      EXPECT_NEAR(decay.at(step), megatron, 1e-15) << "step " << step;
    }
    EXPECT_TRUE(words);
    ++cases;
  }
  EXPECT_EQ(cases, 18);
}

}  // namespace
}  // namespace piton
