// What --kernels auto chooses.
#include "api/automatic_kernels.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

const std::string kNoLibrary = "--kernels cuda: cannot open libcublasLt.so.13: no such file";
const std::string kNoNccl = "NCCL: cannot open libnccl.so.2: no such file";

EngineOptions ranks_of_mpirun(int on_this_host) {
  return {.kernels = "auto",
          .launched = true,
          .meeting = MeetingPlace{.size = on_this_host, .host_size = on_this_host}};
}

void expect_choice(const EngineOptions& options, const GpuFacts& gpu, const std::string& kernels,
                   const std::string& obstacle) {
  const AutomaticKernels got = automatic_kernels(options, gpu);
  EXPECT_EQ(got.kernels, kernels);
  EXPECT_EQ(got.obstacle, obstacle);
}

TEST(AutomaticKernels, AreThoseOfAGpuThatCanBeUsed) {
  expect_choice({.kernels = "auto"}, {.devices = 1}, "cuda", "");
  expect_choice(ranks_of_mpirun(2), {.devices = 2}, "cuda", "");
}

TEST(AutomaticKernels, AreThoseOfTheCpuWithoutAWordWhereThereIsNoGpu) {
  expect_choice({.kernels = "auto"}, {}, "cpu", "");
  expect_choice({.kernels = "auto"}, {.library_obstacle = kNoLibrary}, "cpu", "");
}

TEST(AutomaticKernels, AreThoseOfTheCpuWhereTheLibraryOfProductsIsMissing) {
  expect_choice({.kernels = "auto"}, {.devices = 1, .library_obstacle = kNoLibrary}, "cpu",
                kNoLibrary);
  expect_choice(ranks_of_mpirun(2), {.devices = 2, .library_obstacle = kNoLibrary}, "cpu",
                kNoLibrary);
}

TEST(AutomaticKernels, AreThoseOfTheCpuWhereRanksOutnumberGpus) {
  expect_choice(ranks_of_mpirun(4), {.devices = 2}, "cpu", "this host has 2 GPUs for 4 ranks");
  expect_choice({.kernels = "auto", .launched = true}, {.devices = 1}, "cpu", "");
}

TEST(AutomaticKernels, OfSeveralRanksNeedNccl) {
  expect_choice(ranks_of_mpirun(2), {.devices = 2, .nccl_obstacle = kNoNccl}, "cpu", kNoNccl);
  EngineOptions torchrun = ranks_of_mpirun(2);
  torchrun.launched = false;
  expect_choice(torchrun, {.devices = 2, .nccl_obstacle = kNoNccl}, "cpu", kNoNccl);
}

}  // namespace
}  // namespace piton
