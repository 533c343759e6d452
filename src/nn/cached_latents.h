// Attention to a cache of latents (kernels/cached_attention.h): keys and values of all heads from
// one row of each token, without ever storing them (DeepSeek-AI 2024, arXiv:2405.04434, section
// 2.1). A matrix of each head, [own + value, c], makes its key and its value of a latent.
//
// Scores and results are sums over latents, so the matrix is moved to the other factor: with its
// rows K of the key and V of the value, r what keys have in common,
//
//   q . [K l ; r]         = [K^T q ; q'] . [l ; r]   q' the channels of q after the first `own`
//   sum of p_j (V l_j)    = V (sum of p_j l_j)
//
// This ABSORBED form reads a row of the cache once for all heads. It has more operations than
// attention to keys and values, so a text of which a pass has many rows gets them, some heads at a
// time (EXPANDED). Which form a text gets depends on its own rows and keys alone, so a row has the
// same bits alone and next to other texts.
#pragma once

#include "ops/attention.h"

namespace piton {

// The matrices of this rank's heads: [a/t * (own + value), c].
struct LatentMatrices {
  Parameter& weight;       // Parameter::keeps_rows
  std::int64_t own = 0;    // channels of a key that it has for itself
  std::int64_t value = 0;  // of a value, at most those of a key

  std::int64_t rows() const { return own + value; }
};

// What attention to a cache of latents reads in addition to the rows of a pass.
struct LatentSite {
  const CacheView& cache;
  LatentMatrices matrices;
  AttentionSettings settings;
  RotarySettings turn;
  // With `query_reach`, the pass is one text from its beginning (kernels/attention.h).
  AttentionPlaces places = {};
};

// Without a tape; the last dim is contiguous, the others may have any stride.
struct LatentRows {
  Tensor q;        // [n, a/t, own + r]
  Tensor latents;  // [n, c]
  Tensor shared;   // [n, 1, r]: what all keys have in common
};

// Whether the expanded form of a text of `keys` tokens, of which a pass has the last `rows`, is the
// one with fewer operations.
bool expands_latents(const LatentMatrices& matrices, std::int64_t latents, std::int64_t shared,
                     const CacheSample& sample);

// Rotates `shared` and the last channels of q by `turn`, q in place, writes latents and shared to
// the cache, and attends from each row to the tokens of its text, causally. Dropout, causal,
// block_rows and recompute of the settings are ignored. -> [n, a/t * value]
Tensor attend_to_latents(Context& context, const LatentSite& site, const LatentRows& rows);

}  // namespace piton
