// Rows of heads in device code: of a call, of a cache in pages, and of a cache of codes. Internal
// to this folder.
#pragma once

#include "kernels/cuda/element.cuh"

namespace piton::cuda {

// A matrix [b, s, heads, d] of a call, or a cache [pages, kCachePage, g, d].
template <typename T>
struct HeadMatrix {
  T* data;
  std::int64_t sample_stride;
  std::int64_t row_stride;
  std::int64_t head_stride;

  __device__ T* row(std::int64_t sample, std::int64_t row, std::int64_t head) const {
    return data + sample * sample_stride + row * row_stride + head * head_stride;
  }
};

template <typename T>
HeadMatrix<T> head_matrix(const Tensor& tensor) {
  return {pointer<T>(tensor), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

// A row of codes, read as numbers of type T (kernels/cached_attention.h).
template <typename T>
struct CodedHeadRow {
  const std::int8_t* codes;
  float scale;

  __device__ T operator[](std::int64_t c) const {
    return narrow<T>(scale * static_cast<float>(codes[c]));
  }
};

// Keys or values of a cache: numbers, or codes.
template <typename T, bool kCoded>
struct CachedRows {
  HeadMatrix<const T> numbers;

  __device__ const T* row(std::int64_t page, std::int64_t row, std::int64_t head) const {
    return numbers.row(page, row, head);
  }
};

template <typename T>
struct CachedRows<T, true> {
  HeadMatrix<const std::int8_t> codes;
  const float* scales;
  std::int64_t scales_of_page;  // strides; those of a head are consecutive
  std::int64_t scales_of_head;

  __device__ CodedHeadRow<T> row(std::int64_t page, std::int64_t row, std::int64_t head) const {
    return {codes.row(page, row, head),
            scales[page * scales_of_page + row + head * scales_of_head]};
  }
};

template <typename T, bool kCoded>
CachedRows<T, kCoded> cached_rows(const Tensor& cache, const Tensor& scales) {
  if constexpr (kCoded) {
    return {head_matrix<const std::int8_t>(cache), pointer<const float>(scales), scales.stride(0),
            scales.stride(2)};
  } else {
    return {head_matrix<const T>(cache)};
  }
}

}  // namespace piton::cuda
