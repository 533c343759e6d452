// Widening and rounding of tensors with any strides.
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

// visit(row-major index, offset in elements) for every element of a strided tensor.
template <typename Visit>
void for_each_element(const Tensor& tensor, Visit visit) {
  const std::int64_t elements = tensor.elements();
  Shape at = tensor.shape();
  for (int dim = 0; dim < at.ndim(); ++dim) at[dim] = 0;
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    visit(i, offset);
    for (int dim = tensor.ndim() - 1; dim >= 0; --dim) {
      offset += tensor.stride(dim);
      if (++at[dim] < tensor.dim(dim)) break;
      offset -= tensor.stride(dim) * tensor.dim(dim);
      at[dim] = 0;
    }
  }
}

double widen(BFloat16 x) { return to_float(x); }
double widen(Float16 x) { return to_float(x); }
template <typename T>
double widen(T x) {
  return static_cast<double>(x);
}

void narrow(double x, BFloat16* y) { *y = to_bfloat16(static_cast<float>(x)); }
void narrow(double x, Float16* y) { *y = to_float16(static_cast<float>(x)); }
template <typename T>
void narrow(double x, T* y) {
  *y = static_cast<T>(x);
}

// use(pointer to the first element, typed)
template <typename Use>
void with_type(const Tensor& tensor, Use use) {
  switch (tensor.dtype()) {
    case DType::kF64:
      return use(tensor.data<double>());
    case DType::kF32:
      return use(tensor.data<float>());
    case DType::kBF16:
      return use(tensor.data<BFloat16>());
    case DType::kF16:
      return use(tensor.data<Float16>());
    case DType::kI64:
      return use(tensor.data<std::int64_t>());
    case DType::kI32:
      return use(tensor.data<std::int32_t>());
    case DType::kU8:
      return use(tensor.data<std::uint8_t>());
  }
}

}  // namespace

Values::Values(const Shape& shape, double value)
    : shape_(shape), data_(index(shape.elements()), value) {}

Values Values::read(const Tensor& tensor) {
  Values values{tensor.defined() ? tensor.shape() : Shape{0}};
  values.given_ = tensor.defined();
  if (!values.given_) return values;
  with_type(tensor, [&](const auto* data) {
    for_each_element(tensor, [&](std::int64_t i, std::int64_t offset) {
      values.data_[index(i)] = widen(data[offset]);
    });
  });
  return values;
}

void Values::write(const Tensor& tensor) const {
  PITON_ASSERT(tensor.shape() == shape_, "{} into {}", to_string(shape_), to_string(tensor));
  with_type(tensor, [&](auto* data) {
    for_each_element(tensor, [&](std::int64_t i, std::int64_t offset) {
      narrow(data_[index(i)], &data[offset]);
    });
  });
}

}  // namespace piton::reference
