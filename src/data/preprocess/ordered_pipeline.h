// Threads that make pieces, work on them, and take the results in the order in which the pieces
// were made. One thread at a time makes, one at a time takes, and all of them work.
//
// No thread is reserved for making or taking. Each thread makes a piece, works on it while it is in
// the cache of its core, and takes the results that are next in order. So `workers` threads run in
// all, none sleeps while there is work, and pieces are not made far ahead. A thread that makes
// pieces continues while others are idle: if making is the bottleneck, it never waits for a thread
// to wake up.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace piton {

// Piece and Result are movable. The pieces between making and taking weigh at most `limit` together
// (in bytes, say), or there is only one, so that a piece above the limit still passes.
template <typename Piece, typename Result>
class OrderedPipeline {
 public:
  struct Made {
    Piece piece;
    std::int64_t weight = 0;
  };

  // Calls `make` until it returns nothing, and `take` once per piece; never from two threads at
  // once. The calling thread is one of the `workers`. An exception of `make`, `work` or `take` ends
  // all threads and is rethrown after everything before it was taken. Throws Error(kUsage) if the
  // system refuses a thread.
  void run(int workers, std::int64_t limit, const std::function<std::optional<Made>()>& make,
           const std::function<Result(int, Piece)>& work, const std::function<void(Result)>& take) {
    const auto run_one = [&](int worker) {
      while (auto item = next(limit, make)) {
        Finished finished;
        finished.weight = item->made.weight;
        finished.fault = item->fault;
        try {
          if (!finished.fault) finished.result = work(worker, std::move(item->made.piece));
        } catch (...) {
          finished.fault = std::current_exception();
        }
        hand_in(item->number, std::move(finished), take);
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int worker = 1; worker < workers; ++worker) {
        try {
          threads.emplace_back([&, worker] { run_one(worker); });
        } catch (const std::system_error& error) {
          stop();  // else those that have started would do all the work first
          throw Error(Fault::kUsage,
                      "workers: the system refused thread {} of {}: {}; use fewer (--workers) or "
                      "raise the limit on processes",
                      worker + 1, workers, error.code().message());
        }
      }
      run_one(0);
    }
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  struct Item {
    std::int64_t number = 0;
    Made made;
    std::exception_ptr fault;  // of `make`; there is no piece
  };
  struct Finished {
    std::optional<Result> result;
    std::exception_ptr fault;
    std::int64_t weight = 0;
  };

  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    room_.notify_one();
  }

  // The next piece to work on; nothing at the end.
  std::optional<Item> next(std::int64_t limit, const std::function<std::optional<Made>()>& make) {
    std::unique_lock lock(mutex_);
    ++idle_;
    changed_.wait(lock, [&] { return stopped_ || !waiting_.empty() || !making_; });
    --idle_;
    if (!waiting_.empty() && !stopped_) {
      Item item = std::move(waiting_.front());
      waiting_.pop_front();
      return item;
    }
    if (stopped_ || all_made_) return {};
    making_ = true;
    std::optional<Item> mine;
    while (!mine && !all_made_) {
      Item item = make_one(lock, make);
      if (all_made_ && !item.fault) break;
      // Pieces in flight are with other threads, which do not wait for this one.
      room_.wait(lock, [&] {
        return stopped_ || in_flight_ == 0 || in_flight_ + item.made.weight <= limit;
      });
      if (stopped_) break;
      in_flight_ += item.made.weight;
      if (waiting_.size() < idle_) {
        waiting_.push_back(std::move(item));
        changed_.notify_one();
      } else {
        mine = std::move(item);
      }
    }
    making_ = false;
    if (all_made_) changed_.notify_all();
    return mine;
  }

  // Releases the lock while `make` runs.
  Item make_one(std::unique_lock<std::mutex>& lock,
                const std::function<std::optional<Made>()>& make) {
    Item item{.number = made_++};
    lock.unlock();
    bool last = false;
    try {
      std::optional<Made> made = make();
      last = !made;
      if (made) item.made = *std::move(made);
    } catch (...) {
      item.fault = std::current_exception();
      last = true;
    }
    lock.lock();
    all_made_ = last;
    return item;
  }

  // Takes this result and those that follow it, unless another thread is taking: then it does.
  void hand_in(std::int64_t number, Finished finished, const std::function<void(Result)>& take) {
    std::unique_lock lock(mutex_);
    finished_.emplace(number, std::move(finished));
    if (taking_) return;
    taking_ = true;
    while (!stopped_) {
      const auto first = finished_.find(taken_);
      if (first == finished_.end()) break;
      Finished one = std::move(first->second);
      finished_.erase(first);
      lock.unlock();
      try {
        if (!one.fault) take(*std::move(one.result));
      } catch (...) {
        one.fault = std::current_exception();
      }
      lock.lock();
      if (one.fault) {
        fault_ = one.fault;
        stopped_ = true;
        changed_.notify_all();
      }
      in_flight_ -= one.weight;
      ++taken_;
      room_.notify_one();
    }
    taking_ = false;
  }

  std::mutex mutex_;                 // guards all members below
  std::condition_variable changed_;  // for threads without work
  std::condition_variable room_;     // for the thread that makes
  std::deque<Item> waiting_;         // at most one for each idle thread
  std::size_t idle_ = 0;
  std::int64_t made_ = 0;
  bool making_ = false;
  bool all_made_ = false;

  std::map<std::int64_t, Finished> finished_;
  std::int64_t in_flight_ = 0;
  std::int64_t taken_ = 0;
  std::exception_ptr fault_;
  bool taking_ = false;
  bool stopped_ = false;
};

}  // namespace piton
