// The contents of a tensor as doubles. Reference kernels read and write every dtype this way.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tensor/tensor.h"

namespace piton::reference {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Row-major copy of a tensor, indexed by up to four coordinates.
class Values {
 public:
  // All elements are `value`.
  explicit Values(const Shape& shape, double value = 0);

  double& operator()(std::int64_t i) { return data_[index(i)]; }
  double& operator()(std::int64_t i, std::int64_t j) { return data_[index(i, j)]; }
  double& operator()(std::int64_t i, std::int64_t j, std::int64_t k) {
    return data_[index(i, j, k)];
  }
  double& operator()(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) {
    return data_[index(i, j, k, l)];
  }
  double operator()(std::int64_t i) const { return data_[index(i)]; }
  double operator()(std::int64_t i, std::int64_t j) const { return data_[index(i, j)]; }
  double operator()(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return data_[index(i, j, k)];
  }
  double operator()(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
    return data_[index(i, j, k, l)];
  }

  // False for the values of an empty tensor.
  bool given() const { return given_; }
  const Shape& shape() const { return shape_; }

  // Any strides, any dtype. Integers beyond 2^53 are not exact.
  static Values read(const Tensor& tensor);
  // Rounds each value once to the tensor's dtype.
  void write(const Tensor& tensor) const;

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  std::size_t index(std::int64_t i, std::int64_t j) const { return index(i * shape_[1] + j); }
  std::size_t index(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return index((i * shape_[1] + j) * shape_[2] + k);
  }
  std::size_t index(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
    return index(((i * shape_[1] + j) * shape_[2] + k) * shape_[3] + l);
  }

  Shape shape_;
  std::vector<double> data_;
  bool given_ = true;
};

}  // namespace piton::reference
