// Threads that receive no signals.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace piton {

// During its lifetime, threads started by this thread have all signals blocked except those of
// faults (SIGSEGV, ...). On a compute thread, a handler's stack frame would overwrite data that
// generated code keeps below the stack pointer (cli/stop_signals.h).
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
