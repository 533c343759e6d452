// A value of each rank of a group, on all of them.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"

namespace piton {

// The values of all members, in the order of ranks. Collective. Ranks have the same representation
// of T. Not for bool: std::vector<bool> has no elements.
template <typename T>
std::vector<T> gathered_values(Communicator& ranks, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
  std::vector<T> values;
  for (const std::string& bytes :
       ranks.gather_bytes(std::string(reinterpret_cast<const char*>(&mine), sizeof(T)))) {
    std::memcpy(&values.emplace_back(), bytes.data(), sizeof(T));
  }
  return values;
}

// Whether `mine` is true on every rank. Collective.
inline bool true_on_all(Communicator& ranks, bool mine) {
  for (const char one : gathered_values<char>(ranks, mine ? 'y' : 'n')) {
    if (one != 'y') return false;
  }
  return true;
}

}  // namespace piton
