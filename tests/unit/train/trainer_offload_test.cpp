// A disk that fails under a run whose state, or what its layers keep, is in a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using testing::HasSubstr;

class OffloadTest : public testing::Test {
 protected:
  OffloadTest() { test::write_small_corpus(folder_ / "corpus"); }

  // The options of a run that saves in `name`, with a file for `what`: state or activations.
  PretrainOptions options(const std::string& name, const std::string& what) {
    const std::string run = (folder_ / name).string();
    PretrainOptions options = test::small_options(
        folder_ / "corpus", {"--bf16", "--save", run, "--load", run,
                             what == "state" ? "--remote-device" : "--offload-activations",
                             (folder_ / "away").string()});
    options.offload.smallest_activation = 1;
    options.offload.faults = [this](std::string_view call) { return call == broken_ ? EIO : 0; };
    return options;
  }

  // Runs `steps` more steps and saves. With `fails`, that call fails from then on.
  void go_on(const PretrainOptions& options, int steps, const std::string& fails = "",
             bool while_saving = false) {
    HostDevice device;
    const std::unique_ptr<World> world = make_single_world(device);
    const test::SmallMachine own(*world);
    Trainer trainer(own.machine(), options, {});
    for (int i = 0; i < steps; ++i) trainer.step();
    if (!while_saving) trainer.save();
    if (fails.empty()) return;
    broken_ = fails;
    const std::string message = message_of(
        Fault::kData, [&] { while_saving ? trainer.save() : static_cast<void>(trainer.step()); });
    broken_ = "";
    EXPECT_THAT(message, HasSubstr(fmt::format("away: cannot {} offloaded tensors: Input/output "
                                               "error",
                                               fails)));
  }

  std::string hashes(const std::string& name) {
    const auto checkpoint = find_checkpoint(folder_ / name);
    return weights_hash(checkpoint) + optimizer_hash(checkpoint);
  }

  TempFolder folder_;
  std::string broken_;
};

TEST_F(OffloadTest, EndsAStepWithOneLineAndTheCheckpointBeforeGoesOn) {
  int number = 0;
  for (const char* what : {"state", "activations"}) {
    go_on(options(fmt::format("whole {}", what), what), 6);
    const bool state = std::string(what) == "state";
    for (const std::string& call : test::sampled<std::string>({"read", "write"}, 2, state)) {
      SCOPED_TRACE(fmt::format("{} of {}", call, what));
      const std::string name = fmt::format("run {}", number++);
      go_on(options(name, what), 2, call);
      go_on(options(name, what), 4);
      EXPECT_EQ(hashes(name), hashes(fmt::format("whole {}", what)));
    }
  }
}

TEST_F(OffloadTest, EndsASaveAndTheCheckpointBeforeGoesOn) {
  go_on(options("whole", "state"), 6);
  go_on(options("run", "state"), 2);
  go_on(options("run", "state"), 1, "read", /*while_saving=*/true);
  go_on(options("run", "state"), 4);
  EXPECT_EQ(hashes("run"), hashes("whole"));
}

}  // namespace
}  // namespace piton
