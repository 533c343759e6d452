// One thread that makes pieces, several that work on them, and the caller, who gets the results in
// the order in which the pieces were made.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace piton {

// Piece and Result are movable. At most `limit` of weight (bytes, say) is in flight between maker
// and caller, but always at least one piece, so that one that is too heavy still passes.
template <typename Piece, typename Result>
class OrderedPipeline {
 public:
  struct Made {
    Piece piece;
    std::int64_t weight = 0;
  };

  // `make` runs on a thread of its own until it returns nothing. `work(worker, piece)` runs on
  // `workers` threads. `take` runs on this thread; when it throws, all threads are ended and the
  // exception leaves. An exception of `make` or `work` leaves when its place in the order is reached.
  void run(int workers, std::int64_t limit, const std::function<std::optional<Made>()>& make,
           const std::function<Result(int, Piece)>& work, const std::function<void(Result)>& take) {
    std::vector<std::jthread> threads;
    threads.emplace_back([&] { make_all(limit, make); });
    for (int worker = 0; worker < workers; ++worker) {
      threads.emplace_back([&, worker] { work_all(worker, work); });
    }
    try {
      take_all(take);
    } catch (...) {
      stop();
      throw;
    }
    stop();
  }

 private:
  struct Finished {
    std::optional<Result> result;
    std::exception_ptr fault;
    std::int64_t weight = 0;
  };
  struct Waiting {
    std::int64_t number = 0;
    Made made;
  };

  void make_all(std::int64_t limit, const std::function<std::optional<Made>()>& make) {
    for (std::int64_t number = 0;; ++number) {
      std::optional<Made> made;
      std::exception_ptr fault;
      try {
        made = make();
      } catch (...) {
        fault = std::current_exception();
      }
      std::unique_lock lock(mutex_);
      if (!made) {
        if (fault) finished_[number++].fault = fault;
        total_ = number;
        changed_.notify_all();
        return;
      }
      changed_.wait(lock, [&] { return stopped_ || in_flight_ == 0 || in_flight_ + made->weight <= limit; });
      if (stopped_) return;
      in_flight_ += made->weight;
      waiting_.push_back({number, *std::move(made)});
      changed_.notify_all();
    }
  }

  void work_all(int worker, const std::function<Result(int, Piece)>& work) {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || !waiting_.empty() || total_ >= 0; });
      if (stopped_ || (waiting_.empty() && total_ >= 0)) return;
      if (waiting_.empty()) continue;
      Waiting item = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      Finished finished;
      finished.weight = item.made.weight;
      try {
        finished.result = work(worker, std::move(item.made.piece));
      } catch (...) {
        finished.fault = std::current_exception();
      }
      lock.lock();
      finished_.insert_or_assign(item.number, std::move(finished));
      changed_.notify_all();
    }
  }

  void take_all(const std::function<void(Result)>& take) {
    for (std::int64_t number = 0;; ++number) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return finished_.contains(number) || (total_ >= 0 && number >= total_); });
      if (!finished_.contains(number)) return;
      Finished finished = std::move(finished_.extract(number).mapped());
      lock.unlock();
      if (finished.fault) std::rethrow_exception(finished.fault);
      take(*std::move(finished.result));
      lock.lock();
      in_flight_ -= finished.weight;
      changed_.notify_all();
    }
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::map<std::int64_t, Finished> finished_;
  std::int64_t in_flight_ = 0;
  std::int64_t total_ = -1;
  bool stopped_ = false;
};

}  // namespace piton
