// Questions with answers, of which a policy learns: those of tests/golden/rollouts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/safetensors.h"
#include "data/samples/batch.h"

namespace piton::test {

inline std::filesystem::path golden_folder_of_policies() {
  return std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/rollouts";
}

struct PolicyText {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;  // of each id, kNoLabel for those of the question
};

inline std::vector<PolicyText> golden_policy_texts(const SafetensorsFile& batch) {
  const Tensor ids = batch.tensor("ids");
  const Tensor labels = batch.tensor("labels");
  std::vector<PolicyText> texts(static_cast<std::size_t>(ids.dim(0)));
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    if (ids.data<std::int32_t>()[i] < 0) continue;
    PolicyText& text = texts[static_cast<std::size_t>(i / ids.dim(1))];
    text.ids.push_back(ids.data<std::int32_t>()[i]);
    text.labels.push_back(labels.data<std::int32_t>()[i]);
  }
  return texts;
}

// A text to a row, `micro` rows to a micro-batch.
inline std::vector<MicroBatch> policy_batches(const std::vector<PolicyText>& texts,
                                              const std::vector<double>& advantages,
                                              std::int64_t sequence, std::size_t micro) {
  std::vector<MicroBatch> batches;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i % micro == 0) {
      batches.push_back({.sequence = sequence, .sample_index = static_cast<std::int64_t>(i)});
    }
    MicroBatch& batch = batches.back();
    ++batch.samples;
    for (std::int64_t at = 0; at < sequence; ++at) {
      const auto next = static_cast<std::size_t>(at) + 1;
      const bool inside = next < texts[i].ids.size();
      batch.tokens.push_back(inside ? texts[i].ids[next - 1] : 0);
      batch.labels.push_back(inside ? texts[i].labels[next] : kNoLabel);
      batch.loss_mask.push_back(batch.labels.back() >= 0 ? static_cast<float>(advantages[i]) : 0);
      batch.positions.push_back(static_cast<std::int32_t>(at));
    }
  }
  return batches;
}

}  // namespace piton::test
