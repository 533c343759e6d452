#include "megatron/ranks/rank_weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

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

bool ends_in_any(std::string_view key, std::span<const std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return key.ends_with(end); });
}

constexpr std::array<std::string_view, 12> kByRows = {
    "word_embeddings.weight", "output.weight", "output.bias",
    "head_copy.weight",       ".qkv.weight",   ".qkv.bias",
    ".cross_q.weight",        ".cross_q.bias", ".cross_kv.weight",
    ".cross_kv.bias",         ".fc1.weight",   ".fc1.bias"};
constexpr std::array<std::string_view, 3> kByColumns = {".dense.weight", ".cross_dense.weight",
                                                        ".fc2.weight"};

// Parts of whole tensors, one below another.
class Cut {
 public:
  Cut(const BoxedTensors& whole, int t, int tensor) : whole_(whole), t_(t), tensor_(tensor) {}

  // Rows of rank t of a tensor, or of each of its `parts`.
  void rows(const std::string& key, int parts, BoxedTensor& to) const {
    const BoxedTensor& from = at(key);
    const std::int64_t own = from.rows / parts / tensor_;
    for (int part = 0; part < parts; ++part) {
      add_area(from, {part * (from.rows / parts) + t_ * own, own, 0, from.columns}, to.rows, to);
      to.rows += own;
    }
    finish(from, from.columns, to);
  }
  void columns(const std::string& key, BoxedTensor& to) const {
    const BoxedTensor& from = at(key);
    const std::int64_t own = from.columns / tensor_;
    add_area(from, {0, from.rows, t_ * own, own}, 0, to);
    to.rows = from.rows;
    finish(from, own, to);
  }
  const BoxedTensor& at(const std::string& key) const {
    const auto found = whole_.find(key);
    if (found == whole_.end()) throw Error(Fault::kData, "missing tensor: {}", key);
    return found->second;
  }

 private:
  static void finish(const BoxedTensor& from, std::int64_t columns, BoxedTensor& to) {
    to.dtype = from.dtype;
    to.columns = columns;
  }
  const BoxedTensors& whole_;
  int t_;
  int tensor_;
};

}  // namespace

RankWeights weights_of_rank(const BoxedTensors& whole, const ModelConfig& model,
                            const MegatronLayout& layout, RankChunk place) {
  const auto [t, p, chunk] = place;
  MegatronLayout modules = layout;
  modules.fused_mlp = true;
  std::map<std::int64_t, std::int64_t> layers;  // number in the model by that in the chunk
  for (const PlacedLayer& one : megatron_layers(model, layout, p, chunk))
    layers[one.local] = one.layer;
  const Cut cut(whole, t, layout.tensor);
  RankWeights result;
  for (const MegatronTensor& tensor : megatron_tensors(model, modules, t, p, chunk)) {
    const std::string& key = tensor.key;
    std::string stored = key;
    if (key.starts_with("layers.")) {
      const std::size_t point = key.find('.', 7);
      stored = fmt::format("layers.{}{}", layers.at(std::stoll(key.substr(7, point - 7))),
                           key.substr(point));
    }
    if (key == "head_copy.weight" && !whole.contains(key)) stored = "word_embeddings.weight";
    BoxedTensor part;
    const std::size_t first = stored.find(".fc1.");
    if (first != stored.npos && model.gated && !whole.contains(stored)) {
      const std::string end = stored.substr(first + 5);
      cut.rows(stored.substr(0, first) + ".gate." + end, 1, part);
      cut.rows(stored.substr(0, first) + ".up." + end, 1, part);
    } else if (first != stored.npos) {
      cut.rows(stored, model.gated ? 2 : 1, part);
    } else if (ends_in_any(key, kByRows)) {
      cut.rows(stored, 1, part);
    } else if (ends_in_any(key, kByColumns)) {
      cut.columns(stored, part);
    } else {
      part = cut.at(stored);
    }
    result.weights[key] = std::move(part);
  }
  for (const MegatronTensor& tensor : megatron_tensors(model, modules, t, p, chunk))
    result.ordered.emplace_back(tensor.key, &result.weights.at(tensor.key));
  return result;
}

}  // namespace piton
