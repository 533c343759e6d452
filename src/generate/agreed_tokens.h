// The tokens that the logits of a pass of the batched engine give, on every rank.
#pragma once

#include <span>
#include <vector>

#include "generate/decoded_text.h"
#include "generate/inference.h"

namespace piton {

// Only the last stage has logits and draws; all ranks continue with its tokens. `logits`: of the
// rows of `readings` one after another, which are of `texts`. They are copied to the host only
// where texts need their numbers.
std::vector<GeneratedToken> agreed_tokens(Inference& inference, std::span<const DecodedText> texts,
                                          std::span<const TextReading> readings,
                                          const Tensor& logits);

}  // namespace piton
