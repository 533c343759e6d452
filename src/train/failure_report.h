// failure.json: why a run ended, for its operators (docs/formats.md).
//
// The first cause stays. Losing another rank is a consequence: it is written where nobody of this
// run has written yet, and gives way to a cause.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

namespace piton {

inline constexpr std::string_view kInternalFault = "internal";  // of what is no Error

struct Failure {
  int exit_code = 1;
  std::string fault;    // the fault's name, or kInternalFault
  std::string message;  // any bytes
  bool is_consequence() const;
};

// What an exception that ends a run amounts to.
Failure failure_of(const std::exception& error);

class FailureReport {
 public:
  // Takes note of the report that an earlier run left in `folder`: it counts for nothing. An empty
  // `folder`, or one that is not there when something is to be written: nothing is.
  explicit FailureReport(const std::filesystem::path& folder);

  // Removes what the earlier run left. Called once the folder is this run's.
  void forget_earlier() const;

  // Never throws: the failure itself is what is to be reported.
  void write(int rank, const Failure& failure) const noexcept;

 private:
  struct Identity {
    ino_t file = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const Identity&) const = default;
  };
  static Identity identity_of(const std::filesystem::path& file);
  bool is_of_this_run() const;

  std::filesystem::path folder_;
  std::filesystem::path file_;
  Identity earlier_;
};

}  // namespace piton
