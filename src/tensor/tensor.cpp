// Views compute new shapes, strides and offsets.
#include "tensor/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace piton {
namespace {

Shape row_major(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int dim = shape.ndim() - 1; dim >= 0; --dim) {
    strides[dim] = step;
    step *= std::max<std::int64_t>(shape[dim], 1);
  }
  return strides;
}

int positive(int dim, int ndim) {
  const int result = dim < 0 ? dim + ndim : dim;
  PITON_ASSERT(result >= 0 && result < ndim, "dim {} of {}", dim, ndim);
  return result;
}

// Computes strides that view `from` (with `strides`) as `to`; false if that needs a copy. Walks the
// dims of both in groups of equal product; inside a group of `from`, each stride must be the next
// stride times the next size.
bool strides_for(const Shape& from, const Shape& strides, const Shape& to, Shape* result) {
  *result = row_major(to);
  if (from.elements() == 0) return true;
  int i = 0;
  int o = 0;
  while (i < from.ndim() || o < to.ndim()) {
    const int i_begin = i;
    const int o_begin = o;
    std::int64_t in = i < from.ndim() ? from[i++] : 1;
    std::int64_t out = o < to.ndim() ? to[o++] : 1;
    while (in != out) {
      if (in < out) {
        in *= from[i++];
      } else {
        out *= to[o++];
      }
    }
    // Strides of dims of size 1 do not matter.
    std::int64_t step = 1;
    bool first = true;
    std::int64_t covered = 1;
    for (int dim = i - 1; dim >= i_begin; --dim) {
      if (from[dim] == 1) continue;
      if (first) {
        step = strides[dim];
        first = false;
      } else if (strides[dim] != step * covered) {
        return false;
      }
      covered *= from[dim];
    }
    for (int dim = o - 1; dim >= o_begin; --dim) {
      (*result)[dim] = step;
      step *= to[dim];
    }
  }
  return true;
}

class HeapStorage final : public Storage {
 public:
  explicit HeapStorage(std::int64_t bytes)
      : Storage(static_cast<std::byte*>(
                    ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{64})),
                bytes, {DeviceKind::kHost, 0}) {
    std::memset(data(), 0, static_cast<std::size_t>(bytes));
  }
  ~HeapStorage() override { ::operator delete (data(), std::align_val_t{64}); }
};

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, std::int64_t offset_bytes, DType dtype,
               Shape shape)
    : storage_(std::move(storage)),
      offset_bytes_(offset_bytes),
      dtype_(dtype),
      shape_(shape),
      strides_(row_major(shape)) {
  PITON_ASSERT(
      storage_ != nullptr && offset_bytes_ >= 0 && offset_bytes_ + bytes() <= storage_->bytes(),
      "{} at {} passes the end of its storage", to_string(*this), offset_bytes_);
}

bool Tensor::contiguous() const {
  if (elements() == 0) return true;
  std::int64_t step = 1;
  for (int dim = ndim() - 1; dim >= 0; --dim) {
    if (shape_[dim] == 1) continue;
    if (strides_[dim] != step) return false;
    step *= shape_[dim];
  }
  return true;
}

Tensor Tensor::slice(int dim, std::int64_t begin, std::int64_t size) const {
  dim = positive(dim, ndim());
  PITON_ASSERT(begin >= 0 && size >= 0 && begin + size <= shape_[dim],
               "rows {} + {} of dim {} of {}", begin, size, dim, to_string(shape_));
  Tensor view = *this;
  view.shape_[dim] = size;
  view.offset_bytes_ += begin * strides_[dim] * size_bytes(dtype_);
  return view;
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  dim = positive(dim, ndim());
  Tensor view = slice(dim, index, 1);
  Shape shape;
  Shape strides;
  for (int other = 0; other < ndim(); ++other) {
    if (other == dim) continue;
    shape.append(shape_[other]);
    strides.append(strides_[other]);
  }
  view.shape_ = shape;
  view.strides_ = strides;
  return view;
}

Tensor Tensor::swap_dims(int one, int other) const {
  one = positive(one, ndim());
  other = positive(other, ndim());
  Tensor view = *this;
  std::swap(view.shape_[one], view.shape_[other]);
  std::swap(view.strides_[one], view.strides_[other]);
  return view;
}

Tensor Tensor::reshape(Shape shape) const {
  PITON_ASSERT(shape.elements() == elements(), "{} as {}", to_string(shape_), to_string(shape));
  Tensor view = *this;
  const bool possible = strides_for(shape_, strides_, shape, &view.strides_);
  PITON_ASSERT(possible, "{} as {} takes a copy: its rows are not next to each other",
               to_string(shape_), to_string(shape));
  view.shape_ = shape;
  return view;
}

Tensor Tensor::split_dim(int dim, std::int64_t inner) const {
  dim = positive(dim, ndim());
  PITON_ASSERT(inner > 0 && shape_[dim] % inner == 0, "dim {} of {} in groups of {}", dim,
               to_string(shape_), inner);
  Tensor view = *this;
  Shape shape;
  Shape strides;
  for (int other = 0; other < ndim(); ++other) {
    if (other == dim) {
      shape.append(shape_[dim] / inner);
      strides.append(strides_[dim] * inner);
      shape.append(inner);
    } else {
      shape.append(shape_[other]);
    }
    strides.append(strides_[other]);
  }
  view.shape_ = shape;
  view.strides_ = strides;
  return view;
}

Tensor Tensor::flatten() const {
  PITON_ASSERT(contiguous(), "{} has gaps", to_string(*this));
  Tensor view = *this;
  view.shape_ = Shape{elements()};
  view.strides_ = Shape{1};
  return view;
}

Tensor Tensor::with_storage(std::shared_ptr<Storage> storage) const {
  PITON_ASSERT(storage != nullptr && storage->bytes() >= storage_->bytes(),
               "the storage for {} is shorter than its own", to_string(*this));
  Tensor view = *this;
  view.storage_ = std::move(storage);
  return view;
}

bool Tensor::overlaps(const Tensor& other) const {
  if (!defined() || storage_ != other.storage_) return false;
  if (elements() == 0 || other.elements() == 0) return false;
  const auto end = [](const Tensor& tensor) {
    std::int64_t last = 0;
    for (int dim = 0; dim < tensor.ndim(); ++dim) {
      last += (tensor.shape_[dim] - 1) * tensor.strides_[dim];
    }
    return tensor.offset_bytes_ + (last + 1) * size_bytes(tensor.dtype_);
  };
  return offset_bytes_ < end(other) && other.offset_bytes_ < end(*this);
}

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  return std::string(name(tensor.dtype())) + " " + to_string(tensor.shape());
}

Tensor host_tensor(DType dtype, Shape shape) {
  const std::int64_t bytes = shape.elements() * size_bytes(dtype);
  return Tensor(std::make_shared<HeapStorage>(std::max<std::int64_t>(bytes, 1)), 0, dtype, shape);
}

}  // namespace piton
