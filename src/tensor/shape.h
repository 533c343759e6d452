// Sizes of a tensor's dims: at most six, without heap memory.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace piton {

class Shape {
 public:
  static constexpr int kMaxDims = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);
  explicit Shape(std::span<const std::int64_t> sizes);

  int ndim() const { return ndim_; }
  std::int64_t operator[](int dim) const { return sizes_[dim < 0 ? dim + ndim_ : dim]; }
  std::int64_t& operator[](int dim) { return sizes_[dim < 0 ? dim + ndim_ : dim]; }
  std::int64_t elements() const;  // 1 for no dims; Error(kUsage) above 2^56 or below 0
  std::span<const std::int64_t> sizes() const {
    return {sizes_.data(), static_cast<std::size_t>(ndim_)};
  }
  void append(std::int64_t size);
  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, kMaxDims> sizes_{};
  int ndim_ = 0;
};

std::string to_string(const Shape& shape);  // "[4, 1024]"

}  // namespace piton
