// A tensor: dtype, shape, strides, and shared ownership of storage on a device.
//
// Copying a Tensor copies the handle, never the data. A view (slice, reshape, select) shares the
// storage; the storage is freed when its last tensor is destroyed. A default-constructed tensor is
// empty: defined() is false; argument structs use it for "not given".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace piton {

// The device of some memory. `index` counts devices of a kind.
enum class DeviceKind : std::uint8_t { kHost, kCuda, kMeta, kDelayed, kFile };

struct Place {
  DeviceKind kind = DeviceKind::kHost;
  int index = 0;
  bool operator==(const Place&) const = default;
};

// A block of memory; derived classes free it.
class Storage {
 public:
  Storage(std::byte* data, std::int64_t bytes, Place place)
      : data_(data), bytes_(bytes), place_(place) {}
  virtual ~Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // An address on that device: host code may dereference it only if the place is the host.
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  Place place() const { return place_; }

 private:
  std::byte* data_;
  std::int64_t bytes_;
  Place place_;
};

class Tensor {
 public:
  Tensor() = default;
  // Row-major, in `storage` from `offset_bytes` on.
  Tensor(std::shared_ptr<Storage> storage, std::int64_t offset_bytes, DType dtype, Shape shape);

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int ndim() const { return shape_.ndim(); }
  std::int64_t dim(int index) const { return shape_[index]; }
  std::int64_t stride(int index) const { return strides_[index]; }  // in elements
  std::int64_t elements() const { return shape_.elements(); }
  std::int64_t bytes() const { return elements() * size_bytes(dtype_); }
  Place place() const { return storage_->place(); }
  bool contiguous() const;
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  std::byte* raw() const { return storage_->data() + offset_bytes_; }
  // Asserts that T is the type of dtype().
  template <typename T>
  T* data() const;

  // Views.
  Tensor slice(int dim, std::int64_t begin,
               std::int64_t size) const;             // rows begin .. begin+size-1 of a dim
  Tensor select(int dim, std::int64_t index) const;  // that dim removed
  Tensor swap_dims(int one, int other) const;
  Tensor reshape(
      Shape shape) const;  // contiguous tensors, or a split/merge of dims that keeps strides
  Tensor split_dim(
      int dim, std::int64_t inner) const;  // [.., n, ..] -> [.., n/inner, inner, ..], any strides
  Tensor flatten() const;                  // [elements], contiguous only
  // The same shape, strides and offset in another storage (a second mapping of the memory).
  Tensor with_storage(std::shared_ptr<Storage> storage) const;
  bool overlaps(
      const Tensor& other) const;  // shares at least one byte of the same storage (by extent)

 private:
  std::shared_ptr<Storage> storage_;
  std::int64_t offset_bytes_ = 0;
  DType dtype_ = DType::kF32;
  Shape shape_;
  Shape strides_;
};

std::string to_string(const Tensor& tensor);  // "bf16 [4, 1024]"

// A zeroed host tensor outside of any arena, for tests, files and small work on the host.
Tensor host_tensor(DType dtype, Shape shape);

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<double>() {
  return DType::kF64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<BFloat16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<Float16>() {
  return DType::kF16;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::kU8;
}

template <typename T>
T* Tensor::data() const {
  PITON_ASSERT(dtype_of<T>() == dtype_, "asked {} of {}", name(dtype_of<T>()), name(dtype_));
  return reinterpret_cast<T*>(raw());
}

}  // namespace piton
