// The back ends that a run may select.
#include "api/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

std::string refusal(const EngineOptions& options) {
  return message_of(Fault::kUsage, [&] {
    SilentLog log;
    const Engine engine(options, log);
  });
}

TEST(Engine, RefusesCudaWhereItCannotRunAndSaysWhatWould) {
  if (has_kernels("cuda")) GTEST_SKIP() << "this machine has a GPU that this build can use";
  const std::string message = refusal({.kernels = "cuda"});
  EXPECT_THAT(message, HasSubstr("cuda"));
  EXPECT_THAT(message, HasSubstr("--kernels cpu"));
}

TEST(Engine, RefusesCudaUnderMpirun) {
  EXPECT_THAT(refusal({.kernels = "cuda", .launched = true}), HasSubstr("--kernels cpu"));
}

TEST(Engine, ChoosesTheCpuWhereNoGpuCanBeUsed) {
  if (has_kernels("cuda")) GTEST_SKIP() << "this machine has a GPU that this build can use";
  SilentLog log;
  Engine engine({.kernels = "auto", .threads = 1}, log);
  EXPECT_EQ(engine.machine().device.place().kind, DeviceKind::kHost);
}

TEST(Engine, RefusesKernelsThatNobodyKnows) {
  EXPECT_FALSE(has_kernels("gpu"));
  EXPECT_THAT(refusal({.kernels = "gpu"}),
              HasSubstr("got gpu, wanted reference, cpu, cuda or auto"));
}

}  // namespace
}  // namespace piton
