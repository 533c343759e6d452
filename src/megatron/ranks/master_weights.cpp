#include "megatron/ranks/master_weights.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/error.h"
#include "checkpoint/values.h"
#include "megatron/format/named_tensors.h"

namespace piton {
namespace {

using Kind = PickleValue::Kind;

constexpr std::int64_t kLooked = 256;  // elements of each weight that are compared

bool is_sixteen_bit(const BoxedTensor& tensor) { return size_bytes(tensor.dtype) == 2; }

// The first elements of the tensor, row by row, as far as its boxes have them in this order.
std::vector<std::byte> first_bytes(const BoxedTensor& tensor) {
  const std::int64_t width = size_bytes(tensor.dtype);
  std::vector<std::byte> bytes;
  std::int64_t at = 0;
  const auto read = [&](const TensorBox& box, std::int64_t row, std::int64_t elements) {
    const std::int64_t count = std::min(elements, kLooked - at);
    const std::size_t end = bytes.size();
    bytes.resize(end + static_cast<std::size_t>(count * width));
    box.file->read_at(box.offset + row * box.stride * width, std::span(bytes).subspan(end));
    at += count;
  };
  for (const TensorBox& box : tensor.boxes) {
    const bool together = box.stride == box.columns && box.columns == tensor.columns;
    for (std::int64_t row = 0; row < (together ? 1 : box.rows); ++row) {
      if (at >= kLooked || (box.row + row) * tensor.columns + box.column != at) return bytes;
      read(box, row, together ? box.rows * box.columns : box.columns);
    }
  }
  return bytes;
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

bool is_master(const BoxedTensor& master, const BoxedTensor& weight) {
  if (master.dtype != DType::kF32 || master.rows != weight.rows ||
      master.columns != weight.columns) {
    return false;
  }
  const std::vector<std::byte> copy = first_bytes(master);
  const std::vector<std::byte> own = first_bytes(weight);
  const std::int64_t width = size_bytes(weight.dtype);
  const std::int64_t count =
      std::min(std::ssize(copy) / size_bytes(DType::kF32), std::ssize(own) / width);
  std::vector<std::byte> rounded(static_cast<std::size_t>(count * width));
  convert_values(copy.data(), DType::kF32, rounded.data(), weight.dtype, count);
  return count > 0 && std::ranges::equal(rounded, std::span(own).first(rounded.size()));
}

bool are_masters(const BoxedTensors& masters, const OrderedWeights& weights) {
  return std::ranges::all_of(weights, [&](const auto& weight) {
    if (!is_sixteen_bit(*weight.second)) return true;
    const auto master = masters.find(weight.first);
    return master != masters.end() && is_master(master->second, *weight.second);
  });
}

}  // namespace piton
