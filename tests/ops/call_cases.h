// The list of kernel calls and inputs on which all back ends are tested.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "support/tolerance.h"

namespace piton::test {

struct CallCase {
  std::string name;
  KernelCall call;         // host tensors; outputs are NaN, updated tensors hold numbers
  std::int64_t terms = 1;  // the longest sum, for the tolerance
  DType narrowest =
      DType::kF64;  // what operands may be rounded to on the way, if narrower than the output
  std::int64_t rounded_terms =
      1;  // how many terms of a sum have such an operand (support/tolerance.h)
};

struct CaseOptions {
  DType dtype = DType::kF32;  // of activations and weights
  bool awkward = false;       // unaligned addresses, gaps between rows
  std::int64_t row_tile = 1;  // of the back end: row counts around its edges are tried
  bool codes = true;    // with weights of linears held as codes, for a back end that reads them
  bool latents = true;  // with caches of latents, for a back end that attends to them
};

// All but PackWeight, whose result only its own back end can read; its linears cover it.
std::vector<CallCase> call_cases(const CaseOptions& options);

// The tolerance for one output of a case.
Tolerance tolerance_of(const CallCase& call_case, const Tensor& output);

}  // namespace piton::test
