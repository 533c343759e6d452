// Checks and comparison of shapes.
#include "tensor/shape.h"

#include <algorithm>

#include "base/error.h"

namespace piton {
namespace {

// With this limit, elements x bytes of the widest type, and sums of a few such products, fit into
// 63 bits.
constexpr std::int64_t kMostElements = std::int64_t{1} << 56;

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> sizes)
    : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const std::int64_t> sizes) {
  for (const std::int64_t size : sizes) append(size);
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t size : sizes()) {
    empty = empty || size == 0;
    // A dim of size 0 counts as 1, because strides are products of the other dims and must fit too.
    if (size < 0 || __builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product) ||
        product > kMostElements) {
      throw Error(Fault::kUsage,
                  "a tensor of {}: wanted sizes of 0 or more, and at most 2^56 elements; use "
                  "smaller sizes",
                  to_string(*this));
    }
  }
  return empty ? 0 : product;
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
