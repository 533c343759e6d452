// Failures and how they are reported.
//
// Two kinds, never mixed:
//   Error          someone outside this program can fix it: a flag, a file, a rank that died, a
//                  full disk. Thrown; only cli/main.cpp catches it.
//   PITON_ASSERT   this program is wrong. Prints and aborts; no input may reach it.
//
// A message reads  `where: what is wrong: got X, wanted Y; what to do`.
#pragma once

#include <fmt/format.h>

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace piton {

// Who can fix it. The value is the exit code of the process.
enum class Fault {
  kUsage = 2,     // a flag, value or combination
  kData = 3,      // a file, corpus, tokenizer or checkpoint is invalid
  kMemory = 4,    // not enough memory, as predicted or as found
  kDiverged = 5,  // the training run diverged
  kPeer = 6,      // another rank was lost or timed out
  kSaved = 75,    // saved a checkpoint after a signal; start the command again to resume
};

// Short word for messages and failure.json: "usage", "data", "memory", "diverged", "peer", "saved".
std::string_view name(Fault fault);

class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message) : std::runtime_error(message), fault_(fault) {}

  template <typename First, typename... Rest>
  Error(Fault fault, fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest)
      : Error(fault, fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...)) {}

  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

// The system's text for an errno value ("No space left on device").
std::string system_message(int code);

// The name in `known` that a user who typed `given` probably meant: the nearest one. "" if none is
// near (Damerau-Levenshtein distance at most 1/3 of the length; at most 1 for two letters).
std::string nearest_name(std::string_view given, std::span<const std::string> known);

// Prints the message with the place of the caller, and aborts. (Clang 14, which builds the fuzzers,
// has no std::source_location.)
[[noreturn]] void assertion_failed(const char* condition, const std::string& message,
                                   const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                   const char* function = __builtin_FUNCTION());

}  // namespace piton

// Checked in every build, release builds too. `...`, optional: a fmt format and its arguments.
#define PITON_ASSERT(condition, ...)                                                        \
  do {                                                                                      \
    if (!(condition)) ::piton::assertion_failed(#condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
