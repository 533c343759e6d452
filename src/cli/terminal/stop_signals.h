// SIGINT, SIGTERM, SIGHUP and SIGUSR1 for a command that saves before it ends.
//
// No handler is installed, so a signal never interrupts computation: generated kernels use their
// stack pointer for other data, which a handler's frame would overwrite. These signals are
// blocked in the thread that makes this object, and so in all threads that it starts later; one
// dedicated thread receives them from the kernel.
//
//   before promise()   nothing can be lost: any of them ends the process, with 128 + its number,
//                      after the work of before_end()
//   after promise()    the first one asks the command to stop, and a line is logged at once; a
//                      second SIGINT or SIGTERM, more than a quarter of a second after the first,
//                      ends the process at once, with 128 + its number; a second SIGUSR1 or SIGHUP
//                      (a shell and the kernel both send one) has no effect
//   after settle()     they have no effect: the work is done, and the process is about to end. A
//                      launcher that sees another rank end sends SIGTERM to all
//   after this object  they stay blocked, without effect: the process is about to end
//
// SIGHUP has no effect where it was ignored when the process started, as under nohup.
//
// Make it before any other thread of the process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/log.h"

namespace piton::cli {

class StopSignals {
 public:
  explicit StopSignals(Log& log);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // What a signal before promise() does before it ends the process, on another thread; nothing if
  // null. Waits for work that a signal has begun.
  void before_end(std::function<void()> work);

  // From now on a signal requests a stop. `answer`: what happens then ("ending after this step").
  void promise(std::string answer);
  // Does not log the answer: of several ranks, only one does.
  void be_silent();

  // From now on signals have no effect.
  void settle();

  // The number of the first signal after promise(); 0 if none has come. Thread-safe.
  int first() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton::cli
