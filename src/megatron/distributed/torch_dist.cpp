#include "megatron/distributed/torch_dist.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/links.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "megatron/distributed/torch_dist_names.h"
#include "megatron/format/flat_boxes.h"
#include "megatron/format/named_tensors.h"
#include "megatron/format/names.h"
#include "megatron/format/optimizer_groups.h"
#include "pickle/pickle.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Kind = PickleValue::Kind;

// Limit for .metadata: a box takes 300 bytes.
constexpr std::int64_t kMostMetadata = std::int64_t{256} << 20;
// Limit for pairs of boxes that are looked at; boxes of a layer are few.
constexpr std::int64_t kMostPairs = 100'000'000;
constexpr std::string_view kBucket = ".bucket_idx_";
constexpr std::string_view kFilters = ".conv1d.weight";
constexpr std::string_view kPartsOfFilters = ".conv1d.weight.";
constexpr const char* kBuckets = "optimizer.distributed.dp_group_idx_";

std::string_view type_of(std::string_view torch_name) {
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {"torch.float32", "F32"}, {"torch.float", "F32"}, {"torch.bfloat16", "BF16"},
      {"torch.float16", "F16"}, {"torch.half", "F16"},  {"torch.float64", "F64"},
      {"torch.double", "F64"},  {"torch.int64", "I64"}, {"torch.int32", "I32"},
      {"torch.uint8", "U8"},    {"torch.bool", "BOOL"},
  };
  for (const auto& [known, type] : kTypes) {
    if (known == torch_name) return type;
  }
  return torch_name;
}

std::vector<std::int64_t> sizes_of(const PickleValue* value, const std::string& where,
                                   const std::string& name) {
  std::vector<std::int64_t> sizes;
  bool good = value != nullptr && value->kind == Kind::kList;
  if (good) {
    for (const PickleValue* item : value->items) {
      good = good && item->kind == Kind::kInt && item->integer >= 0;
      sizes.push_back(item->integer);
    }
  }
  if (!good) throw Error(Fault::kData, "{}: {} has no sizes", where, name);
  return sizes;
}

std::int64_t volume(const std::vector<std::int64_t>& sizes, const std::string& where,
                    const std::string& name) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 1 || __builtin_mul_overflow(elements, size, &elements)) {
      throw Error(Fault::kData, "{}: {} is of shape [{}], wanted sizes that memory holds", where,
                  name, fmt::join(sizes, ", "));
    }
  }
  return elements;
}

// Place i of a box, row by row, in the dims before those of a weight.
std::vector<std::int64_t> place_in(const std::vector<std::int64_t>& start,
                                   const std::vector<std::int64_t>& extent, std::int64_t i) {
  std::vector<std::int64_t> place(extent.size());
  for (std::size_t dim = extent.size(); dim-- > 0; i /= extent[dim])
    place[dim] = start[dim] + i % extent[dim];
  return place;
}

}  // namespace

bool has_torch_dist(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kTorchDistMetadata, ignored) ||
         (fs::is_regular_file(folder / kTorchDistCommon, ignored) &&
          fs::is_regular_file(folder / kTorchDistBackend, ignored));
}

TorchDist::TorchDist(const fs::path& folder) : folder_(folder) {
  check_backend();
  std::error_code ignored;
  if (fs::exists(folder_ / kTorchDistCommon, ignored))
    common_ = std::make_unique<TorchFile>(folder_ / kTorchDistCommon);
  const std::string where = (folder_ / kTorchDistMetadata).string();
  const PickleDocument metadata =
      read_pickle(read_regular_file(folder_ / kTorchDistMetadata, kMostMetadata), where);
  read_metadata(metadata.root());
  for (const auto& [name, tensor] : stored_) {
    if (!is_state(name) && !is_ignored_by_megatron(name)) add(name, tensor, weights_);
    has_optimizer_ = has_optimizer_ || name.find("optim") != name.npos;
  }
  const bool narrow = std::ranges::any_of(
      weights_, [](const auto& one) { return size_bytes(one.second.dtype) == 2; });
  for (const auto& [name, tensor] : stored_) {
    const std::string weight = weight_of_master(name);
    if (narrow && !weight.empty()) add_state(weight, tensor, masters_);
  }
  if (weights_.empty()) throw Error(Fault::kData, "{}: holds no weights", where);
  std::erase_if(stored_, [](const auto& one) { return !is_state(one.first); });
}

void TorchDist::check_backend() const {
  const fs::path path = folder_ / kTorchDistBackend;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const auto json = read_json_or_discarded<nlohmann::json>(read_regular_file(path, 65536));
  if (!json.is_object())
    throw Error(Fault::kData, "{}: not JSON; is the copy complete?", path.string());
  const std::string backend = json.value("sharded_backend", nlohmann::json()).dump();
  if (backend != "\"torch_dist\"") {
    throw Error(Fault::kData,
                "{}: sharded_backend: got {}, wanted \"torch_dist\"; save it again with "
                "--ckpt-format torch_dist or torch",
                path.string(), backend);
  }
}

std::string TorchDist::facts_file() const {
  return common_ ? common_->file().path().string() : (folder_ / kTorchDistMetadata).string();
}

std::string TorchDist::file_of(int, int) const { return (folder_ / kTorchDistMetadata).string(); }

void TorchDist::read_metadata(const PickleValue& metadata) {
  const std::string where = file_of(0, 0);
  const PickleValue* tensors = metadata.find("state_dict_metadata");
  const PickleValue* places = metadata.find("storage_data");
  if (tensors == nullptr || tensors->kind != Kind::kDict || places == nullptr ||
      places->kind != Kind::kDict) {
    throw Error(Fault::kData, "{}: not the metadata of torch.distributed.checkpoint", where);
  }
  for (const auto& [name, value] : tensors->pairs) {
    // Bytes of other objects have no chunks.
    if (name->kind == Kind::kText && value->find("chunks") != nullptr)
      read_tensor(name->text, *value);
  }
  for (const auto& [index, place] : places->pairs) read_place(*index, *place);
}

void TorchDist::read_tensor(const std::string& name, const PickleValue& value) {
  const std::string where = file_of(0, 0);
  Tensor& tensor = stored_[name];
  tensor.shape = sizes_of(value.find("size"), where, name);
  const PickleValue* properties = value.find("properties");
  const PickleValue* state = properties == nullptr ? nullptr : properties->state;
  const PickleValue* dtype = state == nullptr             ? nullptr
                             : state->kind == Kind::kDict ? state->find("dtype")
                             : state->kind != Kind::kList ? nullptr
                             : state->items.empty()       ? nullptr
                                                          : state->items[0];
  if (dtype == nullptr || dtype->kind != Kind::kGlobal)
    throw Error(Fault::kData, "{}: {} has no type", where, name);
  tensor.dtype = type_of(dtype->text);
  const PickleValue* chunks = value.find("chunks");
  if (chunks->kind != Kind::kList)
    throw Error(Fault::kData, "{}: {} has no list of chunks", where, name);
  for (const PickleValue* chunk : chunks->items) {
    Box box{.start = sizes_of(chunk->find("offsets"), where, name),
            .extent = sizes_of(chunk->find("sizes"), where, name)};
    if (box.start.size() != tensor.shape.size() || box.extent.size() != tensor.shape.size())
      throw Error(Fault::kData, "{}: {} has chunks of another number of dims", where, name);
    const auto [known, fresh] = tensor.boxes.try_emplace(box.start, box);
    if (!fresh && known->second.extent != box.extent) {
      throw Error(Fault::kData, "{}: {} has two chunks at [{}]", where, name,
                  fmt::join(box.start, ", "));
    }
  }
}

void TorchDist::read_place(const PickleValue& index, const PickleValue& place) {
  const std::string where = file_of(0, 0);
  const PickleValue* name = index.find("fqn");
  if (name == nullptr || name->kind != Kind::kText)
    throw Error(Fault::kData, "{}: has a place of no tensor", where);
  const auto tensor = stored_.find(name->text);
  const bool object = tensor == stored_.end();
  // Bytes of other objects.
  if (object && name->text.find(kBuckets) == name->text.npos) return;
  if (object) {
    Box& bytes = objects_[name->text];
    return set_place(name->text, place, bytes);
  }
  const auto box = tensor->second.boxes.find(sizes_of(index.find("offset"), where, name->text));
  if (box == tensor->second.boxes.end())
    throw Error(Fault::kData, "{}: {} has a place of no chunk", where, name->text);
  set_place(name->text, place, box->second);
}

void TorchDist::set_place(const std::string& name, const PickleValue& place, Box& box) {
  const std::string where = file_of(0, 0);
  const PickleValue* file = place.find("relative_path");
  const PickleValue* offset = place.find("offset");
  const PickleValue* length = place.find("length");
  const PickleValue* transforms = place.find("transform_descriptors");
  if (transforms != nullptr && transforms->kind == Kind::kList && !transforms->items.empty()) {
    throw Error(Fault::kData, "{}: {} is compressed, wanted chunks as torch.save writes them",
                where, name);
  }
  if (file == nullptr || file->kind != Kind::kText || offset == nullptr ||
      offset->kind != Kind::kInt || length == nullptr || length->kind != Kind::kInt) {
    throw Error(Fault::kData, "{}: {} has a chunk without file, offset and length", where, name);
  }
  box.file = file->text;
  box.offset = offset->integer;
  box.length = length->integer;
}

// Each element is in one box: as many elements in boxes as in the tensor, and no two overlap.
void TorchDist::check_boxes(const std::string& name, const Tensor& tensor) const {
  const std::string where = file_of(0, 0);
  const std::int64_t wanted = volume(tensor.shape, where, name);
  std::int64_t elements = 0;
  std::int64_t pairs = 0;
  for (auto box = tensor.boxes.begin(); box != tensor.boxes.end(); ++box) {
    const Sizes& start = box->second.start;
    const Sizes& extent = box->second.extent;
    for (std::size_t dim = 0; dim < start.size(); ++dim) {
      if (extent[dim] > tensor.shape[dim] || start[dim] > tensor.shape[dim] - extent[dim]) {
        throw Error(Fault::kData, "{}: {} has a chunk beyond its shape [{}]", where, name,
                    fmt::join(tensor.shape, ", "));
      }
    }
    elements += volume(extent, where, name);
    // Ordered by start: those behind begin at the same place of the first dim, or later.
    for (auto other = std::next(box);
         other != tensor.boxes.end() && other->second.start[0] < start[0] + extent[0]; ++other) {
      bool apart = false;
      for (std::size_t dim = 0; dim < start.size(); ++dim) {
        apart = apart || other->second.start[dim] >= start[dim] + extent[dim] ||
                start[dim] >= other->second.start[dim] + other->second.extent[dim];
      }
      if (!apart || ++pairs > kMostPairs) {
        throw Error(Fault::kData, "{}: {} has {}", where, name,
                    apart ? "more chunks than this reads" : "chunks that overlap");
      }
    }
  }
  if (elements != wanted) {
    throw Error(Fault::kData, "{}: {} has chunks of {} elements, wanted {}; is the copy complete?",
                where, name, elements, wanted);
  }
}

const RegularFile& TorchDist::file(const std::string& name) {
  std::unique_ptr<RegularFile>& file = files_[name];
  if (!file) {
    if (fs::path(name).filename() != fs::path(name) || name == "." || name == "..") {
      throw Error(Fault::kData, "{}: names the file {}, wanted one of its folder", file_of(0, 0),
                  name);
    }
    refuse_link_out(folder_ / name, folder_);
    file = std::make_unique<RegularFile>(folder_ / name);
  }
  return *file;
}

// The file of the box, which has its bytes.
const RegularFile& TorchDist::bytes_of(const std::string& name, const Box& box) {
  const std::string where = file_of(0, 0);
  if (box.offset < 0 || box.length < 1)
    throw Error(Fault::kData, "{}: {} has a chunk that no file holds", where, name);
  const RegularFile& bytes = file(box.file);
  if (box.length > bytes.size_bytes() || box.offset > bytes.size_bytes() - box.length) {
    throw Error(Fault::kData,
                "{}: {} should be at bytes {} to {}, but the file has {}; is the copy complete?",
                bytes.path().string(), name, box.offset, box.offset + box.length,
                bytes.size_bytes());
  }
  return bytes;
}

// Where the first element of the box is in its file.
TorchDist::Place TorchDist::open_box(const std::string& name, const Tensor& tensor,
                                     const Box& box) {
  const RegularFile& bytes = bytes_of(name, box);
  const TorchFile saved(FilePart(bytes, box.offset, box.length));
  if (saved.root().kind != Kind::kTensor)
    throw Error(Fault::kData, "{}: {} is no tensor there", bytes.path().string(), name);
  const TorchTensor stored = saved.tensor(saved.root(), name);
  if (stored.dtype != tensor.dtype || stored.shape != box.extent || !stored.contiguous()) {
    throw Error(Fault::kData, "{}: {} is {} of shape [{}] there, wanted {} of [{}], row-major",
                bytes.path().string(), name, stored.dtype, fmt::join(stored.shape, ", "),
                tensor.dtype, fmt::join(box.extent, ", "));
  }
  return {&bytes, stored.offset};
}

// Opens each box, and adds the tensor or those of its layers.
void TorchDist::add(const std::string& name, const Tensor& tensor, BoxedTensors& to) {
  const StackedName stack(name);
  const std::size_t first = stack.dims();  // dim of the rows
  const std::optional<DType> dtype = dtype_of_safetensors(tensor.dtype);
  const bool weight = dtype && (*dtype == DType::kF32 || *dtype == DType::kBF16 ||
                                *dtype == DType::kF16 || *dtype == DType::kF64);
  const std::size_t dims = tensor.shape.size();
  // [rows, 1, columns] is that of filters.
  const bool filters = dims == first + 3 && tensor.shape[first + 1] == 1;
  if (!weight || dims < first + 1 || (dims > first + 2 && !filters)) {
    throw Error(Fault::kData, "{}: {} is of type {} and shape [{}], wanted the weights of a layer",
                file_of(0, 0), name, tensor.dtype, fmt::join(tensor.shape, ", "));
  }
  check_boxes(name, tensor);
  std::vector<Place> places;  // all bytes are there before memory is taken for as many layers
  for (const auto& [start, box] : tensor.boxes) places.push_back(open_box(name, tensor, box));
  const bool matrix = dims >= first + 2;
  auto bytes = places.begin();
  for (const auto& [start, box] : tensor.boxes) {
    const std::int64_t rows = box.extent[first];
    const std::int64_t columns = matrix ? box.extent.back() : 1;
    const Sizes extent(box.extent.begin(), box.extent.begin() + static_cast<std::ptrdiff_t>(first));
    std::int64_t weights = 1;
    for (const std::int64_t size : extent) weights *= size;
    for (std::int64_t i = 0; i < weights; ++i) {
      BoxedTensor& one = to[stack.at(place_in(start, extent, i))];
      one.dtype = *dtype;
      one.rows = tensor.shape[first];
      one.columns = matrix ? tensor.shape.back() : 1;
      one.boxes.push_back({.file = bytes->file,
                           .offset = bytes->offset + i * rows * columns * size_bytes(*dtype),
                           .row = start[first],
                           .rows = rows,
                           .column = matrix ? start.back() : 0,
                           .columns = columns,
                           .stride = columns});
    }
    ++bytes;
  }
}

// The weight of that name; of stacked ones the first. Null where there is none.
const BoxedTensor* TorchDist::weight_named(const std::string& name) const {
  const StackedName stack(name);
  const auto found = weights_.find(stack.at(Sizes(stack.dims(), 0)));
  return found == weights_.end() ? nullptr : &found->second;
}

// A state of the weight `name`, which has its shape or is in flat pieces.
void TorchDist::add_state(const std::string& name, const Tensor& tensor, BoxedTensors& to) {
  const BoxedTensor* weight = weight_named(name);
  const bool filters = name.ends_with(kFilters) || name.find(kPartsOfFilters) != name.npos;
  const std::size_t own = filters ? 3 : weight != nullptr && weight->columns > 1 ? 2 : 1;
  const std::size_t dims = StackedName(name).dims() + own;
  if (weight != nullptr && tensor.shape.size() == dims + 1) {
    add_flat(name, tensor, *weight, to);
  } else {
    add(name, tensor, to);
  }
}

void TorchDist::add_flat(const std::string& name, const Tensor& tensor, const BoxedTensor& weight,
                         BoxedTensors& to) {
  const StackedName stack(name);
  const std::size_t first = stack.dims();
  const bool matrix = weight.columns > 1;
  const std::int64_t rows = weight.rows / std::max<std::int64_t>(tensor.shape[first], 1);
  const std::int64_t columns =
      matrix ? weight.columns / std::max<std::int64_t>(tensor.shape[first + 1], 1) : 1;
  const std::optional<DType> dtype = dtype_of_safetensors(tensor.dtype);
  if (dtype != DType::kF32 || rows * tensor.shape[first] != weight.rows ||
      (matrix && columns * tensor.shape[first + 1] != weight.columns) ||
      tensor.shape.back() != rows * columns) {
    throw Error(Fault::kData,
                "{}: the optimizer's {} is {} of shape [{}], wanted flat pieces of [{}, {}] in F32",
                file_of(0, 0), name, tensor.dtype, fmt::join(tensor.shape, ", "), weight.rows,
                weight.columns);
  }
  check_boxes(name, tensor);
  for (const auto& [start, box] : tensor.boxes) {
    if (std::any_of(box.extent.begin(), box.extent.end() - 1, [](auto size) { return size != 1; }))
      throw Error(Fault::kData, "{}: {} has a chunk of several tiles", file_of(0, 0), name);
    const Place bytes = open_box(name, tensor, box);
    BoxedTensor& whole =
        to[stack.at(Sizes(start.begin(), start.begin() + static_cast<std::ptrdiff_t>(first)))];
    whole.rows = weight.rows;
    whole.columns = weight.columns;
    const FlatTile tile{.row = start[first] * rows,
                        .column = matrix ? start[first + 1] * columns : 0,
                        .columns = columns};
    add_flat_boxes({*bytes.file, bytes.offset, start.back(), start.back() + box.extent.back()},
                   tile, whole);
  }
}

BoxedTensors TorchDist::keyed(const BoxedTensors& tensors) const {
  NamedTensors named(file_of(0, 0));
  for (const auto& one : tensors) named.add(one.first, [&] { return one.second; });
  return named.take();
}

BoxedTensors TorchDist::tensors(int, int, int) const { return keyed(weights_); }

BoxedTensors TorchDist::masters(int, int, int) { return keyed(masters_); }

BoxedTensors TorchDist::states(const char* kind) {
  BoxedTensors tensors;
  for (const auto& [name, tensor] : stored_) {
    const std::string weight = weight_of_state(name, kind);
    if (!weight.empty()) add_state(weight, tensor, tensors);
  }
  return keyed(tensors);
}

BoxedMoments TorchDist::moments(int, int, int) {
  BoxedMoments moments{.first = states("exp_avg"), .second = states("exp_avg_sq")};
  if (moments.first.empty() || moments.second.empty()) {
    throw Error(Fault::kData, "{}: has no {}", file_of(0, 0),
                moments.first.empty() ? "optimizer.state.exp_avg" : "optimizer.state.exp_avg_sq");
  }
  return moments;
}

OptimizerCounts TorchDist::optimizer_counts() {
  OptimizerCounts counts;
  const PickleValue* optimizer = facts().find("optimizer");
  if (optimizer != nullptr) add_counts(*common_, *optimizer, counts);
  for (const auto& [name, box] : objects_) {
    if (name.find(".optimizer") == name.npos && name.find(".grad_scaler") == name.npos) continue;
    const RegularFile& bytes = bytes_of(name, box);
    const TorchFile saved(FilePart(bytes, box.offset, box.length));
    add_counts(saved, saved.root(), counts);
    add_loss_scale(saved, saved.root(), counts);
  }
  return counts;
}

bool TorchDist::has_buckets() const {
  return std::ranges::any_of(
      stored_, [](const auto& one) { return one.first.find(kBuckets) != one.first.npos; });
}

std::vector<FlatVector> TorchDist::buckets(const BucketPlace& place, const char* kind) {
  const std::string begin = fmt::format("{}{}.gbuf_idx_{}.", kBuckets, place.rank, place.chunk);
  const std::string chained =
      place.optimizer ? fmt::format("chained_{}.", *place.optimizer) : std::string();
  const std::string end = fmt::format(".{}", kind);
  std::map<std::int64_t, FlatVector> vectors;  // by the number of the bucket
  for (const auto& [name, tensor] : stored_) {
    const std::size_t at = name.find(begin);
    const std::size_t bucket = name.find(kBucket);
    if (at == name.npos || bucket == name.npos || !name.ends_with(end)) continue;
    if (!name.starts_with(chained)) continue;
    const std::int64_t number = std::atoll(name.c_str() + bucket + kBucket.size());
    if (tensor.dtype != "F32" || tensor.shape.size() != 1 || vectors.contains(number)) {
      throw Error(Fault::kData, "{}: {} is no vector of fp32, or one of several", file_of(0, 0),
                  name);
    }
    check_boxes(name, tensor);
    FlatVector& vector = vectors[number];
    for (const auto& [start, box] : tensor.boxes) {
      const Place bytes = open_box(name, tensor, box);
      vector.parts.push_back({bytes.file, bytes.offset, start[0], start[0] + box.extent[0]});
    }
  }
  std::vector<FlatVector> result;
  for (auto& [number, vector] : vectors) result.push_back(std::move(vector));
  return result;
}

}  // namespace piton
