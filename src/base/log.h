// Where the library's messages go. Nothing below cli prints: it hands lines to a Log that the
// caller gave it. Lines are whole sentences about the run ("kernels: cpu, x86-64-v4 with bf16").
#pragma once

#include <string>
#include <string_view>

namespace piton {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

class Log {
 public:
  virtual ~Log() = default;
  // `line` has no newline at its end. May be called from any thread.
  virtual void write(LogLevel level, std::string_view line) = 0;

  void debug(std::string_view line) { write(LogLevel::kDebug, line); }
  void info(std::string_view line) { write(LogLevel::kInfo, line); }
  void warning(std::string_view line) { write(LogLevel::kWarning, line); }
};

// Drops everything.
class SilentLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

}  // namespace piton
