// Storage whose memory stays in place after its last tensor is destroyed, until the fences passed
// to Arena::hold() are complete. Work that is still pending on any other storage must share its
// ownership.
#pragma once

#include "tensor/tensor.h"

namespace piton {

class HeldStorage : public Storage {
 public:
  using Storage::Storage;
};

}  // namespace piton
