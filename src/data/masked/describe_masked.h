// Samples of masked words for `piton inspect`, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "data/samples/sample.h"
#include "text/tokenizer.h"

namespace piton {

// One line. BERT: {"index", "ids", "types", "labels", "is_random", "padding_mask", "loss_mask"}.
// T5:
// {"index", "encoder_ids", "decoder_ids", "labels", "loss_mask", "encoder_mask", "decoder_mask"}.
// As in Megatron a label is -1 where nothing is predicted, and a mask is 1 where a token counts.
std::string masked_to_json(const Sample& sample, std::int64_t index);

// The pieces without padding; after a masked one of BERT, {-what was there-}.
std::string masked_to_text(const Sample& sample, std::int64_t index, const Tokenizer& tokenizer);

}  // namespace piton
