// Marks of the inputs that a run of preprocessing has read, so that a later run can resume.
#pragma once

#include <string>
#include <vector>

#include "data/records/input_files.h"

namespace piton {

struct InputMarks {
  std::vector<std::string> at;  // [files] hash of path, size and time of change
  std::vector<std::string>
      before;  // [files + 1] hash of the marks before each file; the last is of all files
};

// Empty if standard input is among the files: it cannot be read again.
InputMarks input_marks(const std::vector<InputFile>& files);

}  // namespace piton
