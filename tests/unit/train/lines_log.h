// A log whose lines a test reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace piton::test {

class LinesLog final : public Log {
 public:
  void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

}  // namespace piton::test
