// Prints the result of a command to standard output, unchanged.
#pragma once

#include <cstdio>
#include <string>

namespace piton::cli {

inline void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// The same, so that it is seen before more follows.
inline void print_at_once(const std::string& text) {
  print(text);
  std::fflush(stdout);
}

}  // namespace piton::cli
