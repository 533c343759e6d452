// failure.json: the reason why a run ended, for its operators (docs/formats.md).
//
// The first cause stays. The loss of another rank is a consequence: it is written only if this run
// has no report yet, and a cause replaces it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

namespace piton {

inline constexpr std::string_view kInternalFault =
    "internal";  // of an exception that is not an Error

struct Failure {
  int exit_code = 1;
  std::string fault;    // the fault's name, or kInternalFault
  std::string message;  // any bytes
  bool is_consequence() const;
};

// Describes an exception that ends a run.
Failure failure_of(const std::exception& error);

class FailureReport {
 public:
  // Remembers the report that an earlier run left in `folder`; that report is ignored. If `folder`
  // is empty, or does not exist when something is to be written, nothing is written.
  explicit FailureReport(const std::filesystem::path& folder);

  // Removes the earlier run's report. Called once the folder belongs to this run.
  void forget_earlier() const;

  // Never throws, because the failure itself must be reported.
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
