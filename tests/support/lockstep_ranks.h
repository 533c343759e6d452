// Several ranks in one process: each is a thread, and collectives read each other's memory between
// barriers. For tests of what ranks do together, without mpirun. Host tensors only; every collective is
// complete when it returns. Sums run in double in the order of ranks: for fp32 that rounds once.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "support/tensors.h"

namespace piton::test {

// Thrown where a rank waits for one that has failed.
class RankLost : public std::runtime_error {
 public:
  RankLost() : std::runtime_error("another rank failed") {}
};

// What the members of one group share.
class ThreadGroup {
 public:
  ThreadGroup(int size, std::atomic<bool>& lost) : slots(static_cast<std::size_t>(size)), lost_(lost) {}

  void barrier() {
    std::unique_lock lock(mutex_);
    const std::int64_t round = round_;
    if (++arrived_ == static_cast<int>(slots.size())) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    while (round_ == round) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      if (lost_ && round_ == round) throw RankLost();
    }
  }

  struct Slot {
    const void* address = nullptr;
    std::string bytes;
  };
  std::vector<Slot> slots;

 private:
  std::atomic<bool>& lost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  std::int64_t round_ = 0;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank, std::string name)
      : group_(std::move(group)), rank_(rank), name_(std::move(name)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->slots.size()); }
  std::string name() const override { return name_; }

  Event all_reduce(const Tensor& data, Reduction reduction, Stream& after) override {
    return exchange(data, after, [&](const std::vector<Tensor>& all) {
      const std::vector<double> sum = combined(all, reduction, 0, data.elements());
      group_->barrier();
      assign(data, sum);
    });
  }
  Event all_gather(const Tensor& out, const Tensor& mine, Stream& after) override {
    return exchange(mine, after, [&](const std::vector<Tensor>& all) {
      for (std::size_t member = 0; member < all.size(); ++member) {
        std::byte* dst = out.raw() + static_cast<std::int64_t>(member) * mine.bytes();
        if (dst != all[member].raw()) {
          std::memmove(dst, all[member].raw(), static_cast<std::size_t>(mine.bytes()));
        }
      }
    });
  }
  Event reduce_scatter(const Tensor& mine, const Tensor& all, Stream& after) override {
    return exchange(all, after, [&](const std::vector<Tensor>& tensors) {
      const std::vector<double> sum =
          combined(tensors, Reduction::kSum, rank_ * mine.elements(), mine.elements());
      group_->barrier();
      assign(mine, sum);
    });
  }
  Event all_gather_parts(const Tensor& flat, std::span<const std::int64_t> begins, Stream& after) override {
    const std::int64_t width = size_bytes(flat.dtype());
    return exchange(flat, after, [&](const std::vector<Tensor>& all) {
      for (int member = 0; member < size(); ++member) {
        if (member == rank_) continue;
        std::memcpy(flat.raw() + begins[member] * width, all[member].raw() + begins[member] * width,
                    static_cast<std::size_t>((begins[member + 1] - begins[member]) * width));
      }
    });
  }
  Event reduce_scatter_parts(const Tensor& flat, std::span<const std::int64_t> begins,
                             Stream& after) override {
    const std::int64_t count = begins[rank_ + 1] - begins[rank_];
    return exchange(flat, after, [&](const std::vector<Tensor>& all) {
      const std::vector<double> sum = combined(all, Reduction::kSum, begins[rank_], count);
      group_->barrier();
      assign(flat.flatten().slice(0, begins[rank_], count), sum);
    });
  }
  Event broadcast(const Tensor& data, int root, Stream& after) override {
    return exchange(data, after, [&](const std::vector<Tensor>& all) {
      if (rank_ != root) {
        std::memcpy(data.raw(), all[root].raw(), static_cast<std::size_t>(data.bytes()));
      }
    });
  }
  Event send(const Tensor&, int, int, Stream&) override { return unsupported(); }
  Event receive(const Tensor&, int, int, Stream&) override { return unsupported(); }

  std::vector<std::string> gather_bytes(const std::string& mine) override {
    group_->slots[rank_].bytes = mine;
    group_->barrier();
    std::vector<std::string> all;
    for (const ThreadGroup::Slot& slot : group_->slots) all.push_back(slot.bytes);
    group_->barrier();
    return all;
  }
  void barrier() override { group_->barrier(); }
  std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t) override {
    unsupported();
    return nullptr;
  }
  TrafficCounts traffic() const override { return {}; }

 private:
  template <typename F>
  Event exchange(const Tensor& mine, Stream& after, F&& work) {
    after.synchronize();
    group_->slots[rank_].address = &mine;
    group_->barrier();
    std::vector<Tensor> all;
    for (const ThreadGroup::Slot& slot : group_->slots) {
      all.push_back(*static_cast<const Tensor*>(slot.address));
    }
    work(all);
    all.clear();  // a member that goes on may give its memory back
    group_->barrier();
    return after.record();
  }

  static std::vector<double> combined(const std::vector<Tensor>& all, Reduction reduction,
                                      std::int64_t begin, std::int64_t count) {
    std::vector<double> result(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      double value = value_at(all[0], begin + i);
      for (std::size_t member = 1; member < all.size(); ++member) {
        const double other = value_at(all[member], begin + i);
        value = reduction == Reduction::kSum ? value + other : std::max(value, other);
      }
      result[static_cast<std::size_t>(i)] = value;
    }
    return result;
  }

  static Event unsupported() {
    PITON_ASSERT(false, "ranks on threads pass no messages");
    return {};
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
  std::string name_;
};

// The ranks of one run_ranks() call.
class ThreadWorlds {
 public:
  explicit ThreadWorlds(int size) : size_(size) {}

  int size() const { return size_; }
  std::atomic<bool>& lost() { return lost_; }

  std::shared_ptr<ThreadGroup> group(const std::vector<int>& ranks, const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<ThreadGroup>& group = groups_[{name, ranks}];
    if (!group) group = std::make_shared<ThreadGroup>(static_cast<int>(ranks.size()), lost_);
    return group;
  }

 private:
  int size_;
  std::atomic<bool> lost_{false};
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<ThreadGroup>> groups_;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(ThreadWorlds& worlds, int rank) : worlds_(worlds), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return worlds_.size(); }
  int host_rank() const override { return rank_; }
  int host_size() const override { return worlds_.size(); }

  std::unique_ptr<Communicator> make_group(std::span<const int> ranks, const std::string& name) override {
    const std::vector<int> members(ranks.begin(), ranks.end());
    const auto place = std::find(members.begin(), members.end(), rank_);
    PITON_ASSERT(place != members.end());
    return std::make_unique<ThreadCommunicator>(worlds_.group(members, name),
                                                static_cast<int>(place - members.begin()), name);
  }
  [[noreturn]] void abort(int) override { throw RankLost(); }
  TrafficCounts traffic() const override { return {}; }

 private:
  ThreadWorlds& worlds_;
  int rank_;
};

// Runs body(world) as each of `size` ranks and waits for all. What the lowest rank threw is thrown
// here; ranks that wait for it end with RankLost.
inline void run_ranks(int size, const std::function<void(World&)>& body) {
  ThreadWorlds worlds(size);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadWorld world(worlds, rank);
        body(world);
      } catch (const RankLost&) {
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        worlds.lost() = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace piton::test
