#include "generate/inference.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace piton {

Inference::Inference(Context context, Pipeline& pipeline, Mesh& mesh, const ModelConfig& config)
    : context_(context.with_tape(nullptr)), pipeline_(pipeline), mesh_(mesh), config_(config) {
  context_.training = false;
}

KvCache Inference::make_cache(std::int64_t samples, std::int64_t capacity) const {
  KvCache cache(context_.arena, samples, capacity);
  pipeline_.add_layers(cache);
  return cache;
}

Tensor Inference::put(std::span<const std::int32_t> ids) {
  Tensor tensor = context_.activation(DType::kI32, {static_cast<std::int64_t>(ids.size())});
  context_.device.upload(ids.data(), tensor, context_.stream);
  return tensor;
}

ModelInput Inference::input(std::span<const std::int32_t> ids, std::int64_t samples,
                            const KvCache* cache) {
  const std::int64_t sequence = static_cast<std::int64_t>(ids.size()) / samples;
  std::vector<std::int32_t> positions;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::int64_t begin = cache != nullptr ? cache->length(sample) : 0;
    for (std::int64_t i = 0; i < sequence; ++i)
      positions.push_back(static_cast<std::int32_t>(begin + i));
  }
  return {.samples = samples,
          .sequence = sequence,
          .tokens = put(ids),
          .positions = put(positions),
          .wanted = {.loss = false}};
}

ChunkOutput Inference::pass(ModelInput input) {
  ChunkOutput result;
  std::vector<ModelInput> inputs;
  inputs.push_back(std::move(input));
  pipeline_.forward(context_, inputs,
                    [&](int /*micro_batch*/, ChunkOutput& output) { result = std::move(output); });
  return result;
}

Tensor Inference::logits(std::span<const std::int32_t> ids, std::int64_t samples, Rows rows,
                         KvCache* cache) {
  ModelInput one = input(ids, samples, cache);
  one.wanted.logits = true;
  if (rows == Rows::kLastOfEachSample) {
    std::vector<std::int32_t> last;
    for (std::int64_t sample = 1; sample <= samples; ++sample)
      last.push_back(static_cast<std::int32_t>(sample * one.sequence - 1));
    one.wanted.rows = put(last);
  }
  if (cache == nullptr) return pass(std::move(one)).logits;
  return cached_pass(std::move(one), *cache);
}

Tensor Inference::logits_at(std::span<const std::int32_t> ids, std::span<const std::int32_t> rows,
                            KvCache& cache) {
  const auto samples = std::ssize(rows);
  ModelInput one = input(ids, samples, &cache);
  one.wanted.logits = true;
  std::vector<std::int32_t> wanted;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    wanted.push_back(static_cast<std::int32_t>(sample * one.sequence) +
                     rows[static_cast<std::size_t>(sample)]);
  }
  one.wanted.rows = put(wanted);
  return cached_pass(std::move(one), cache);
}

Tensor Inference::logits_of_rows(std::span<const std::int32_t> ids, std::int64_t samples,
                                 std::span<const std::int32_t> rows) {
  ModelInput one = input(ids, samples, nullptr);
  one.wanted.logits = true;
  one.wanted.rows = put(rows);
  return pass(std::move(one)).logits;
}

Tensor Inference::cached_pass(ModelInput input, KvCache& cache) {
  cache.open(context_, input.sequence);
  input.cache = &cache;
  Tensor logits = pass(std::move(input)).logits;
  cache.close();
  return logits;
}

std::vector<double> Inference::token_losses(std::span<const std::int32_t> ids,
                                            std::span<const std::int32_t> labels) {
  ModelInput one = input(ids, 1, nullptr);
  const std::vector<float> mask(labels.size(), 1.0F);
  one.loss.labels = put(labels);
  one.loss.mask = context_.activation(DType::kF32, {static_cast<std::int64_t>(mask.size())});
  context_.device.upload(mask.data(), one.loss.mask, context_.stream);
  one.wanted = {.loss = true, .token_losses = true};
  const Tensor losses = pass(std::move(one)).token_losses;
  std::string bytes;
  if (losses.defined()) {
    bytes.resize(static_cast<std::size_t>(losses.bytes()));
    context_.device.download(losses, bytes.data(), context_.stream);
  }
  bytes = from_last_stage(bytes);
  std::vector<double> host(labels.size());
  const bool wide = config_.dtype == DType::kF64;
  PITON_ASSERT(bytes.size() == host.size() * (wide ? sizeof(double) : sizeof(float)),
               "{} bytes of {} losses", bytes.size(), host.size());
  if (wide) {
    std::memcpy(host.data(), bytes.data(), bytes.size());
    return host;
  }
  std::vector<float> narrow(host.size());
  std::memcpy(narrow.data(), bytes.data(), bytes.size());
  std::ranges::copy(narrow, host.begin());
  return host;
}

std::vector<float> Inference::whole_vocabulary(const Tensor& split) {
  if (!split.defined()) return {};
  PITON_ASSERT(split.dtype() == DType::kF32, "logits in {}", name(split.dtype()));
  Communicator& group = mesh_.group(Axis::kTensor);
  const std::int64_t rows = split.dim(0);
  const std::int64_t part = split.dim(1);
  Tensor all = split;
  if (group.size() > 1) {
    all = context_.workspace(split.dtype(), {group.size() * rows, part});
    const Event ready = group.all_gather(all, split, context_.stream);
    context_.arena.hold(all, ready.fence());
    context_.arena.hold(split, ready.fence());
    context_.await(ready);
  }
  std::vector<float> parts(static_cast<std::size_t>(all.elements()));
  context_.device.download(all, parts.data(), context_.stream);
  // [t, rows, part] -> [rows, vocabulary]; padding is at the end of the last parts.
  std::vector<float> whole(static_cast<std::size_t>(rows * config_.vocabulary));
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::int64_t begin = rank * part;
    const std::int64_t size = std::clamp<std::int64_t>(config_.vocabulary - begin, 0, part);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(parts.begin() + (rank * rows + row) * part, size,
                  whole.begin() + row * config_.vocabulary + begin);
    }
  }
  return whole;
}

std::string Inference::from_last_stage(const std::string& bytes) {
  Communicator& group = mesh_.group(kAllAxes);
  if (group.size() == 1) return bytes;
  const bool gives = pipeline_.on_last_stage() && mesh_.coordinate(Axis::kTensor) == 0 &&
                     mesh_.coordinate(Axis::kData) == 0;
  for (std::string& one : group.gather_bytes(gives ? "1" + bytes : std::string())) {
    if (!one.empty()) return one.substr(1);
  }
  PITON_ASSERT(false, "no rank holds the last chunk");
  return {};
}

}  // namespace piton
