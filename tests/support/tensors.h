// Host tensors for tests: access to any dtype as double, random contents, awkward layouts. Shares
// no code with the reference back end, because it tests that too.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace piton::test {

// Offset in elements of each element, in row-major order of the shape.
inline std::vector<std::int64_t> offsets(const Tensor& tensor) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (int dim = tensor.ndim() - 1; dim >= 0; --dim) {
      result[i] += rest % tensor.dim(dim) * tensor.stride(dim);
      rest /= tensor.dim(dim);
    }
  }
  return result;
}

inline double value_at(const Tensor& tensor, std::int64_t offset) {
  switch (tensor.dtype()) {
    case DType::kF64:
      return tensor.data<double>()[offset];
    case DType::kF32:
      return tensor.data<float>()[offset];
    case DType::kBF16:
      return to_float(tensor.data<BFloat16>()[offset]);
    case DType::kF16:
      return to_float(tensor.data<Float16>()[offset]);
    case DType::kI64:
      return static_cast<double>(tensor.data<std::int64_t>()[offset]);
    case DType::kI32:
      return tensor.data<std::int32_t>()[offset];
    case DType::kU8:
      return tensor.data<std::uint8_t>()[offset];
  }
  return 0;
}

inline void set_value(const Tensor& tensor, std::int64_t offset, double value) {
  switch (tensor.dtype()) {
    case DType::kF64:
      tensor.data<double>()[offset] = value;
      break;
    case DType::kF32:
      tensor.data<float>()[offset] = static_cast<float>(value);
      break;
    case DType::kBF16:
      tensor.data<BFloat16>()[offset] = to_bfloat16(static_cast<float>(value));
      break;
    case DType::kF16:
      tensor.data<Float16>()[offset] = to_float16(static_cast<float>(value));
      break;
    case DType::kI64:
      tensor.data<std::int64_t>()[offset] = static_cast<std::int64_t>(value);
      break;
    case DType::kI32:
      tensor.data<std::int32_t>()[offset] = static_cast<std::int32_t>(value);
      break;
    case DType::kU8:
      tensor.data<std::uint8_t>()[offset] = static_cast<std::uint8_t>(value);
      break;
  }
}

inline std::vector<double> values(const Tensor& tensor) {
  std::vector<double> result;
  for (const std::int64_t offset : offsets(tensor)) result.push_back(value_at(tensor, offset));
  return result;
}

inline void assign(const Tensor& tensor, std::span<const double> contents) {
  const auto places = offsets(tensor);
  PITON_ASSERT(places.size() == contents.size(), "{} values", contents.size());
  for (std::size_t i = 0; i < places.size(); ++i) set_value(tensor, places[i], contents[i]);
}

inline Tensor tensor_of(DType dtype, const Shape& shape, std::span<const double> contents) {
  Tensor tensor = host_tensor(dtype, shape);
  assign(tensor, contents);
  return tensor;
}

// Makes tensors with reproducible contents. With `awkward` layouts every tensor starts one element
// after an aligned address, and tensors that may have gaps between rows have gaps.
class TensorSource {
 public:
  explicit TensorSource(std::uint64_t seed, bool awkward = false)
      : random_(seed), awkward_(awkward) {}

  Tensor normal(DType dtype, const Shape& shape, double mean = 0, double deviation = 1) {
    return filled_normal(contiguous(dtype, shape), mean, deviation);
  }
  // The same with a contiguous last dim; other dims may have gaps.
  Tensor normal_rows(DType dtype, const Shape& shape) {
    return filled_normal(rows(dtype, shape), 0, 1);
  }
  // Integers from first to last, both included.
  Tensor integers(const Shape& shape, std::int64_t first, std::int64_t last,
                  DType dtype = DType::kI32) {
    const Tensor tensor = contiguous(dtype, shape);
    std::uniform_int_distribution<std::int64_t> draw(first, last);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      set_value(tensor, i, static_cast<double>(draw(random_)));
    }
    return tensor;
  }
  // Outputs are filled with NaN, so that an unwritten element is detected.
  Tensor unwritten(DType dtype, const Shape& shape) { return nan(contiguous(dtype, shape)); }
  Tensor unwritten_rows(DType dtype, const Shape& shape) { return nan(rows(dtype, shape)); }

 private:
  Tensor contiguous(DType dtype, const Shape& shape) {
    if (!awkward_) return host_tensor(dtype, shape);
    const Tensor block = host_tensor(dtype, {shape.elements() + 1});
    return block.slice(0, 1, shape.elements()).reshape(shape);
  }
  Tensor rows(DType dtype, const Shape& shape) {
    if (!awkward_) return host_tensor(dtype, shape);
    Shape padded = shape;
    padded[-1] += 3;
    return contiguous(dtype, padded).slice(shape.ndim() - 1, 1, shape[-1]);
  }
  Tensor filled_normal(Tensor tensor, double mean, double deviation) {
    std::normal_distribution<double> draw(mean, deviation);
    for (const std::int64_t offset : offsets(tensor)) set_value(tensor, offset, draw(random_));
    return tensor;
  }
  static Tensor nan(Tensor tensor) {
    for (const std::int64_t offset : offsets(tensor)) {
      set_value(tensor, offset, std::numeric_limits<double>::quiet_NaN());
    }
    return tensor;
  }

  std::mt19937_64 random_;
  bool awkward_;
};

}  // namespace piton::test
