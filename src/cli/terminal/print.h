// Prints the result of a command to standard output, unchanged.
#pragma once

#include <cstdio>
#include <string>

namespace piton::cli {

inline void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace piton::cli
