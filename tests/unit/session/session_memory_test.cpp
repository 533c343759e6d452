// From the third step on, a step takes no memory for tensors from the system, makes no large heap
// allocations, and runs no copy kernels.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "support/run_session.h"

namespace {

// Activations of the tiny models are this large in fp32; smaller blocks are nodes, names, lists of
// handles. So is the list of the inputs of a step's micro-batches, which is larger.
constexpr std::size_t kData = 16384;
constexpr std::size_t kInputs = 4 * sizeof(piton::ModelInput);
std::atomic<std::int64_t> large_blocks = 0;

void* counted(std::size_t bytes) {
  if (bytes >= kData && bytes != kInputs) ++large_blocks;
  if (void* block = std::malloc(bytes > 0 ? bytes : 1)) return block;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
// std::stable_sort takes its buffer by this one.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (bytes >= kData && bytes != kInputs) ++large_blocks;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }

namespace piton {
namespace {

class StepMemory : public testing::TestWithParam<std::tuple<const char*, bool, bool>> {};

TEST_P(StepMemory, AsksNothingAndCopiesNothing) {
  const auto& [name, bf16, recompute] = GetParam();
  HostDevice device;
  const auto world = make_single_world(device);
  ModelConfig model = preset(name);
  if (bf16) model.dtype = DType::kBF16;
  test::TrainingRun run(*world, {.name = "one", .mesh = {}, .recompute = recompute}, model);
  run.losses(2);
  for (int step = 0; step < 3; ++step) {
    const auto batches = test::batches(run.consumed(), 0, 1, model.vocabulary);
    const std::int64_t taken = run.arena().counts().system_allocations;
    run.calls().clear();
    large_blocks = 0;
    run.session().train_step(batches, run.consumed(), 1e-3);
    EXPECT_EQ(large_blocks, 0);
    EXPECT_EQ(run.arena().counts().system_allocations, taken);
    EXPECT_EQ(run.calls().of("copy").calls, 0);
    EXPECT_GT(run.calls().of(LinearForward::kName).calls, 0);
    run.set_consumed(run.consumed() + test::kSamples);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StepMemory,
                         testing::Combine(testing::Values("gpt2-tiny", "llama-tiny"),
                                          testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace piton
