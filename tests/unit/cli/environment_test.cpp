#include "cli/compatibility/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct EnvironmentFixture {
  PretrainOptions options;
  OptionSet set;
  explicit EnvironmentFixture(const std::vector<std::string>& words = {}) {
    options.add_to(set);
    set.parse(words);
  }
  std::vector<std::string> read(const Variables& variables) {
    return read_environment(set, variables);
  }
  int slices() const { return static_cast<int>(options.parallel.linears.slices.value_or(1)); }
};

TEST(Environment, OfSlicesStandsForTheFlag) {
  EnvironmentFixture f;
  EXPECT_THAT(f.read({{"COC_PARALLEL_NUM", "4"}}),
              ElementsAre("environment: COC_PARALLEL_NUM=4: --num-slices 4"));
  EXPECT_EQ(f.slices(), 4);
  ASSERT_EQ(f.set.changed().size(), 1U);
  EXPECT_EQ(f.set.changed()[0].origin, "the environment");
}

TEST(Environment, GivesWayToTheFlagAndNamesTheContradiction) {
  EnvironmentFixture f({"--coc-parallel-num", "2"});
  EXPECT_THAT(
      f.read({{"COC_PARALLEL_NUM", "4"}}),
      ElementsAre("environment: COC_PARALLEL_NUM=4 is --num-slices 4, but --num-slices 2 is "
                  "given, which wins"));
  EXPECT_EQ(f.slices(), 2);
  EXPECT_THAT(f.read({{"COC_PARALLEL_NUM", "2"}}), IsEmpty());
}

TEST(Environment, OfAModeWithoutSlicesWinsOverTheirNumber) {
  for (const std::string mode : {"0", "1"}) {
    EnvironmentFixture f;
    EXPECT_THAT(f.read({{"COC_MODE", mode}, {"COC_PARALLEL_NUM", "8"}}),
                ElementsAre("environment: COC_MODE=" + mode +
                            " is without slices, and COC_PARALLEL_NUM=8 has some: COC_MODE wins"));
    EXPECT_EQ(f.slices(), 1);
  }
  for (const std::string mode : {"-1", "2"}) {
    EnvironmentFixture f;
    f.read({{"COC_MODE", mode}, {"COC_PARALLEL_NUM", "8"}});
    EXPECT_EQ(f.slices(), 8);
  }
  EnvironmentFixture f({"--num-slices", "4"});
  EXPECT_THAT(f.read({{"COC_MODE", "0"}}),
              ElementsAre(HasSubstr("COC_MODE=0 is --num-slices 1, but --num-slices 4 is given")));
}

TEST(Environment, OfFusedKernelsWinsOverSlices) {
  EnvironmentFixture f;
  EXPECT_THAT(f.read({{"USE_COC_FUSED_KERNEL", "0"}}), IsEmpty());
  EXPECT_FALSE(f.options.parallel.linears.fused);
  EXPECT_THAT(f.read({{"USE_COC_FUSED_KERNEL", "1"}, {"COC_PARALLEL_NUM", "2"}}),
              ElementsAre("environment: USE_COC_FUSED_KERNEL=1 has tiles, and COC_PARALLEL_NUM=2 "
                          "slices: USE_COC_FUSED_KERNEL wins",
                          "environment: USE_COC_FUSED_KERNEL=1: --fused-linears"));
  EXPECT_TRUE(f.options.parallel.linears.fused);
  EXPECT_EQ(f.slices(), 1);
  EnvironmentFixture off;
  EXPECT_THAT(off.read({{"USE_COC_FUSED_KERNEL", "1"}, {"COC_MODE", "1"}}),
              ElementsAre("environment: COC_MODE=1 is without slices, and USE_COC_FUSED_KERNEL=1 "
                          "is not: COC_MODE wins"));
  EXPECT_FALSE(off.options.parallel.linears.fused);
}

TEST(Environment, OfFusedKernelsGivesWayToFlags) {
  EnvironmentFixture sliced({"--num-slices", "4"});
  EXPECT_THAT(sliced.read({{"USE_COC_FUSED_KERNEL", "1"}}),
              ElementsAre("environment: USE_COC_FUSED_KERNEL=1 is --fused-linears, but "
                          "--num-slices 4 is given, which wins"));
  EXPECT_FALSE(sliced.options.parallel.linears.fused);
  EnvironmentFixture fused({"--coc-fused-kernel"});
  EXPECT_THAT(fused.read({{"USE_COC_FUSED_KERNEL", "1"}}), IsEmpty());
  EXPECT_THAT(fused.read({{"COC_PARALLEL_NUM", "2"}}),
              ElementsAre("environment: COC_PARALLEL_NUM=2 is --num-slices 2, but --fused-linears "
                          "is given, which wins"));
}

TEST(Environment, RefusesValuesThatMindSpeedRefuses) {
  EnvironmentFixture f;
  const auto failure = [&](const Variables& variables) {
    return message_of(Fault::kUsage, [&] { f.read(variables); });
  };
  EXPECT_EQ(failure({{"COC_PARALLEL_NUM", "3"}}),
            "environment: COC_PARALLEL_NUM: got \"3\", wanted 1, 2, 4, 8; or unset it and give "
            "--num-slices");
  EXPECT_THAT(failure({{"COC_MODE", "many"}}), HasSubstr("COC_MODE: got \"many\", wanted -1, 0,"));
  EXPECT_THAT(failure({{"USE_COC_FUSED_KERNEL", "yes"}}), HasSubstr("wanted 0, 1"));
  EXPECT_THAT(f.read({{"COC_PARALLEL_NUM", ""}}), IsEmpty());
}

TEST(Environment, NamesTogetherWhatHasNoEffect) {
  EnvironmentFixture f;
  EXPECT_THAT(f.read({{"HCCL_CONNECT_TIMEOUT", "1200"},
                      {"ASCEND_RT_VISIBLE_DEVICES", "0"},
                      {"MASTER_ADDR", "localhost"},
                      {"CUDA_DEVICE_MAX_CONNECTIONS", "1"},
                      {"TASK_QUEUE_ENABLE", "2"},
                      {"PATH", "/bin"},
                      {"HOME", "/"},
                      {"RANK", "0"}}),
              ElementsAre("environment: ignored here: ASCEND_RT_VISIBLE_DEVICES, "
                          "CUDA_DEVICE_MAX_CONNECTIONS, HCCL_CONNECT_TIMEOUT, "
                          "TASK_QUEUE_ENABLE"));
  EXPECT_THAT(f.read({{"PATH", "/bin"}, {"CUDA_VISIBLE_DEVICES", "0"}}), IsEmpty());
}

TEST(Environment, NamesAnotherNumberOfRanks) {
  EXPECT_EQ(world_size_note({}, 2), "");
  EXPECT_EQ(world_size_note({{"WORLD_SIZE", "2"}}, 2), "");
  EXPECT_EQ(world_size_note({{"WORLD_SIZE", "8"}}, 1),
            "environment: WORLD_SIZE=8, but the run has 1 rank; the launcher's number counts");
}

// Every variable that the documents name has a row.
TEST(EnvironmentPage, HasTheVariablesOfTheDocuments) {
  const std::string page = environment_page();
  for (const char* name : {"MASTER_ADDR",
                           "MASTER_PORT",
                           "RANK",
                           "WORLD_SIZE",
                           "LOCAL_RANK",
                           "NPUS_PER_NODE",
                           "CUDA_DEVICE_MAX_CONNECTIONS",
                           "COC_PARALLEL_NUM",
                           "USE_COC_FUSED_KERNEL",
                           "COC_MODE",
                           "TASK_QUEUE_ENABLE",
                           "COMBINED_ENABLE",
                           "PTCOPY_ENABLE",
                           "DYNAMIC_OP",
                           "HCCL_*",
                           "INF_NAN_MODE_ENABLE",
                           "ASCEND_*",
                           "PYTORCH_NPU_ALLOC_CONF",
                           "TOKENIZERS_PARALLELISM",
                           "TRANSFORMERS_OFFLINE",
                           "CUDA_VISIBLE_DEVICES"}) {
    EXPECT_THAT(page, HasSubstr(std::string("`") + name + "`"));
  }
}

}  // namespace
}  // namespace piton::cli
