// The copies that the threads of a block have started and not waited for.
#pragma once

namespace piton::emulator {

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  int bytes = 0;
};

// For the running thread.
void add_copy(const Copy& copy);
// Ends a batch of its copies.
void end_copies();
// The oldest copy of the running thread, which is no longer kept; false: there is none but in the
// last `left` batches that have ended, and, with `left` above 0, behind them.
bool next_copy(Copy* copy, int left = 0);

}  // namespace piton::emulator
