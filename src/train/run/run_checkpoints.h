// Reads --load and writes --save for a run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/background_save.h"
#include "checkpoint/store.h"
#include "model_files/opened_adapter.h"
#include "rollouts/value_objective.h"
#include "session/machine.h"
#include "session/session.h"
#include "train/run/checkpoint_writer.h"
#include "train/run/foreign_model.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_data.h"

namespace piton {

// The folder in --save with the checkpoints of the critic.
inline constexpr const char* kCriticFolder = "critic";

// What a run trains.
struct RunModels {
  Session& session;
  Critic* critic = nullptr;  // null: another stage than ppo
};

class RunCheckpoints final : public CheckpointWriter {
 public:
  // All arguments must outlive it. `settled`: the resolved options.
  RunCheckpoints(const Machine& machine, const RunModels& models, RunData& data,
                 PretrainOptions& settled)
      : machine_(machine),
        mesh_(models.session.mesh()),
        session_(models.session),
        critic_(models.critic),
        data_(data),
        settled_(settled),
        copy_(machine.device) {}

  // These are collective. Each throws the same Error on every rank.

  struct ResumeRequest {
    const std::filesystem::path& checkpoint;
    // The state of a run that starts from the beginning. Its facts are compared with those of the
    // checkpoint, whose other facts are kept.
    const TrainState& fresh;
    std::int64_t train_iters = 0;  // of this run
  };
  // Loads all of a checkpoint, and returns its state. `damaged`: as of load_checkpoint().
  TrainState resume(const ResumeRequest& request, Log& log, bool* damaged);

  // Weights and optimizer of a checkpoint that this run has saved; returns its state.
  TrainState reload(const std::filesystem::path& checkpoint) {
    load_critic(checkpoint, nullptr);
    return load_checkpoint(checkpoint, stored_model(), context());
  }

  // Not collective. What resume() would return, without reading weights; with the same errors.
  static TrainState checked_state(const std::filesystem::path& checkpoint, PretrainOptions& settled,
                                  const TrainState& fresh, const RunData& data);

  // Loads only the weights, for a new run. `state`: of it; records where the weights come from.
  void start_from_weights(const std::filesystem::path& checkpoint, TrainState& state, Log& log,
                          bool* damaged);
  void start_from_foreign_weights(const OpenedModel& foreign, Log& log);
  // Elements of what a checkpoint holds, over all ranks.
  std::int64_t trained_elements();
  // Loads the base of the run's adapters. The values are published by what comes next.
  void load_base(const OpenedModel& base, Log& log);
  // After load_base(): new adapters, or those of another program. Throws Error(kUsage) for `from`
  // with other adapters than the run's options say.
  void start_adapters(const OpenedAdapter* from, Log& log);
  // Continues `foreign.run`. Arguments as of resume().
  TrainState resume_foreign(const OpenedModel& foreign, const TrainState& fresh, Log& log);

  // Not collective: these checkpoints of --save are damaged. --keep does not count them.
  void set_damaged(std::vector<std::int64_t> iterations) { damaged_ = std::move(iterations); }

  void check_data() override { data_.check_unchanged(); }
  void check_room() override;
  bool prepare_copy() override;
  std::filesystem::path save(TrainState& state) override;
  bool start_save(TrainState& state) override;
  std::optional<FinishedSave> take_finished(bool wait, Communicator& everyone) override;
  bool in_background() const override { return background_ != nullptr; }
  std::int64_t copy_bytes() const override { return copy_.bytes(); }

 private:
  StoredModel stored_model();
  StoredModel saved_model();
  StoredModel critic_model();
  void load_critic(const std::filesystem::path& checkpoint, bool* damaged);
  void save_critic(const TrainState& state);
  StoreContext context();
  void draw_new(const OpenedModel& opened);
  void add_facts(TrainState& state) const;
  SaveOrder save_order(const TrainState& state);
  SaveOptions save_options(const TrainState& state);

  Machine machine_;
  Mesh& mesh_;
  Session& session_;
  Critic* critic_;
  RunData& data_;
  PretrainOptions& settled_;
  std::function<void(const std::filesystem::path& folder)> write_adapter_;  // empty: none
  std::vector<std::int64_t> damaged_;
  SaveCopy copy_;
  std::unique_ptr<BackgroundSave> background_;  // its destructor waits for its end
  FinishedSave begun_;                          // what is known of it
};

}  // namespace piton
