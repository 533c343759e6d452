// The labels of texts by a classifier (model/label_head.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/inference.h"
#include "session/session.h"

namespace piton {

struct TextToLabel {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> types;  // of an encoder; empty: all 0
};

// The logits [labels] of each text. Collective over the ranks of the model.
std::vector<std::vector<float>> label_logits(Session& session, Inference& inference,
                                             std::span<const TextToLabel> texts);

}  // namespace piton
