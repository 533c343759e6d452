#include "comm/ranks/group_queue.h"

#include <fmt/format.h>

#include <utility>

namespace piton {

GroupQueue::GroupQueue(std::string group, std::unique_ptr<CollectiveRunner> runner)
    : group_(std::move(group)), runner_(std::move(runner)) {}

void GroupQueue::add(Collective collective) {
  const std::lock_guard lock(mutex_);
  collective.number = asked_++;
  if (failure_) {
    collective.job->fail(*failure_);
    return;
  }
  queue_.push_back(std::move(collective));
}

bool GroupQueue::pending() const {
  if (running_) return true;
  const std::lock_guard lock(mutex_);
  return !queue_.empty();
}

bool GroupQueue::progress() {
  bool moved = false;
  if (!running_) {
    const std::lock_guard lock(mutex_);
    if (queue_.empty() || !queue_.front().job->ready()) return false;
    running_ = std::move(queue_.front());
    queue_.pop_front();
    memory_ = std::exchange(running_->memory, {});  // not in the copy that the runner makes
    started_ = Clock::now();
    moved = true;
  }
  if (moved) runner_->start(*running_);
  moved |= runner_->step();
  if (runner_->finished()) {
    memory_.clear();
    running_->job->finish();
    running_.reset();
  }
  return moved;
}

std::optional<Wait> GroupQueue::longest_wait(Clock::time_point now) {
  if (!running_) return std::nullopt;
  return Wait{.seconds = std::chrono::duration<double>(now - started_).count(),
              .what = fmt::format("group {}: {}", group_, running_->text()),
              .missing = runner_->missing()};
}

void GroupQueue::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = why;
  if (running_) {
    running_->job->fail(why.find(running_->text()) != std::string::npos
                            ? why
                            : fmt::format("{}; group {} was in {}", why, group_, running_->text()));
  }
  // The transport may still write into the memory of the collective, which stays in memory_.
  running_.reset();
  for (Collective& collective : queue_) collective.job->fail(*failure_);
  queue_.clear();
}

}  // namespace piton
