// Which inputs a run of preprocessing has read, so that a later one may go on behind them.
#pragma once

#include <string>
#include <vector>

#include "data/records/input_files.h"

namespace piton {

struct InputMarks {
  std::vector<std::string> at;      // of each file: path, size, time of change
  std::vector<std::string> before;  // of all files before each one; one more for all of them
};

// Empty where standard input is among the files: it cannot be read again.
InputMarks input_marks(const std::vector<InputFile>& files);

}  // namespace piton
