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
// The oldest copy of the running thread, which is no longer kept; false: there is none.
bool next_copy(Copy* copy);

}  // namespace piton::emulator
