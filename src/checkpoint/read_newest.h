// Reads the newest checkpoint of a run that may still be training.
//
// A run with --keep 1 removes a checkpoint as soon as the next one is complete, perhaps while
// another process reads it. That looks like damage; the tracker tells the difference.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/collective.h"
#include "checkpoint/store.h"

namespace piton {

// Calls read(folder) with the folder that newest() returns. If it throws Error(kData), and newest()
// returns another folder by then, calls it again with that one.
template <typename Newest, typename Read>
void read_while_replaced(Newest&& newest, Read&& read) {
  constexpr int kMostTimes = 20;  // a reader that is too slow every time has to report it
  std::filesystem::path folder = newest();
  for (int times = 1;; ++times) {
    try {
      read(folder);
      return;
    } catch (const Error& error) {
      if (error.fault() != Fault::kData || times == kMostTimes) throw;
      const std::filesystem::path now = newest();
      if (now == folder) throw;
      folder = now;
    }
  }
}

// The same with the checkpoint that the tracker of `path` names.
template <typename Read>
void read_newest(const std::filesystem::path& path, Read&& read) {
  read_while_replaced([&] { return find_checkpoint(path); }, read);
}

// Collective over `ranks`: all of them get the same folder. read() throws on all of them or on
// none.
template <typename Read>
void read_newest(const std::filesystem::path& path, Communicator& ranks, Read&& read) {
  const auto newest = [&] {
    return std::filesystem::path(
        found_by_first(ranks, [&] { return find_checkpoint(path).string(); }));
  };
  read_while_replaced(newest, read);
}

}  // namespace piton
