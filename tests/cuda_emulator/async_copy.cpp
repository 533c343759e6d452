#include "cuda_emulator/async_copy.h"

#include <algorithm>
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

void end_copies() { mine().push_back({}); }

bool next_copy(Copy* copy, int left) {
  std::deque<Copy>& all = mine();
  const auto is_end = [](const Copy& one) { return one.to == nullptr; };
  while (!all.empty() && (left == 0 || std::count_if(all.begin(), all.end(), is_end) > left)) {
    *copy = all.front();
    all.pop_front();
    if (!is_end(*copy)) return true;
  }
  return false;
}

}  // namespace piton::emulator
