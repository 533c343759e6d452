// Checkpoints of one process, and the same ones loaded and saved by all ranks of a test.
#pragma once

#include <filesystem>
#include <string>

#include "ranks/setting.h"
#include "support/run_session.h"

namespace piton::ranks {

// A checkpoint after three steps of one process, in the empty folder FOLDER_<ranks> of the build.
inline std::filesystem::path save_from_one_process(const ModelConfig& model,
                                                   const std::string& folder) {
  const std::filesystem::path path =
      std::filesystem::path(PITON_BINARY_DIR) / fmt::format("{}_{}", folder, world().size());
  if (world().rank() == 0) {
    std::filesystem::remove_all(path);
    HostDevice device;
    const auto single = make_single_world(device);
    test::TrainingRun run(*single, {.name = "one process"}, model);
    run.losses(3);
    save_checkpoint(run.stored(), run.store(),
                    {path / "one", {.iteration = 3, .consumed_samples = run.consumed()}, ""});
  }
  everyone().barrier();
  return find_checkpoint(path / "one");
}

// Loads `from` into `run`, whose ranks save it again, in the folder "many" next to it: all bytes of
// weights and optimizer are the same.
inline std::filesystem::path expect_saved_again(test::TrainingRun& run,
                                                const std::filesystem::path& from) {
  run.set_consumed(load_checkpoint(from, run.stored(), run.store()).consumed_samples);
  const std::filesystem::path saved =
      save_checkpoint(run.stored(), run.store(),
                      {from.parent_path().parent_path() / "many",
                       {.iteration = 3, .consumed_samples = run.consumed()},
                       ""});
  EXPECT_EQ(weights_hash(saved), weights_hash(from));
  EXPECT_EQ(optimizer_hash(saved), optimizer_hash(from));
  return saved;
}

// The loss of the step that follows `saved`.
inline double next_loss(test::TrainingRun& run, const std::filesystem::path& saved) {
  run.set_consumed(load_checkpoint(saved, run.stored(), run.store()).consumed_samples);
  return run.step().loss;
}

inline double next_loss_of_one_process(const ModelConfig& model,
                                       const std::filesystem::path& saved) {
  HostDevice device;
  const auto single = make_single_world(device);
  test::TrainingRun alone(*single, {.name = "one process"}, model);
  return next_loss(alone, saved);
}

}  // namespace piton::ranks
