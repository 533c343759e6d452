#include "megatron/ranks/rank_weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace piton {
namespace {

struct Area {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
};

// Adds the area of `from` to `to`, from its row `row` on.
void add_area(const BoxedTensor& from, const Area& area, std::int64_t row, BoxedTensor& to) {
  for (const TensorBox& box : from.boxes) {
    const std::int64_t top = std::max(area.row, box.row);
    const std::int64_t bottom = std::min(area.row + area.rows, box.row + box.rows);
    const std::int64_t left = std::max(area.column, box.column);
    const std::int64_t right = std::min(area.column + area.columns, box.column + box.columns);
    if (top >= bottom || left >= right) continue;
    to.boxes.push_back({.file = box.file,
                        .offset = box.offset + ((top - box.row) * box.stride + left - box.column) *
                                                   size_bytes(from.dtype),
                        .row = row + top - area.row,
                        .rows = bottom - top,
                        .column = left - area.column,
                        .columns = right - left,
                        .stride = box.stride});
  }
  // The first box has the first element, if any has.
  std::ranges::sort(to.boxes, {},
                    [](const TensorBox& box) { return std::pair(box.row, box.column); });
}

// Rows of the table are padded.
constexpr std::array<std::string_view, 4> kTables = {"word_embeddings.weight", "output.weight",
                                                     "output.bias", "head_copy.weight"};

// Rows of rank t of a whole tensor.
BoxedTensor share_of_rows(const BoxedTensor& from, int t, int tensor) {
  const std::int64_t own = from.rows / tensor;
  BoxedTensor share{.dtype = from.dtype, .rows = own, .columns = from.columns};
  add_area(from, {t * own, own, 0, from.columns}, 0, share);
  return share;
}

// Where canonical tensors are in whole ones.
class WholePlaces {
 public:
  WholePlaces(const BoxedTensors& whole, const std::vector<MegatronTensor>& tensors) {
    for (const MegatronTensor& tensor : tensors) {
      const auto found = whole.find(tensor.key);
      if (found == whole.end()) continue;
      for (const AssemblyPart& part : tensor.assembly.parts)
        places_[part.name].push_back({&found->second, part});
    }
  }

  // The tensor of a rank that has these parts. Throws Error(kData) with `key` where one is missing.
  BoxedTensor assembled(const Assembly& assembly, const std::string& key) const {
    const Shape& shape = assembly.shape;
    BoxedTensor made{.rows = shape[0], .columns = shape.ndim() > 1 ? shape[1] : 1};
    for (const AssemblyPart& part : assembly.parts) {
      if (add(part, made) != part.extent[0]) throw Error(Fault::kData, "missing tensor: {}", key);
    }
    return made;
  }

 private:
  struct Place {
    const BoxedTensor* tensor;
    AssemblyPart part;
  };

  // Returns the number of rows that were found.
  std::int64_t add(const AssemblyPart& wanted, BoxedTensor& to) const {
    std::int64_t rows = 0;
    const auto found = places_.find(wanted.name);
    if (found == places_.end()) return 0;
    for (const auto& [tensor, part] : found->second) {
      const std::int64_t top = std::max(wanted.start[0], part.start[0]);
      const std::int64_t bottom =
          std::min(wanted.start[0] + wanted.extent[0], part.start[0] + part.extent[0]);
      if (top >= bottom) continue;
      const bool matrix = wanted.extent.ndim() > 1;
      const Area area{.row = part.row + top - part.start[0],
                      .rows = bottom - top,
                      .column = matrix ? wanted.start[1] - part.start[1] : 0,
                      .columns = matrix ? wanted.extent[1] : 1};
      add_area(*tensor, area, wanted.row + top - wanted.start[0], to);
      to.dtype = tensor->dtype;
      rows += area.rows;
    }
    return rows;
  }

  std::map<std::string, std::vector<Place>> places_;
};

}  // namespace

RankWeights weights_of_rank(const BoxedTensors& whole, const MegatronLayout& stored,
                            const ModelConfig& model, const MegatronLayout& layout,
                            RankChunk place) {
  const auto [t, p, chunk] = place;
  const WholePlaces places(whole, megatron_tensors(model, stored, 0, 0, 0));
  RankWeights result;
  const std::vector<MegatronTensor> tensors = megatron_tensors(model, layout, t, p, chunk);
  for (const MegatronTensor& tensor : tensors) {
    const std::string& key = tensor.key;
    if (std::ranges::find(kTables, key) == kTables.end()) {
      result.weights[key] = places.assembled(tensor.assembly, key);
      continue;
    }
    const bool is_copy = key == "head_copy.weight" && !whole.contains(key);
    const auto table = whole.find(is_copy ? "word_embeddings.weight" : key);
    if (table == whole.end()) throw Error(Fault::kData, "missing tensor: {}", key);
    result.weights[key] = share_of_rows(table->second, t, layout.tensor);
  }
  for (const MegatronTensor& tensor : tensors)
    result.ordered.emplace_back(tensor.key, &result.weights.at(tensor.key));
  return result;
}

}  // namespace piton
