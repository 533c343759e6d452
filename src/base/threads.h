// The compute threads: our own pool, pinned, with a fixed partition of the work into parts.
//
// The caller of run() is thread 0; workers 1..n-1 are pinned to one core each. Between jobs they
// spin for some microseconds, then sleep on a futex. Part i is assigned to thread i mod n, so that
// a thread finds its data of the last job in its caches. A thread that has done its parts takes
// unstarted parts of threads that the system has delayed; run() does not wait for a thread that has
// no part. With a fixed number of PARTS the result does not depend on the number of THREADS or on
// which thread did which part, as long as parts write disjoint memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace piton {

// A reference to a callable, two words, no allocation. The callable must outlive the call.
class PartFunction {
 public:
  template <typename F>
  PartFunction(const F& f)  // NOLINT(google-explicit-constructor): a function argument
      : object_(&f), call_([](const void* object, std::int64_t part) {
          (*static_cast<const F*>(object))(part);
        }) {}
  void operator()(std::int64_t part) const { call_(object_, part); }

 private:
  const void* object_;
  void (*call_)(const void*, std::int64_t);
};

class ThreadPool {
 public:
  // `cores`: the processors to pin to, one per thread (cores[0] is for the caller); empty = not
  // pinned. `on_start` runs once on every thread, the caller's included (libraries with
  // thread-local settings).
  explicit ThreadPool(int threads, std::vector<int> cores = {},
                      std::function<void()> on_start = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls part(0) ... part(parts-1), each once, and returns when all are done. If a part throws,
  // the first exception (lowest part) is rethrown here after all parts have ended. Not reentrant: a
  // part that calls run() executes its parts by itself, in order.
  void run(std::int64_t parts, PartFunction part);

  // For a thread that a pinned caller has started, and that inherited its one processor: lets it
  // run where the caller could before.
  void unpin_this_thread() const;

  // Index of the calling thread in the pool, 0 .. threads()-1; 0 for threads outside the pool.
  static int thread_index();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Processors this process may use (its affinity mask), in order.
std::vector<int> available_cores();

// The share of `cores` for local rank `rank` of `ranks`, contiguous; every rank gets at least one,
// shared round robin if there are more ranks than cores.
std::vector<int> cores_of_rank(const std::vector<int>& cores, int rank, int ranks);

}  // namespace piton
