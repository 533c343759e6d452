// An error of several ranks, reported by one of them.
#pragma once

#include "base/error.h"

namespace piton {

// A failure that another rank of this run reports. This rank exits with the same code and prints
// nothing.
class ReportedByAnotherRank final : public Error {
 public:
  using Error::Error;
};

}  // namespace piton
