// What the types of the C interface hold, and how exceptions become its error codes.
#pragma once

#include <piton/piton_c.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "api/engine.h"
#include "base/error.h"
#include "base/log.h"
#include "train/failure_report.h"

namespace piton::library {

// Lines to the program's function.
class CallbackLog final : public Log {
 public:
  CallbackLog(piton_log_function function, void* user) : function_(function), user_(user) {}
  void write(LogLevel level, std::string_view line) override {
    if (function_ == nullptr) return;
    const std::string text(line);
    function_(user_, static_cast<int>(level), text.c_str());
  }

 private:
  piton_log_function function_;
  void* user_;
};

// Shared by the engine's handle and everything that was opened on it.
struct OpenedEngine {
  OpenedEngine(const EngineOptions& options, piton_log_function function, void* user)
      : log(function, user), engine(options, log) {}
  CallbackLog log;
  Engine engine;
};

inline void fill(piton_error* error, int code, const char* message) {
  if (error == nullptr) return;
  error->code = code;
  const std::size_t length = std::min(std::strlen(message), sizeof error->message - 1);
  std::memcpy(error->message, message, length);
  error->message[length] = 0;
}

// Runs `work` and turns what it throws into the code that is returned.
template <typename Work>
int guarded(piton_error* error, Work&& work) noexcept {
  try {
    work();
    fill(error, 0, "");
    return 0;
  } catch (const std::exception& caught) {
    const Failure failure = failure_of(caught);
    fill(error, failure.exit_code, failure.message.c_str());
    return failure.exit_code;
  }
}

inline std::vector<std::string> copied(piton_words words) {
  return {words.words, words.words + words.count};
}

// Throws Error(kUsage) where a program passes a null pointer that must not be one.
inline void require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw Error(Fault::kUsage, "{}: is null", name);
}

}  // namespace piton::library

struct piton_engine {
  std::shared_ptr<piton::library::OpenedEngine> opened;
};
