// Small faults that can be made in a source, one at a time: what a test suite should see.
#pragma once

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace piton::mutate {

// A character of a name or a number.
inline bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

struct Fault {
  std::size_t at = 0;  // first byte of what is replaced
  std::string from;    // what is there
  std::string to;      // what comes in its place
  std::string kind;    // "relation", "arithmetic", "logic", "negation", "constant" or "call"
};

// Every fault for a source, in the order of the text. Left alone: comments, literals, lines of the
// preprocessor, assertions, what is thrown, said, logged or formatted, template brackets, and zeros
// and falses that a header gives its members to start with.
std::vector<Fault> faults_in(std::string_view text, bool is_header);

// `text` with the fault made. The number of lines stays.
std::string with_fault(std::string_view text, const Fault& fault);

// 1-based.
std::size_t line_of(std::string_view text, std::size_t at);

}  // namespace piton::mutate
