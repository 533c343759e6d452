// SIGINT, SIGTERM and SIGUSR1 for a command that saves before it ends.
//
// No handler is installed, so no signal ever interrupts what computes: generated kernels run with
// their stack pointer in memory of other use, and a handler's frame would be written over it. The
// three are blocked in the thread that makes this object, and so in all that it starts later; one
// thread, which does nothing else, takes them from the kernel.
//
//   before promise()   nothing can be lost: any of them ends the process, with 128 + its number
//   after it           the first asks the command to stop, and is answered by a line of the log at
//                      once; a second SIGINT or SIGTERM ends the process at once, with 128 + its
//                      number; SIGUSR1 again changes nothing
//   after settle()     they change nothing: what was asked for is done, and the process is about to
//                      end. A launcher that sees another rank end sends SIGTERM to all
//   after this object  they stay blocked, and change nothing: the process is about to end
//
// To be made before any other thread of the process.
#pragma once

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

  // From now on a signal asks. `answer`: what follows then ("ending after this step").
  void promise(std::string answer);
  // Others give the answer: of several ranks, one speaks.
  void be_silent();

  // From now on a signal changes nothing.
  void settle();

  // The number of the first one after promise(); 0: none has come. Any thread.
  int first() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton::cli
