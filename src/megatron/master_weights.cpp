#include "megatron/master_weights.h"

#include <algorithm>
#include <cstddef>
#include <deque>

#include "checkpoint/values.h"
#include "megatron/named_tensors.h"

namespace piton {
namespace {

using Kind = PickleValue::Kind;

constexpr std::int64_t kLooked = 256;    // elements of each weight that are compared
constexpr std::int64_t kAlignment = 64;  // elements

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

// The weights at places of a vector; empty if it is too short.
BoxedTensors cut(const TorchFile& file, const TorchTensor& vector, const OrderedWeights& weights,
                 std::int64_t alignment) {
  BoxedTensors masters;
  std::int64_t at = 0;
  for (std::size_t i = weights.size(); i-- > 0;) {
    const auto& [key, weight] = weights[i];
    at = (at + alignment - 1) / alignment * alignment;
    if (elements_of(*weight) > vector.shape[0] - at) return {};
    masters[key] = {.dtype = DType::kF32,
                    .rows = weight->rows,
                    .columns = weight->columns,
                    .boxes = {{.file = &file.file(),
                               .offset = vector.offset + at * size_bytes(DType::kF32),
                               .rows = weight->rows,
                               .columns = weight->columns,
                               .stride = weight->columns}}};
    at += elements_of(*weight);
  }
  return masters;
}

}  // namespace

BoxedTensors masters_of_groups(const TorchFile& file, const PickleValue& groups,
                               const OrderedWeights& weights) {
  std::deque<const std::pair<std::string, const BoxedTensor*>*> matrices;
  std::deque<const std::pair<std::string, const BoxedTensor*>*> vectors;
  for (const auto& weight : weights) {
    if (is_sixteen_bit(*weight.second))
      (weight.second->columns > 1 ? matrices : vectors).push_back(&weight);
  }
  BoxedTensors masters;
  for (const PickleValue* group : groups.items) {
    for (const PickleValue* value : group->items) {
      if (value->kind != Kind::kTensor) return {};
      const BoxedTensor master = boxed_tensor(file.file(), file.tensor(*value, "fp32 weight"),
                                              file.file().path().string(), "fp32 weight");
      auto& open = master.columns > 1 ? matrices : vectors;
      if (open.empty()) return {};
      masters[open.front()->first] = master;
      open.pop_front();
    }
  }
  return masters;
}

BoxedTensors masters_of_buffer(const TorchFile& file, const PickleValue& vector,
                               const OrderedWeights& weights) {
  if (vector.kind != Kind::kTensor) return {};
  const TorchTensor stored = file.tensor(vector, "param");
  if (stored.dtype != "F32" || stored.shape.size() != 1 || !stored.contiguous()) return {};
  for (const std::int64_t alignment : {kAlignment, std::int64_t{1}}) {
    BoxedTensors masters = cut(file, stored, weights, alignment);
    if (!masters.empty() && are_masters(masters, weights)) return masters;
  }
  return {};
}

bool are_masters(const BoxedTensors& masters, const OrderedWeights& weights) {
  return std::ranges::all_of(weights, [&](const auto& weight) {
    if (!is_sixteen_bit(*weight.second)) return true;
    const auto master = masters.find(weight.first);
    return master != masters.end() && is_master(master->second, *weight.second);
  });
}

}  // namespace piton
