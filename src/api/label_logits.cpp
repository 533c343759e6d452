#include "api/label_logits.h"

#include <cstring>
#include <string>
#include <utility>

#include "api/text_batches.h"

namespace piton {
namespace {

// The texts of a batch, filled up to the longest one. The row of a text from which its label is
// read has a label, of whatever number.
MicroBatch labeled_batch(std::span<const TextToLabel> texts, const TextBatch& of,
                         bool at_first_token) {
  MicroBatch batch{.samples = std::ssize(of.numbers), .sequence = of.length};
  bool has_padding = false;
  for (const std::size_t number : of.numbers) {
    const TextToLabel& text = texts[number];
    const auto size = std::ssize(text.ids);
    has_padding = has_padding || size < of.length;
    for (std::int64_t i = 0; i < of.length; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const bool is_text = i < size;
      batch.tokens.push_back(is_text ? text.ids[at] : 0);
      batch.types.push_back(is_text && !text.types.empty() ? text.types[at] : 0);
      batch.segments.push_back(is_text ? 0 : kPaddingSegment);
      batch.positions.push_back(static_cast<std::int32_t>(i));
      batch.labels.push_back(i == (at_first_token ? 0 : size - 1) ? 0 : kNoLabel);
    }
  }
  if (!has_padding) batch.segments.clear();  // all see one another: no mask
  batch.loss_mask.assign(batch.tokens.size(), 0.0F);
  return batch;
}

}  // namespace

std::vector<std::vector<float>> label_logits(Session& session, Inference& inference,
                                             std::span<const TextToLabel> texts) {
  const ModelConfig& model = session.settings().model;
  std::vector<std::int64_t> lengths;
  for (const TextToLabel& text : texts) lengths.push_back(std::ssize(text.ids));
  const auto labels = static_cast<std::size_t>(model.labels);
  std::vector<std::vector<float>> all(texts.size());
  for_each_text_batch(lengths, [&](const TextBatch& batch) {
    const auto found =
        session.label_logits({labeled_batch(texts, batch, model.encoder.has_value())});
    std::vector<float> flat;
    for (const std::vector<float>& row : found.front())
      flat.insert(flat.end(), row.begin(), row.end());
    const std::string bytes = inference.from_last_stage(
        {reinterpret_cast<const char*>(flat.data()), flat.size() * sizeof(float)});
    flat.resize(batch.numbers.size() * labels);
    PITON_ASSERT(bytes.size() == flat.size() * sizeof(float), "{} bytes of labels", bytes.size());
    std::memcpy(flat.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < batch.numbers.size(); ++i) {
      const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(i * labels);
      all[batch.numbers[i]] = {begin, begin + static_cast<std::ptrdiff_t>(labels)};
    }
  });
  return all;
}

}  // namespace piton
