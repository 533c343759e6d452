// Neighboring elements of a row in the registers of one thread, loaded and stored 16 bytes at a
// time. Internal to this folder.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/element.cuh"

namespace piton::cuda {

inline constexpr int kVectorBytes = 16;  // the widest load and store of a thread

// How many neighbors a thread handles that has elements of these types: a vector of the widest, so
// that the lanes of a warp read and write whole sectors of every tensor.
template <typename... T>
inline constexpr int kVectorOf = kVectorBytes / static_cast<int>(std::max({sizeof(T)...}));

template <typename T, int kCount>
struct Numbers {
  T at[kCount];
};

// What loads and stores `kBytes` at once.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<4> {
  using Word = unsigned;
};
template <>
struct WordOf<8> {
  using Word = uint2;
};
template <>
struct WordOf<16> {
  using Word = uint4;
};

template <int kCount, typename T>
inline constexpr int kWordBytes = static_cast<int>(std::min<std::size_t>(kVectorBytes,
                                                                         kCount * sizeof(T)));

// Elements from[0] .. from[kCount - 1]. More than one have to be aligned as vectors_fit() asks.
template <int kCount, typename T>
__device__ __forceinline__ Numbers<T, kCount> load(const T* from) {
  Numbers<T, kCount> numbers;
  if constexpr (kCount == 1) {
    numbers.at[0] = *from;
  } else {
    using Word = typename WordOf<kWordBytes<kCount, T>>::Word;
    Word words[sizeof numbers / sizeof(Word)];
#pragma unroll
    for (std::size_t i = 0; i < sizeof numbers / sizeof(Word); ++i) {
      words[i] = reinterpret_cast<const Word*>(from)[i];
    }
    memcpy(&numbers, words, sizeof numbers);
  }
  return numbers;
}

template <typename T, int kCount>
__device__ __forceinline__ void store(T* to, const Numbers<T, kCount>& numbers) {
  if constexpr (kCount == 1) {
    *to = numbers.at[0];
  } else {
    using Word = typename WordOf<kWordBytes<kCount, T>>::Word;
#pragma unroll
    for (std::size_t i = 0; i < sizeof numbers / sizeof(Word); ++i) {
      Word word;
      memcpy(&word, &numbers.at[i * sizeof(Word) / sizeof(T)], sizeof word);
      reinterpret_cast<Word*>(to)[i] = word;
    }
  }
}

// The same, widened after loading and rounded before storing.
template <int kCount, typename T>
__device__ __forceinline__ Numbers<Wide<T>, kCount> load_wide(const T* from) {
  const Numbers<T, kCount> numbers = load<kCount>(from);
  Numbers<Wide<T>, kCount> wide;
#pragma unroll
  for (int i = 0; i < kCount; ++i) wide.at[i] = widen(numbers.at[i]);
  return wide;
}

// Zeros if `from` is nullptr.
template <int kCount, typename T>
__device__ __forceinline__ Numbers<Wide<T>, kCount> load_or_zero(const T* from) {
  if (from != nullptr) return load_wide<kCount>(from);
  return {};
}

template <typename T, typename S, int kCount>
__device__ __forceinline__ void store_rounded(T* to, const Numbers<S, kCount>& wide) {
  Numbers<T, kCount> numbers;
#pragma unroll
  for (int i = 0; i < kCount; ++i) numbers.at[i] = narrow<T>(wide.at[i]);
  store(to, numbers);
}

// Whether `count` neighbors that begin at a multiple of `count` may be loaded at once, in every row
// of every tensor. Tensors are contiguous in the last dim; empty ones fit.
inline bool vectors_fit(int count, std::initializer_list<Tensor> tensors) {
  std::uintptr_t bits = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const std::int64_t bytes =
        std::min<std::int64_t>(kVectorBytes, count * size_bytes(tensor.dtype()));
    const auto within = [&](std::uintptr_t at) { return at % static_cast<std::uintptr_t>(bytes); };
    bits |= within(reinterpret_cast<std::uintptr_t>(tensor.raw()));
    for (int dim = 0; dim + 1 < tensor.ndim(); ++dim) {
      if (tensor.dim(dim) == 1) continue;
      bits |= within(static_cast<std::uintptr_t>(tensor.stride(dim) * size_bytes(tensor.dtype())));
    }
  }
  return bits == 0;
}

}  // namespace piton::cuda
