// Limit of recursion: each level of a template needs about 2 KB of the stack.
#pragma once

#include <fmt/format.h>

#include "text/jinja/values/value.h"

namespace piton::jinja {

inline constexpr int kMostLevels = 1000;

// Counts a level while it lives. Throws TemplateFailure where there are too many.
class CountedLevel {
 public:
  explicit CountedLevel(int& level) : level_(level) {
    if (level_ >= kMostLevels) {
      throw TemplateFailure(
          fmt::format("macros call each other too deeply: more than {} levels", kMostLevels));
    }
    ++level_;
  }
  ~CountedLevel() { --level_; }
  CountedLevel(const CountedLevel&) = delete;
  CountedLevel& operator=(const CountedLevel&) = delete;

 private:
  int& level_;
};

}  // namespace piton::jinja
