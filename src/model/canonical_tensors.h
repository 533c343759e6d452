// The canonical tensors of a decoder (docs/formats.md): the contents of a checkpoint, independent
// of the layout.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "tensor/shape.h"

namespace piton {

struct CanonicalShape {
  std::string name;
  Shape shape;  // [out, in], or [size]
};

// In the order of the model: embedding, layers, final norm, head. A tied head is not listed.
std::vector<CanonicalShape> canonical_tensors(const ModelConfig& config);

}  // namespace piton
