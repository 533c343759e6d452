#include "gguf/gguf_source.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/listed.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/values.h"
#include "gguf/gguf_rotary.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

constexpr const char* kHead = "head.weight";
constexpr const char* kTable = "embedding.token.weight";
constexpr std::int64_t kReadBytes = std::int64_t{8} << 20;  // of a file, at a time
constexpr std::int64_t kLargestTable = 1 << 16;             // numbers of the configuration

bool is_table(const std::string& name) {
  return name == kRopeDivisors || name == kShortDivisors || name == kLongDivisors;
}

std::vector<float> read_table(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.type != GgmlType::kF32 || tensor.shape.size() != 1 ||
      tensor.shape[0] > kLargestTable) {
    throw Error(Fault::kData, "{}: {}: wanted a list of F32, of {} at most", file.where(),
                tensor.name, kLargestTable);
  }
  std::vector<float> values(static_cast<std::size_t>(tensor.shape[0]));
  file.file().read_at(file.offset(tensor), std::as_writable_bytes(std::span(values)));
  return values;
}

GgufDescription description_of(const GgufFile& file) {
  GgufDescription description;
  const GgufValue* architecture = file.header().find("general.architecture");
  if (architecture == nullptr || architecture->kind != GgufKind::kString)
    throw Error(Fault::kData, "{}: general.architecture: got nothing, wanted a word", file.where());
  description.architecture = architecture->text;
  description.entries = file.header().entries;
  for (const GgufTensor& tensor : file.header().tensors) {
    if (is_table(tensor.name)) description.tables[tensor.name] = read_table(file, tensor);
    description.shapes[tensor.name] = tensor.shape;
  }
  return description;
}

// A vector may be a matrix of one row: llama.cpp does not tell them apart.
std::vector<std::int64_t> without_ones(const std::vector<std::int64_t>& shape) {
  return {std::ranges::find_if(shape, [](std::int64_t size) { return size != 1; }), shape.end()};
}

// Stacked matrices are one below the other, as are stacked vectors; a vector may be a matrix of one
// row.
Shape matrix_shape(const GgufTensor& tensor, bool vectors) {
  const std::vector<std::int64_t>& shape = tensor.shape;
  if (!vectors && shape.size() == 1) return Shape{1, shape[0]};
  if (vectors && shape.size() == 2) return Shape{shape[0] * shape[1]};
  return shape.size() < 3 ? Shape(shape) : Shape{shape[0] * shape[1], shape[2]};
}

// The rows that a run of a region touches: [first, last).
struct Rows {
  std::int64_t columns, first, last;

  explicit Rows(const TensorRun& run)
      : columns(run.extent.ndim() > 1 ? run.extent[1] : 1),
        first(run.start[0] + run.begin / columns),
        last(run.start[0] + (run.end + columns - 1) / columns) {}
};

// Puts the part of `row` that the run touches into `dst`, which holds the run. `values`: the row,
// whole.
void put_row(const float* values, std::int64_t row, const TensorRun& run, DType dtype,
             std::byte* dst) {
  const std::int64_t columns = Rows(run).columns;
  const std::int64_t region = (row - run.start[0]) * columns;  // its first element there
  const std::int64_t from = std::max(run.begin, region);
  const std::int64_t to = std::min(run.end, region + columns);
  const std::int64_t first_column = run.start.ndim() > 1 ? run.start[1] : 0;
  convert_values(reinterpret_cast<const std::byte*>(values + first_column + from - region),
                 DType::kF32, dst + (from - run.begin) * size_bytes(dtype), dtype, to - from);
}

// Calls change() for each row, if its columns are in another order in a file.
void for_each_row(std::span<float> values, std::int64_t columns,
                  const std::optional<TiledHeads>& heads,
                  void (*change)(const TiledHeads&, std::span<float>)) {
  if (!heads) return;
  for (std::int64_t row = 0; row < std::ssize(values); row += columns) {
    change(*heads,
           values.subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(columns)));
  }
}

// Of layers that predict later tokens, which are after those of the model.
bool is_of_later_layer(const std::string& name, std::int64_t layers) {
  if (!name.starts_with("blk.")) return false;
  std::int64_t layer = 0;
  const auto parsed = std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return parsed.ec == std::errc() && layer >= layers;
}

}  // namespace

GgufSource::GgufSource(const std::filesystem::path& path) : file_(path) {
  const GgufDescription description = description_of(file_);
  architecture_ = gguf_architecture(description.architecture, where());
  model_ = gguf_model(description, where());
  architecture_.joint_key_value = description.shapes.contains("blk.0.attn_kv_b.weight");
  architecture_.joint_delta_input = description.shapes.contains("blk.0.ssm_in.weight");
  find_tensors();
  decide_head();
}

const std::string& GgufSource::family() const {
  const bool sigmoids = model_.experts && model_.experts->score == ScoreKind::kSigmoid;
  if (sigmoids && !architecture_.family_of_sigmoids.empty())
    return architecture_.family_of_sigmoids;
  const bool shared = model_.experts && model_.experts->shared_ffn_hidden != 0;
  if (shared && !architecture_.family_of_shared.empty()) return architecture_.family_of_shared;
  const bool other = model_.experts && !architecture_.family_of_experts.empty();
  return other ? architecture_.family_of_experts : architecture_.families.front();
}

void GgufSource::find_tensors() {
  std::map<std::string, const GgufTensor*> stored;
  for (const GgufTensor& tensor : file_.header().tensors) stored[tensor.name] = &tensor;
  const auto wanted = gguf_shapes(architecture_, model_);
  std::vector<std::string> missing, surplus;
  for (const auto& [name, shape] : wanted) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      missing.push_back(name);
    } else if (without_ones(found->second->shape) != without_ones(shape)) {
      throw Error(Fault::kData, "{}: {} is [{}], the keys say [{}]", where(), name,
                  fmt::join(found->second->shape, ", "), fmt::join(shape, ", "));
    }
  }
  for (const auto& [name, tensor] : stored) {
    if (architecture_.has_later_layers && is_of_later_layer(name, model_.layers)) continue;
    if (!wanted.contains(name) && !is_table(name)) surplus.push_back(name);
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: missing tensors ({}): {}; is the copy complete?", where(),
                missing.size(), listed(missing));
  }
  if (!surplus.empty()) {
    throw Error(Fault::kData, "{}: tensors that are not of a model of architecture {} ({}): {}",
                where(), architecture_.name, surplus.size(), listed(surplus));
  }
  std::map<std::string, Shape> shapes;
  for (const CanonicalShape& one : canonical_tensors(model_)) shapes[one.name] = one.shape;
  for (GgufPlace& place : gguf_places(architecture_, model_)) {
    const auto shape = shapes.find(place.canonical);
    if (shape == shapes.end()) continue;
    const GgufTensor& tensor = *stored.at(place.name);
    if (is_quantized(tensor.type) && shape->second.ndim() == 1) {
      throw Error(Fault::kData, "{}: {} is {}, wanted F32, F16 or BF16, as it is a vector", where(),
                  tensor.name, name(tensor.type));
    }
    const GgufTensor* values = place.values.empty() ? nullptr : stored.at(place.values);
    const bool differ = values != nullptr && values->type != tensor.type;
    const bool decoded =
        is_quantized(tensor.type) || place.transform != GgufTransform::kNone || differ;
    const DType dtype = decoded ? DType::kF32 : plain_dtype(tensor.type);
    const std::string canonical = place.canonical;
    places_[canonical] = {std::move(place), {canonical, dtype, shape->second}, &tensor, values};
  }
}

void GgufSource::decide_head() {
  const auto head = places_.find(kHead);
  if (head == places_.end()) return;
  const GgufTensor& own = *head->second.stored;
  const GgufTensor& table = *places_.at(kTable).stored;
  if (own.type != table.type) return;
  const auto hash = [&](const GgufTensor& tensor) {
    return hash_of_bytes(file_.file(), file_.offset(tensor), tensor.bytes());
  };
  if (hash(own) != hash(table)) return;
  model_.tied = true;
  places_.erase(head);
}

std::vector<CanonicalTensor> GgufSource::tensors(TensorKind kind) const {
  std::vector<CanonicalTensor> result;
  if (kind != TensorKind::kWeight) return result;
  for (const auto& [name, place] : places_) result.push_back(place.tensor);
  return result;
}

void GgufSource::read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) {
  const Place& place = places_.at(name);
  if (run.begin >= run.end) return;
  if (place.values != nullptr) return read_heads(place, run, dtype, dst);
  const bool in_order =
      rows_in_order(place.place, place.tensor.shape[0]) == place.tensor.shape[0] &&
      !place.place.tiled_columns;
  const bool as_stored = in_order && place.place.transform == GgufTransform::kNone &&
                         !is_quantized(place.stored->type);
  if (!as_stored) return read_rows(place, run, dtype, dst);
  TensorRun moved = run;
  moved.start[0] += place.place.first;
  read_run({.file = file_.file(),
            .offset = file_.offset(*place.stored),
            .dtype = plain_dtype(place.stored->type),
            .shape = matrix_shape(*place.stored, run.extent.ndim() == 1)},
           moved, dtype, dst);
}

std::optional<CodeFormat> GgufSource::stored_format(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end() || found->second.tensor.shape.ndim() != 2 ||
      found->second.values != nullptr)
    return std::nullopt;
  const GgmlType type = found->second.stored->type;
  const std::optional<TiledHeads>& columns = found->second.place.tiled_columns;
  // Blocks of the file with columns of several heads are no blocks of the canonical tensor.
  if (columns && columns->size % block_values(type) != 0) return std::nullopt;
  return has_codes(type) ? std::optional(code_format_of(type)) : std::nullopt;
}

void GgufSource::read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) {
  const Place& place = places_.at(name);
  const GgufTensor& stored = *place.stored;
  const std::int64_t values = block_values(stored.type);
  const std::int64_t bytes = block_bytes(stored.type);
  const std::int64_t first = stored_row(place.place, row.row) * (stored.shape.back() / values);
  const std::optional<TiledHeads>& heads = place.place.tiled_columns;
  std::vector<std::byte> raw(static_cast<std::size_t>(row.columns / values * bytes));
  // Columns of a head are next to each other in the file, else all are.
  for (std::int64_t column = row.column, end = 0; column < row.column + row.columns; column = end) {
    end = row.column + row.columns;
    if (heads) end = std::min(end, (column / heads->size + 1) * heads->size);
    const std::int64_t from = first + (heads ? heads->stored(column) : column) / values;
    file_.file().read_at(
        file_.offset(stored) + from * bytes,
        std::span(raw).subspan(static_cast<std::size_t>((column - row.column) / values * bytes),
                               static_cast<std::size_t>((end - column) / values * bytes)));
  }
  split_blocks(stored.type, raw.data(), row.columns / values, to);
}

// Whole stored rows are read, of a head at a time where they are in another order or apart, and the
// requested part of each is copied to its place.
void GgufSource::read_rows(const Place& place, const TensorRun& run, DType dtype,
                           std::byte* dst) const {
  const GgufTensor& stored = *place.stored;
  const std::int64_t columns = run.extent.ndim() > 1 ? stored.shape.back() : 1;
  const std::int64_t row_bytes = columns / block_values(stored.type) * block_bytes(stored.type);
  const std::int64_t in_order = rows_in_order(place.place, place.tensor.shape[0]);
  const bool apart = place.place.turned == 0 && in_order < place.tensor.shape[0];
  const std::int64_t unit = apart ? in_order : place.place.turned == 0 ? 1 : place.place.head;
  const std::int64_t block =
      apart ? unit : std::max<std::int64_t>(1, kReadBytes / (row_bytes * unit)) * unit;
  const std::string where = fmt::format("{}: {}", file_.where(), stored.name);
  const Rows rows(run);
  std::vector<std::byte> raw;
  std::vector<float> values(static_cast<std::size_t>(columns));
  for (std::int64_t begin = rows.first / unit * unit; begin < rows.last; begin += block) {
    const std::int64_t end =
        std::min({begin + block, (rows.last + unit - 1) / unit * unit, place.tensor.shape[0]});
    raw.resize(static_cast<std::size_t>((end - begin) * row_bytes));
    // The first stored row.
    const std::int64_t at = apart ? stored_row(place.place, begin) : place.place.first + begin;
    file_.file().read_at(file_.offset(stored) + at * row_bytes, raw);
    for (std::int64_t row = std::max(begin, rows.first); row < std::min(end, rows.last); ++row) {
      decode_blocks(stored.type, raw.data() + (stored_row(place.place, row) - at) * row_bytes,
                    columns, values.data());
      from_stored(place.place.transform, values, where);
      if (place.place.tiled_columns) untile_columns(*place.place.tiled_columns, values);
      put_row(values.data(), row, run, dtype, dst);
    }
  }
}

// The rows of `stored` from number `first_row` on: as many as fill `values`.
void GgufSource::decode(const GgufTensor& stored, std::int64_t first_row,
                        std::span<float> values) const {
  const std::int64_t columns = stored.shape.back();
  const std::int64_t row_bytes = columns / block_values(stored.type) * block_bytes(stored.type);
  std::vector<std::byte> raw(static_cast<std::size_t>(std::ssize(values) / columns * row_bytes));
  file_.file().read_at(file_.offset(stored) + first_row * row_bytes, raw);
  decode_blocks(stored.type, raw.data(), std::ssize(values), values.data());
}

// A head at a time: its keys [columns, own] and values [value, columns] become rows of
// [own + value, columns].
void GgufSource::read_heads(const Place& place, const TensorRun& run, DType dtype,
                            std::byte* dst) const {
  const std::int64_t head = place.place.head;
  const std::int64_t own = place.place.own;
  const std::int64_t columns = place.tensor.shape[1];
  const Rows rows(run);
  std::vector<float> keys(static_cast<std::size_t>(columns * own));
  std::vector<float> values(static_cast<std::size_t>(head * columns));
  for (std::int64_t number = rows.first / head; number * head < rows.last; ++number) {
    decode(*place.stored, number * columns, keys);
    for (std::int64_t i = 0; i < own; ++i) {
      for (std::int64_t j = 0; j < columns; ++j)
        values[static_cast<std::size_t>(i * columns + j)] =
            keys[static_cast<std::size_t>(j * own + i)];
    }
    decode(*place.values, number * (head - own),
           std::span(values).subspan(static_cast<std::size_t>(own * columns)));
    const std::int64_t last = std::min((number + 1) * head, rows.last);
    for (std::int64_t row = std::max(number * head, rows.first); row < last; ++row)
      put_row(values.data() + (row - number * head) * columns, row, run, dtype, dst);
  }
}

std::vector<CanonicalTensor> AsGgufHolds::tensors(TensorKind kind) const {
  std::vector<CanonicalTensor> tensors = source_.tensors(kind);
  for (CanonicalTensor& tensor : tensors) tensor.dtype = DType::kF32;
  return tensors;
}

void AsGgufHolds::read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) {
  if (run.begin >= run.end) return;
  const GgmlType type = file_.stored_type(name);
  const GgufPlace& place = file_.place(name);
  PITON_ASSERT(run.extent.ndim() == 1 || run.extent[1] % block_values(type) == 0, "{}", name);
  // Whole rows, so whole blocks, of which the run is a part.
  const Rows rows(run);
  PITON_ASSERT(!place.tiled_columns || rows.columns % place.tiled_columns->all() == 0, "{}", name);
  const std::int64_t step = std::max<std::int64_t>(1, kReadBytes / (rows.columns * 4));
  std::vector<float> values;
  std::vector<std::byte> blocks;
  for (std::int64_t row = rows.first; row < rows.last; row += step) {
    const std::int64_t begin = (row - run.start[0]) * rows.columns;
    const std::int64_t end = (std::min(row + step, rows.last) - run.start[0]) * rows.columns;
    values.resize(static_cast<std::size_t>(end - begin));
    source_.read(name, {run.start, run.extent, begin, end}, DType::kF32,
                 reinterpret_cast<std::byte*>(values.data()));
    to_stored(place.transform, values);
    for_each_row(values, rows.columns, place.tiled_columns, tile_columns);
    blocks.resize(values.size() / static_cast<std::size_t>(block_values(type)) *
                  static_cast<std::size_t>(block_bytes(type)));
    encode_blocks(type, values, blocks.data(), where());
    decode_blocks(type, blocks.data(), end - begin, values.data());
    for_each_row(values, rows.columns, place.tiled_columns, untile_columns);
    from_stored(place.transform, values, fmt::format("{}: {}", where(), name));
    const std::int64_t from = std::max(run.begin, begin);
    const std::int64_t to = std::min(run.end, end);
    convert_values(reinterpret_cast<const std::byte*>(values.data() + (from - begin)), DType::kF32,
                   dst + (from - run.begin) * size_bytes(dtype), dtype, to - from);
  }
}

}  // namespace piton
