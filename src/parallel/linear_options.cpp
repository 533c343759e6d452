#include "parallel/linear_options.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/options/option_range.h"

namespace piton {
namespace {

constexpr const char* kShapes = "--customized-coc";

bool may_be_slices(std::int64_t value) {
  return value == 1 || value == 2 || value == 4 || value == 8;
}

void expect_multiple(std::string_view what, std::int64_t rows, int slices, const char* flag) {
  if (slices == kFused || rows % slices == 0) return;
  throw Error(Fault::kUsage,
              "parallel: {}: {} {} cannot be cut into {} slices; change {}, --seq-length or "
              "--micro-batch-size",
              flag, rows, what, slices, flag);
}

// The numbers of "[m, k, n]"; none if it is anything else.
std::optional<ProductShape> shape_of(const std::string& key) {
  const auto list = read_json_or_discarded<nlohmann::json>(key);
  if (!list.is_array() || list.size() != 3) return {};
  for (const auto& one : list) {
    if (!one.is_number_unsigned() || one.get<std::uint64_t>() > kLargestSize || one == 0) return {};
  }
  return ProductShape{list[0], list[1], list[2]};
}

std::vector<ShapeSlices> slices_of(const std::string& text) {
  std::vector<ShapeSlices> all;
  if (text.empty()) return all;
  const auto mistake = [](std::string_view what, std::string_view got, std::string_view wanted) {
    throw Error(Fault::kUsage, "parallel: {}: {}: got {}, wanted {}", kShapes, what, got, wanted);
  };
  // Python's dictionaries have single quotes.
  std::string json = text;
  if (json.find('"') == std::string::npos) std::ranges::replace(json, '\'', '"');
  const auto dictionary = read_json_or_discarded<nlohmann::json>(json);
  if (!dictionary.is_object()) mistake("the dictionary", text, "{\"[m, k, n]\": slices, ...}");
  for (const auto& [key, value] : dictionary.items()) {
    const std::optional<ProductShape> shape = shape_of(key);
    if (!shape) mistake("a shape", "\"" + key + "\"", "\"[m, k, n]\" with three sizes from 1 up");
    const bool known = value.is_number_integer() && (value == kFused || may_be_slices(value));
    if (!known) mistake("slices of " + key, value.dump(), "-1 (fused), 1, 2, 4 or 8");
    const ShapeSlices one{*shape, value};
    expect_multiple("rows of " + key, shape->rows, one.slices, kShapes);
    const auto same = [&](const ShapeSlices& other) { return other.shape == one.shape; };
    if (std::ranges::any_of(all, same)) mistake("shapes", key + " twice", "each once");
    all.push_back(one);
  }
  return all;
}

}  // namespace

int LinearOptions::slices_of_heads() const {
  if (mode == 0 || mode == 1) return 1;
  return fused ? 0 : static_cast<int>(slices.value_or(0));
}

LinearStrategy LinearOptions::strategy() const {
  if (slices && !may_be_slices(*slices)) {
    throw Error(Fault::kUsage, "parallel: --num-slices: got {}, wanted 1, 2, 4 or 8", *slices);
  }
  if (mode < -1 || mode > 2) {
    throw Error(Fault::kUsage, "parallel: --coc-mode: got {}, wanted -1, 0, 1 or 2", mode);
  }
  const bool off = mode == 0 || mode == 1;
  LinearStrategy strategy{.slices = off     ? 1
                                    : fused ? kFused
                                            : static_cast<int>(slices.value_or(1)),
                          .sequence_parallel = sequence_parallel,
                          .of_shapes = slices_of(slices_of_shapes),
                          .keeps_gathered = !gather_again,
                          .fused_column_backward = fused_column_backward};
  if (off) strategy.of_shapes.clear();
  if (fused_column_backward && !off && !strategy.fuses()) {
    throw Error(Fault::kUsage,
                "parallel: --enable-coc-in-column-backward: needs --fused-linears, of which it is "
                "a part");
  }
  if (off) strategy.fused_column_backward = false;
  return strategy;
}

LinearStrategy LinearOptions::strategy(const std::vector<std::int64_t>& tokens, int tensor) const {
  LinearStrategy strategy = this->strategy();
  if (tensor == 1) strategy.sequence_parallel = false;  // as in Megatron-LM
  for (const std::int64_t size : tokens) {
    strategy.shared_rows = std::max(strategy.shared_rows, size);
    if (tensor == 1) continue;
    if (sequence_parallel && size % tensor != 0) {
      throw Error(Fault::kUsage,
                  "--sequence-parallel: {} tokens of a micro-batch cannot be split over {} tensor "
                  "ranks; change --seq-length",
                  size, tensor);
    }
    const std::int64_t rows = sequence_parallel ? size / tensor : size;
    const std::string what = sequence_parallel ? "tokens of a micro-batch on each tensor rank"
                                               : "tokens of a micro-batch";
    if (strategy.slices <= rows) expect_multiple(what, rows, strategy.slices, "--num-slices");
    for (const ShapeSlices& one : strategy.of_shapes) {
      if (one.shape.rows == size) expect_multiple(what, rows, one.slices, kShapes);
    }
  }
  return strategy;
}

}  // namespace piton
