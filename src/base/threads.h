// The compute threads: our own pool, pinned, with a fixed partition of the work into parts.
//
// The caller of run() is thread 0; workers 1..n-1 are pinned to one core each and sleep on a futex
// between jobs, after looking for the next one for some microseconds. Part i is for thread i mod n,
// so that a thread finds in its caches what it left there. A thread that has done its parts takes
// those that another, put off by the system, has not come to; nobody waits for a thread that has no
// part in hand. With a fixed number of PARTS the result depends neither on the number of THREADS
// nor on who did what, as long as parts write disjoint memory.
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
  // `cores`: the processors to pin to, one a thread (cores[0] is for the caller); empty = not
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

  // Index of the calling thread in the pool, 0 .. threads()-1; 0 for threads that are not of it.
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
