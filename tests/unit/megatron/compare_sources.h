// Two sources of the same tensors, byte by byte.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace piton {

inline std::vector<std::byte> bytes_of(TensorSource& source, const CanonicalTensor& tensor) {
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(tensor.shape.elements() * size_bytes(tensor.dtype)));
  source.read(tensor.name, whole_run(tensor.shape), tensor.dtype, bytes.data());
  return bytes;
}

inline void expect_same(TensorSource& a, TensorSource& b) {
  const std::vector<CanonicalTensor> first = a.tensors(TensorKind::kWeight);
  ASSERT_EQ(first.size(), b.tensors(TensorKind::kWeight).size());
  for (const CanonicalTensor& tensor : first)
    EXPECT_EQ(bytes_of(a, tensor), bytes_of(b, tensor)) << tensor.name;
}

}  // namespace piton
