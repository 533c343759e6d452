// What woven sources ask at each fault (weave.h): whether it is the one that this process has. The
// environment chooses: PITON_FAULT is its number, none without. Where PITON_FAULT_LOG names a file,
// each fault that is asked for writes its number there, once a test case: a fault that a test does
// not reach is one that it cannot see.
#pragma once

// Half the time to compile.
#pragma GCC optimize("O1")

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

// A switch makes a constant a value of its type; the braces around it may hold a smaller type.
#pragma GCC diagnostic ignored "-Wnarrowing"
#pragma GCC diagnostic ignored "-Wparentheses"

namespace piton::mutate {

inline constexpr int kMaxFaults = 10'000;

inline int number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

inline const int chosen_fault = number_in_environment("PITON_FAULT");
inline const char* const reach_log = std::getenv("PITON_FAULT_LOG");
inline std::atomic<bool> reached[kMaxFaults];
// Of the test that runs, set by cases.cpp; "-" outside of one.
inline char case_name[1000] = "-";

// Appends a line to the log at once: processes that are killed have written theirs.
inline void write_reach_log(const char* format, long number, const char* name) {
  char line[1100];
  const int size = std::snprintf(line, sizeof line, format, number, name);
  const int file = ::open(reach_log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(file, line, static_cast<std::size_t>(size));
  ::close(file);
}

}  // namespace piton::mutate

inline bool piton_fault(int number) {
  using namespace piton::mutate;
  if (reach_log != nullptr && !reached[number].load(std::memory_order_relaxed) &&
      !reached[number].exchange(true)) {
    write_reach_log("%ld %s\n", number, case_name);
  }
  return number == chosen_fault;
}
