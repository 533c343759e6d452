#include "session/encoder_upload.h"

#include "base/error.h"

namespace piton {
namespace {

// Chosen rows are filled up to a multiple of this, so that there are few sizes of buffers.
constexpr std::size_t kRowsTogether = 16;

}  // namespace

Tensor EncoderUpload::put(DType dtype, std::size_t size, const void* host) const {
  Tensor tensor = machine_.arena.allocate(dtype, {static_cast<std::int64_t>(size)},
                                          MemoryKind::kActivations, machine_.stream);
  machine_.device.upload(host, tensor, machine_.stream);
  return tensor;
}

Tensor EncoderUpload::put(const std::vector<std::int32_t>& host) const {
  return put(DType::kI32, host.size(), host.data());
}

Tensor EncoderUpload::put(const std::vector<float>& host) const {
  return put(DType::kF32, host.size(), host.data());
}

EncoderInput EncoderUpload::input(const MicroBatch& batch) const {
  const auto samples = static_cast<std::size_t>(batch.samples);
  std::vector<std::int32_t> types = batch.types;
  types.resize(static_cast<std::size_t>(batch.samples * batch.sequence), 0);
  std::vector<std::int32_t> pair_labels = batch.pair_labels;
  pair_labels.resize(samples, kNoLabel);
  std::vector<float> pair_weights = batch.pair_weights;
  pair_weights.resize(samples, 0.0F);
  std::vector<std::int32_t> first_rows;
  for (std::int64_t sample = 0; sample < batch.samples; ++sample)
    first_rows.push_back(static_cast<std::int32_t>(sample * batch.sequence));

  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> labels;
  std::vector<float> mask;
  std::vector<float> targets;
  for (std::size_t row = 0; row < batch.labels.size(); ++row) {
    if (batch.labels[row] < 0 || batch.loss_mask[row] == 0) continue;
    rows.push_back(static_cast<std::int32_t>(row));
    labels.push_back(batch.labels[row]);
    mask.push_back(batch.loss_mask[row]);
    if (!batch.targets.empty()) targets.push_back(batch.targets[row]);
  }
  const std::size_t whole = (rows.size() / kRowsTogether + 1) * kRowsTogether;
  const std::size_t size = rows.size() % kRowsTogether == 0 && !rows.empty() ? rows.size() : whole;
  rows.resize(size, 0);
  labels.resize(size, kNoLabel);
  mask.resize(size, 0.0F);
  if (!batch.targets.empty()) targets.resize(size, 0.0F);
  return {.types = put(types),
          .word_rows = put(rows),
          .word_labels = put(labels),
          .word_mask = put(mask),
          .word_targets = targets.empty() ? Tensor() : put(targets),
          .first_rows = put(first_rows),
          .pair_labels = put(pair_labels),
          .pair_weights = put(pair_weights)};
}

SourceInput EncoderUpload::source(const MicroBatch& batch) const {
  const SourceRows& source = batch.source;
  PITON_ASSERT(source.given(), "a model with an encoder, and samples without a source");
  std::vector<std::int32_t> positions;
  for (std::size_t i = 0; i < source.tokens.size(); ++i)
    positions.push_back(static_cast<std::int32_t>(i) % static_cast<std::int32_t>(source.sequence));
  return {.sequence = source.sequence,
          .tokens = put(source.tokens),
          .positions = put(positions),
          .lengths = put(source.lengths)};
}

}  // namespace piton
