#include "cli/terminal/interrupts.h"

#include <pthread.h>
#include <signal.h>

#include <ctime>

namespace piton::cli {
namespace {

sigset_t interrupt_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

void block() {
  const sigset_t set = interrupt_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void unblock() {
  const sigset_t set = interrupt_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

// Takes a SIGINT that waits.
bool take() {
  const sigset_t set = interrupt_set();
  const timespec now{};
  return ::sigtimedwait(&set, nullptr, &now) == SIGINT;
}

}  // namespace

Interrupts::Interrupts() { block(); }
Interrupts::~Interrupts() { unblock(); }
void Interrupts::threads_are_made() { unblock(); }

Interrupts::Answer::Answer() { block(); }
Interrupts::Answer::~Answer() {
  take();
  unblock();
}

bool Interrupts::Answer::interrupted() {
  interrupted_ = interrupted_ || take();
  return interrupted_;
}

}  // namespace piton::cli
