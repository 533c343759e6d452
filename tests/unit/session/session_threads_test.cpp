// A training run gives the same bits on one thread and on two.
#include <gtest/gtest.h>

#include "support/run_session.h"

namespace piton {
namespace {

std::map<std::string, std::string> trained(const char* name, DType dtype, int threads,
                                           std::vector<double>& losses) {
  HostDevice device;
  const auto world = make_single_world(device);
  ModelConfig model = preset(name);
  model.dtype = dtype;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  test::TrainingRun run(*world, {.name = "one process"}, model, threads);
  losses = run.losses(3);
  return run.pieces();
}

TEST(Threads, DoNotChangeABitOfARun) {
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      std::vector<double> one;
      std::vector<double> two;
      EXPECT_TRUE(trained(name, dtype, 1, one) == trained(name, dtype, 2, two)) << name;
      EXPECT_EQ(one, two) << name;
    }
  }
}

}  // namespace
}  // namespace piton
