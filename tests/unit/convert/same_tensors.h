// Two Hugging Face folders compared tensor by tensor.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/file_tensor.h"
#include "huggingface/hf_source.h"

namespace piton::test {

// Every tensor of the files: name, type, shape, bytes.
inline void expect_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  const HfTensorFiles first(a);
  const HfTensorFiles second(b);
  ASSERT_EQ(first.tensors().size(), second.tensors().size());
  for (const auto& [name, tensor] : first.tensors()) {
    const auto other = second.tensors().find(name);
    ASSERT_NE(other, second.tensors().end()) << name;
    EXPECT_EQ(tensor.dtype, other->second.dtype) << name;
    ASSERT_EQ(tensor.shape, other->second.shape) << name;
    std::int64_t bytes = torch_width(tensor.dtype);
    for (const std::int64_t size : tensor.shape) bytes *= size;
    EXPECT_EQ(hash_of_bytes(*tensor.file, tensor.offset, bytes),
              hash_of_bytes(*other->second.file, other->second.offset, bytes))
        << name;
  }
}

}  // namespace piton::test
