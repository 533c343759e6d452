// Sizes of a tensor's dims.
#include "tensor/shape.h"

#include <algorithm>

#include "base/error.h"

namespace piton {

Shape::Shape(std::initializer_list<std::int64_t> sizes)
    : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const std::int64_t> sizes) {
  for (const std::int64_t size : sizes) append(size);
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes()) product *= size;
  return product;
}

void Shape::append(std::int64_t size) {
  PITON_ASSERT(ndim_ < kMaxDims, "a shape has at most {} dims", kMaxDims);
  sizes_[ndim_++] = size;
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(sizes(), other.sizes());
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape.sizes()) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

}  // namespace piton
