// What the types of the C interface hold, and how exceptions become its error codes.
#pragma once

#include <piton/piton_c.h>

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/engine.h"
#include "base/error.h"
#include "base/log.h"
#include "text/unicode/utf8.h"
#include "train/run/failure_report.h"

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

// A message may name a file whose name is not UTF-8, and is cut between two characters.
inline void fill(piton_error* error, int code, std::string_view message) {
  if (error == nullptr) return;
  error->code = code;
  std::string text = replace_bad_utf8(message.substr(0, message.find('\0')));
  if (text.size() >= sizeof error->message) {
    text.resize(sizeof error->message - 1);
    text.resize(valid_utf8_prefix(text));
  }
  std::memcpy(error->message, text.c_str(), text.size() + 1);
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
    fill(error, failure.exit_code, failure.message);
    return failure.exit_code;
  }
}

// Throws Error(kUsage) where a program passes a null pointer that must not be one.
inline void require(const void* pointer, const std::string& name) {
  if (pointer == nullptr) throw Error(Fault::kUsage, "{}: is null", name);
}

// The same for memory of `count` values, which may be null if there are none.
inline void require(const void* pointer, std::size_t count, const char* name) {
  if (count > 0) require(pointer, name);
}

inline std::vector<std::string> copied(piton_words words) {
  require(words.words, words.count, "words");
  std::vector<std::string> all;
  for (std::size_t i = 0; i < words.count; ++i) {
    require(words.words[i], fmt::format("words[{}]", i));
    all.emplace_back(words.words[i]);
  }
  return all;
}

// What functions without a piton_error return for a null handle.
inline constexpr int kNullHandle = -static_cast<int>(Fault::kUsage);

}  // namespace piton::library

struct piton_engine {
  std::shared_ptr<piton::library::OpenedEngine> opened;
};
