#include "megatron/format/grouped_experts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "megatron/format/names.h"

namespace piton {
namespace {

// Each of `count` experts of the group, the first of which has number `first`.
void add_experts(const std::string& key, const BoxedTensor& group, std::int64_t first,
                 std::int64_t count, BoxedTensors& to) {
  const bool up = key.find(".fc1.") != key.npos;
  const TensorBox& box = group.boxes[0];
  const std::int64_t rows = up ? group.columns / count : group.columns;
  const std::int64_t columns = up ? group.rows : group.rows / count;
  for (std::int64_t i = 0; i < count; ++i) {
    to[key_in_group(key, first + i)] = {
        .dtype = group.dtype,
        .rows = rows,
        .columns = columns,
        .boxes = {{.file = box.file,
                   .offset = box.offset + i * rows * columns * size_bytes(group.dtype),
                   .rows = rows,
                   .columns = columns,
                   .stride = rows,
                   .transposed = true}}};
  }
}

}  // namespace

BoxedTensors with_experts_apart(BoxedTensors tensors, const ModelConfig& model,
                                const std::string& where) {
  if (!model.experts) return tensors;
  std::vector<std::string> keys;
  for (const auto& one : tensors) {
    if (is_group_of_experts(one.first)) keys.push_back(one.first);
  }
  for (const std::string& key : keys) {
    const auto ranks = std::ranges::count_if(keys, [&](const std::string& other) {
      return with_expert(other, 0) == with_expert(key, 0);
    });
    const std::int64_t experts = model.experts->experts;
    const std::int64_t count = experts / ranks;
    const BoxedTensor group = std::move(tensors.extract(key).mapped());
    const std::int64_t divided = key.find(".fc1.") != key.npos ? group.columns : group.rows;
    if (count * ranks != experts || divided % count != 0) {
      throw Error(
          Fault::kData,
          "{}: {} is [{}, {}] on one of {} expert ranks, which {} experts do not divide; is "
          "num_experts that of another model?",
          where, key, group.rows, group.columns, ranks, experts);
    }
    if (group.boxes.size() != 1 || group.boxes[0].stride != group.columns) {
      throw Error(Fault::kData, "{}: {} is in several parts, wanted one, row by row", where, key);
    }
    add_experts(key, group, *expert_of_key(key) * count, count, tensors);
  }
  return tensors;
}

}  // namespace piton
