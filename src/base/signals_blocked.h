// Threads that receive no signals.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace piton {

// During its lifetime, threads started by this thread have all signals blocked except those of
// faults (SIGSEGV, ...). Generated kernels use the stack pointer for other data, which the frame of
// a handler on a compute thread would overwrite (cli/terminal/stop_signals.h).
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
