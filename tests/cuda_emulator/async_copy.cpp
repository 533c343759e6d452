#include "cuda_emulator/async_copy.h"

#include <deque>
#include <vector>

#include "cuda_emulator/launcher.h"

namespace piton::emulator {
namespace {

// Of the threads of one block: blocks run one after another.
struct Copies {
  std::uint32_t launch = 0;
  std::uint32_t block = 0;
  std::vector<std::deque<Copy>> of_thread{kMostThreads};
};

std::deque<Copy>& mine() {
  static Copies copies;
  const Moment& moment = running_thread.moment;
  if (copies.launch != moment.launch || copies.block != moment.block) {
    copies.launch = moment.launch;
    copies.block = moment.block;
    for (auto& one : copies.of_thread) one.clear();
  }
  return copies.of_thread[moment.thread];
}

}  // namespace

void add_copy(const Copy& copy) { mine().push_back(copy); }

bool next_copy(Copy* copy) {
  std::deque<Copy>& all = mine();
  if (all.empty()) return false;
  *copy = all.front();
  all.pop_front();
  return true;
}

}  // namespace piton::emulator
