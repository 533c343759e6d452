// Tokens drawn from rows of logits, on the device that has them (kernels/sampling.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/decoding_engine.h"
#include "generate/sampling.h"
#include "ops/context.h"

namespace piton {

// What a row of logits is drawn with. Pointers must outlive it.
struct TokenDraw {
  const SamplingOptions* sampling = nullptr;
  DrawPlace place;
  // For penalties and n-grams: the ids so far, the first `prompt` of them given. Each id of the
  // text counts once for the repetition penalty, which applies to the prompt too.
  std::vector<std::int32_t> text;
  std::size_t prompt = 0;
  TokenConstraint* constraint = nullptr;  // null: every id
  // Under --mirostat the most surprise that the token may have.
  double most_surprise = 0;
};

// On the device: ids int32 [n], -1 where none can be drawn, and DrawnToken::share of each, fp64
// [n].
struct DrawnIds {
  Tensor ids;
  Tensor shares;
};

// `logits`: [parts, n, columns], as in kernels/sampling.h; they are not changed. n is at least 1.
// Under SamplingOptions::greedy the id is the likeliest one after all changes, the lowest on ties.
// Where n-grams leave out all that a constraint allows, they leave out nothing.
DrawnIds draw_ids(const Context& context, const Tensor& logits, std::int64_t vocabulary,
                  std::span<const TokenDraw> draws);

}  // namespace piton
