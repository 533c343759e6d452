// What the passes of a session read of micro-batches, on the device.
#include "session/embedding_noise.h"
#include "session/encoder_upload.h"
#include "session/prompt_reach.h"
#include "session/sequence_part.h"
#include "session/session.h"

namespace piton {

Tensor Session::input_memory(DType dtype, const Shape& shape, MemoryKind kind) {
  return places_ != nullptr ? places_->next(machine_, dtype, shape, kind)
                            : machine_.arena.allocate(dtype, shape, kind, machine_.stream);
}

Tensor Session::put_input(DType dtype, const Shape& shape, const void* host, MemoryKind kind) {
  const Tensor tensor = input_memory(dtype, shape, kind);
  machine_.device.upload(host, tensor, machine_.stream);
  return tensor;
}

Tensor Session::put_scale(double factor) {
  const auto narrow = static_cast<float>(factor);
  return settings_.model.dtype == DType::kF64
             ? put_input(DType::kF64, {1}, &factor, MemoryKind::kWorkspace)
             : put_input(DType::kF32, {1}, &narrow, MemoryKind::kWorkspace);
}

ModelInput Session::upload(const MicroBatch& whole, const Tensor& scale) {
  const SequenceStretches stretches{mesh_->coordinate(Axis::kContext), mesh_->size(Axis::kContext)};
  std::vector<float> noise;
  if (settings_.embedding_noise > 0)
    noise = noise_bounds(whole, settings_.embedding_noise, settings_.model.hidden);
  const auto put_noise = [&](const std::vector<float>& bounds, ModelInput& input) {
    if (bounds.empty()) return;
    input.noise = put_input(DType::kF32, {std::ssize(bounds)}, bounds.data());
  };
  if (stretches.ranks == 1) {
    ModelInput input = upload_rows(whole, scale);
    put_noise(noise, input);
    return input;
  }
  ModelInput input = upload_rows(part_of_sequence(whole, stretches), scale);
  put_noise(rows_of_part(noise, whole, stretches), input);
  const std::int64_t rows = stretches.rows(whole.sequence);
  input.rows.first_shift = stretches.first() * rows;
  input.rows.second_shift = (stretches.second() - 1) * rows;
  for (const ContextExchange exchange : layout_.exchanges_of(settings_.model))
    input.of_ranks[static_cast<std::size_t>(exchange)] = upload_places(whole, exchange);
  return input;
}

ContextPlaces Session::upload_places(const MicroBatch& whole, ContextExchange exchange) {
  const ContextGroup group = layout_.context_group(exchange);
  const bool documents = !whole.segments.empty();
  const auto put = [&](const Shape& shape, const std::vector<std::int32_t>& values) {
    return put_input(DType::kI32, shape, values.data());
  };
  ContextPlaces places;
  if (group.keys != nullptr && !group.gathers) {
    const int stretches = SequenceStretches{0, group.keys->size()}.count();
    const auto by_stretches = [&](const std::vector<std::int32_t>& rows) {
      return put({stretches, whole.samples, whole.sequence / stretches},
                 by_stretch(rows, whole, stretches));
    };
    places.stretches.positions = by_stretches(positions_of_rows(whole));
    if (documents) places.stretches.segments = by_stretches(whole.segments);
    return places;
  }
  if (documents) {
    places.rows.key_segments = put({whole.samples, whole.sequence}, whole.segments);
    places.rows.query_segments = places.rows.key_segments;
  }
  if (!group.gathers) return places;
  const SequenceStretches own{group.keys->rank(), group.keys->size()};
  const auto of_own = [&](const std::vector<std::int32_t>& rows) {
    return put({whole.samples, 2 * own.rows(whole.sequence)}, rows_of_part(rows, whole, own));
  };
  places.rows.query_positions = of_own(positions_of_rows(whole));
  if (documents) places.rows.query_segments = of_own(whole.segments);
  return places;
}

ModelInput Session::upload_rows(const MicroBatch& batch, const Tensor& scale) {
  const auto put = [&](DType dtype, const Shape& shape, const void* host) {
    return put_input(dtype, shape, host);
  };
  const std::int64_t rows = batch.samples * batch.sequence;
  ModelInput input{.samples = batch.samples,
                   .sequence = batch.sequence,
                   .tokens = put(DType::kI32, {rows}, batch.tokens.data()),
                   .positions = put(DType::kI32, {rows}, batch.positions.data()),
                   .loss = {.labels = put(DType::kI32, {rows}, batch.labels.data()),
                            .mask = put(DType::kF32, {rows}, batch.loss_mask.data()),
                            .scale = scale},
                   .rows = {.consumed_samples = consumed_samples_,
                            .sample_index = batch.sample_index,
                            .sequence = batch.sequence}};
  if (!batch.targets.empty()) input.loss.targets = put(DType::kF32, {rows}, batch.targets.data());
  if (const std::vector<std::uint8_t>& sets = batch.label_sets; !sets.empty()) {
    input.loss.sets =
        put(DType::kU8, {batch.samples, std::ssize(sets) / batch.samples}, sets.data());
  }
  if (!batch.segments.empty() && mesh_->size(Axis::kContext) == 1)
    input.segments = put(DType::kI32, {batch.samples, batch.sequence}, batch.segments.data());
  if (settings_.model.prefix) {
    const std::vector<std::int32_t> reach = prompt_reach(batch);
    input.query_reach = put(DType::kI32, {batch.samples, batch.sequence}, reach.data());
  }
  const EncoderUpload of_encoder(machine_);
  if (settings_.model.encoder_decoder) input.source = of_encoder.source(batch);
  if (!settings_.model.encoder) return input;
  if (const std::int64_t first = settings_.model.encoder->first_position; first > 0) {
    std::vector<std::int32_t> positions = batch.positions;
    for (std::int32_t& position : positions) position += static_cast<std::int32_t>(first);
    input.positions = put(DType::kI32, {rows}, positions.data());
  }
  input.encoder = of_encoder.input(batch);
  return input;
}

LaterTokens Session::upload_later(const MicroBatch& moved, const Tensor& scale) {
  const SequenceStretches stretches{mesh_->coordinate(Axis::kContext), mesh_->size(Axis::kContext)};
  const MicroBatch own = stretches.ranks == 1 ? moved : part_of_sequence(moved, stretches);
  const Shape rows{own.samples * own.sequence};
  return {.tokens = put_input(DType::kI32, rows, own.tokens.data()),
          .positions = put_input(DType::kI32, rows, own.positions.data()),
          .loss = {.labels = put_input(DType::kI32, rows, own.labels.data()),
                   .mask = put_input(DType::kF32, rows, own.loss_mask.data()),
                   .scale = scale}};
}

}  // namespace piton
