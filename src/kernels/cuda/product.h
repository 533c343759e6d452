// Matrix products by cuBLASLt: the only header of this folder over a mathematical library. The
// emulator of tests replaces product.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/activation.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/float8/float8_factor.h"
#include "kernels/cuda/linear/linear_parts.h"
#include "kernels/linear.h"
#include "tensor/tensor.h"

namespace piton::cuda {

// y = left right + addend + bias, or the activation of that sum, rounded once. Matrices are
// row-major with contiguous columns: y [m, n], left [m, k], right [k, n]. Sums run in fp32 (fp64
// for fp64), without TF32.
struct Product {
  Tensor y;      // written; dtype of left, or fp32
  Tensor left;   // [m, k], or [k, m] if transposed
  Tensor right;  // [k, n], or [n, k] if transposed; dtype of left
  bool left_transposed = false;
  bool right_transposed = false;
  Tensor addend;  // [m, n] or empty; dtype of y; may be y
  Tensor bias;    // [n] or empty; only if y has the dtype of left
  // Only where the library has it (activates_in_product): GELU by tanh, of the unrounded sum.
  bool activates = false;
  Tensor preactivation;  // [m, n] or empty  written; the sum, rounded; only if `activates`
  // Several products, with the bits of each alone; then without all that follows `right`'s form.
  ProductParts parts = {};
};

// y = left right^T, or with `adds` added to y. y fp32 [m, n], left [m, k], right [n, k]
// (float8/float8_factor.h).
struct Float8Product {
  Tensor y;
  Float8Factor left;
  Float8Factor right;
  bool adds = false;
};

// Why device number `device` and the library do not multiply in FP8 by this recipe, for a message;
// empty if they do.
std::string float8_obstacle(Float8Recipe recipe, int device);

// Whether the library can add this activation to a product with y of `dtype`: its rows and its
// preactivation's begin at multiples of 16 bytes.
bool activates_in_product(ActivationKind kind, const Tensor& y, const Tensor& preactivation);

class Products {
 public:
  // For the selected device. Throws Error(kUsage) if the library does not start.
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Enqueues the product on the stream of the context, whose device is selected. No dim is 0. The
  // algorithm depends on n, k, dtypes and alignment, not on m, so rows of `left` that are cut at a
  // multiple of kRowTile give the same bits.
  void multiply(const Product& product, const CallContext& context);

  // The same.
  void multiply(const Float8Product& product, const CallContext& context);

  static constexpr std::int64_t kRowTile = 256;  // no kernel of the library has taller tiles

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton::cuda
