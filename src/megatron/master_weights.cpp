#include "megatron/master_weights.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "checkpoint/values.h"
#include "megatron/named_tensors.h"

namespace piton {
namespace {

using Kind = PickleValue::Kind;

constexpr std::int64_t kLooked = 256;    // elements of each weight that are compared
constexpr std::int64_t kAlignment = 64;  // elements
constexpr int kMostLooks = 1 << 20;      // at places of a buffer

bool is_sixteen_bit(const BoxedTensor& tensor) { return size_bytes(tensor.dtype) == 2; }

std::int64_t elements_of(const BoxedTensor& tensor) { return tensor.rows * tensor.columns; }

// Elements at the beginning of the tensor that are together in a file.
std::int64_t first_elements(const BoxedTensor& tensor) {
  const TensorBox& box = tensor.boxes.front();
  if (box.row != 0 || box.column != 0) return 0;
  const std::int64_t together = box.stride == box.columns && box.columns == tensor.columns
                                    ? box.rows * box.columns
                                    : box.columns;
  return std::min(together, kLooked);
}

std::vector<std::byte> first_bytes(const BoxedTensor& tensor, std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_bytes(tensor.dtype)));
  tensor.boxes.front().file->read_at(tensor.boxes.front().offset, bytes);
  return bytes;
}

bool is_master(const BoxedTensor& master, const BoxedTensor& weight) {
  if (master.dtype != DType::kF32 || master.rows != weight.rows ||
      master.columns != weight.columns) {
    return false;
  }
  const std::int64_t count = std::min(first_elements(master), first_elements(weight));
  std::vector<std::byte> rounded(static_cast<std::size_t>(count * size_bytes(weight.dtype)));
  convert_values(first_bytes(master, count).data(), DType::kF32, rounded.data(), weight.dtype,
                 count);
  return rounded == first_bytes(weight, count);
}

}  // namespace

BoxedTensors masters_of_groups(const TorchFile& file, const PickleValue& groups,
                               const std::vector<OrderedWeights>& chunks, std::size_t chunk) {
  GroupOrder order(chunks, /*narrow_alone=*/true);
  BoxedTensors masters;
  for (const PickleValue* group : groups.items) {
    for (const PickleValue* value : group->items) {
      if (value->kind != Kind::kTensor) return {};
      const BoxedTensor master = boxed_tensor(file.file(), file.tensor(*value, "fp32 weight"),
                                              file.file().path().string(), "fp32 weight");
      const GroupOrder::Place place = order.next(master);
      if (place.key.empty()) return {};
      if (place.chunk == chunk) masters[place.key] = master;
    }
  }
  return masters;
}

OptimizerBuffer::OptimizerBuffer(const TorchFile& file, const PickleValue& state,
                                 const OrderedWeights& weights)
    : file_(file), state_(state), weights_(weights), copies_(vectors("param")) {
  if (!copies_.empty() && !weights_.empty()) find_places();
}

std::vector<TorchTensor> OptimizerBuffer::vectors(const char* kind) const {
  const PickleValue* value = state_.find(kind);
  if (value == nullptr) return {};
  std::vector<const PickleValue*> parts{value};
  if (value->kind == Kind::kList) parts = value->items;
  std::vector<TorchTensor> vectors;
  for (const PickleValue* part : parts) {
    if (part->kind != Kind::kTensor) return {};
    vectors.push_back(file_.tensor(*part, kind));
    const TorchTensor& stored = vectors.back();
    if (stored.dtype != "F32" || stored.shape.size() != 1 || !stored.contiguous()) return {};
  }
  return vectors;
}

BoxedTensor OptimizerBuffer::boxed(const TorchTensor& vector, std::int64_t at,
                                   const BoxedTensor& weight) const {
  return {.dtype = DType::kF32,
          .rows = weight.rows,
          .columns = weight.columns,
          .boxes = {{.file = &file_.file(),
                     .offset = vector.offset + at * size_bytes(DType::kF32),
                     .rows = weight.rows,
                     .columns = weight.columns,
                     .stride = weight.columns}}};
}

// Where the next weight may begin, the likeliest last.
std::vector<OptimizerBuffer::Place> OptimizerBuffer::candidates_behind(
    const Place& place, std::int64_t elements) const {
  std::vector<Place> candidates;
  const std::int64_t end = place.at + elements;
  if (place.vector + 1 < copies_.size()) candidates.push_back({.vector = place.vector + 1});
  candidates.push_back({place.vector, end, end});
  const std::int64_t inside = end - place.bucket;
  const std::int64_t aligned = (inside + kAlignment - 1) / kAlignment * kAlignment;
  candidates.push_back({place.vector, place.bucket + aligned, place.bucket});
  return candidates;
}

// Goes from weight to weight, and back where one is not found behind its predecessor: vectors of
// zeros look alike everywhere.
void OptimizerBuffer::find_places() {
  std::vector<std::vector<Place>> open{{Place{}}};
  for (int looks = 0; looks < kMostLooks && !open.empty();) {
    if (open.back().empty()) {
      open.pop_back();
      if (!places_.empty()) places_.pop_back();
      continue;
    }
    const Place place = open.back().back();
    open.back().pop_back();
    const BoxedTensor& weight = *weights_[weights_.size() - open.size()].second;
    const TorchTensor& vector = copies_[place.vector];
    if (elements_of(weight) > vector.shape[0] - place.at) continue;
    ++looks;
    if (!is_master(boxed(vector, place.at, weight), weight)) continue;
    places_.push_back(place);
    if (places_.size() == weights_.size()) return;
    open.push_back(candidates_behind(place, elements_of(weight)));
  }
  places_.clear();
}

BoxedTensors OptimizerBuffer::tensors(const char* kind) const {
  PITON_ASSERT(found());
  const std::vector<TorchTensor> stored = vectors(kind);
  if (stored.size() != copies_.size()) return {};
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (stored[i].shape != copies_[i].shape) return {};
  }
  BoxedTensors tensors;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto& [key, weight] = weights_[weights_.size() - 1 - i];
    tensors[key] = boxed(stored[places_[i].vector], places_[i].at, *weight);
  }
  return tensors;
}

bool are_masters(const BoxedTensors& masters, const OrderedWeights& weights) {
  return std::ranges::all_of(weights, [&](const auto& weight) {
    if (!is_sixteen_bit(*weight.second)) return true;
    const auto master = masters.find(weight.first);
    return master != masters.end() && is_master(master->second, *weight.second);
  });
}

}  // namespace piton
