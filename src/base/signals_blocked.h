// Threads that no signal reaches.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace piton {

// While it lives, threads that this thread starts begin with every signal blocked but those of
// faults (SIGSEGV, ...): signals are for the program's own threads. A handler on a thread that
// computes would write its frame where generated code keeps data (cli/stop_signals.h).
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace piton
