// The collectives of one group, executed one after the other in the order of the calls.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/ranks/collective.h"

namespace piton {

class GroupQueue final : public Activity {
 public:
  GroupQueue(std::string group, std::unique_ptr<CollectiveRunner> runner);

  // Any thread. The collective starts when its job is ready and all earlier ones have finished.
  void add(Collective collective);

  bool progress() override;
  bool pending() const override;
  bool polls() const override { return running_ && runner_->polls(); }
  std::optional<Wait> longest_wait(Clock::time_point now) override;
  void fail(const std::string& why) override;

 private:
  std::string group_;
  std::unique_ptr<CollectiveRunner> runner_;
  mutable std::mutex mutex_;  // guards the next three
  std::deque<Collective> queue_;
  std::int64_t asked_ = 0;
  std::optional<std::string> failure_;

  std::optional<Collective> running_;
  std::vector<std::shared_ptr<Storage>> memory_;  // of running_; and of one that has failed
  Clock::time_point started_;
};

}  // namespace piton
