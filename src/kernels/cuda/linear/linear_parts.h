// Chains of linears with parts of one weight, as of the heads of a cache of latents
// (nn/cached_latents.h): one launch for all of them. Internal to this folder.
#pragma once

#include <optional>
#include <span>

#include "kernels/cuda/context.h"
#include "kernels/kernels.h"

namespace piton::cuda {

// Several products with matrices of the same sizes: those of product i begin i times so many
// elements after those of the first one.
struct ProductParts {
  std::int64_t count = 1;
  std::int64_t y = 0;
  std::int64_t left = 0;
  std::int64_t right = 0;
};

// The parts, if each chain is one linear forward, or each is one linear backward input, without
// more than the product, with plain rows of a weight (codes only of few rows forward), and all
// matrices are at equal distances of a multiple of 16 bytes.
std::optional<ProductParts> linear_parts(std::span<const CallChain> chains);

// Enqueues them. Bits and scratch are those of one call after another.
void execute_linear_parts(std::span<const CallChain> chains, const ProductParts& parts,
                          const CallContext& context);

}  // namespace piton::cuda
