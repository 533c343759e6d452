// Assertions used by check() of every call. Their messages name the call and the tensor.
//
// All are PITON_ASSERTs: a wrong shape in a call is a bug of this program.
#pragma once

#include "kernels/call.h"

namespace piton {

// One tensor of a call, for messages.
struct Operand {
  std::string_view call;
  std::string_view name;
  const Tensor& tensor;

  const Operand& given() const;
  const Operand& shape(const Shape& wanted) const;  // also asserts given()
  const Operand& dtype(DType wanted) const;
  const Operand& floating() const;  // fp64, fp32, bf16 or fp16
  const Operand& contiguous() const;
  const Operand& rows() const;  // the last dim is contiguous
};

// The type in which sums, statistics and gradients of `dtype` are kept: fp64 for fp64, else fp32.
DType sum_dtype(DType dtype);

// Asserts that `used`, if given, is int32 [1].
void expect_used(std::string_view call, const Tensor& used);

// Asserts that there is the sample counter of random numbers.
void expect_drawn_rows(std::string_view call, const MaskRows& rows);
// Asserts that the probability is in [0, 1), and that a nonzero one comes with the sample counter.
void expect_dropout(std::string_view call, const Dropout& dropout);

// Asserts that `wide` has the dtype of `rest`, or is fp32 where that has two bytes: a tensor of a
// residual stream in fp32.
void expect_wider(std::string_view call, const Tensor& wide, const Tensor& rest);

// Asserts that all tensors of a call are on the same device.
template <typename Call>
void expect_one_place(const Call& call) {
  const Tensor* first = nullptr;
  call.tensors(call, [&](std::string_view name, const Tensor& tensor, Access) {
    if (!tensor.defined()) return;
    if (first == nullptr) first = &tensor;
    PITON_ASSERT(tensor.place() == first->place(), "{}: {} is on another device", Call::kName,
                 name);
  });
}

}  // namespace piton
