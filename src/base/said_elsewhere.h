// An error of several ranks, which one of them tells the user.
#pragma once

#include "base/error.h"

namespace piton {

// A fault that another rank of this run tells its user about, with the same exit code: this one
// ends in silence.
class SaidByAnotherRank final : public Error {
 public:
  using Error::Error;
};

}  // namespace piton
