// What a command gives: text to standard output, as it is.
#pragma once

#include <cstdio>
#include <string>

namespace piton::cli {

inline void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace piton::cli
