// Several mistakes in one input, reported together.
#pragma once

#include "base/error.h"

namespace piton {

// The message has a line for each mistake, and each line is printable (base/printable.h). Other
// errors have one line, whatever they name.
class SeveralErrors final : public Error {
 public:
  using Error::Error;
};

}  // namespace piton
