#include "gguf/gguf_writer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "base/error.h"
#include "checkpoint/assembly.h"
#include "gguf/gguf_file.h"
#include "gguf/gguf_places.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

// Of type F32 always, as llama.cpp's tools write them.
constexpr const char* kPositionsName = "position_embd.weight";
constexpr const char* kRouterEnd = ".ffn_gate_inp.weight";
constexpr const char* kFilterEnds[] = {".ssm_conv1d.weight", ".shortconv.conv.weight"};

// A tensor of the file, and what it is made of.
struct Written {
  Assembly assembly;  // stacked matrices one below the other
  std::vector<std::int64_t> shape;
  GgmlType type = GgmlType::kF32;
  GgufTransform transform = GgufTransform::kNone;
  std::optional<TiledHeads> tiled_columns;
  bool of_latents = false;                    // keys or values of latent attention
  const std::vector<float>* table = nullptr;  // of the configuration: instead of the assembly
};

// Adds the rows of a place: a part for those that stay next to each other.
void add_parts(const GgufPlace& place, const std::string& canonical, const Shape& shape,
               Assembly& assembly) {
  const std::int64_t step = rows_in_order(place, shape[0]);
  for (std::int64_t row = 0; row < shape[0]; row += step) {
    AssemblyPart part{.name = canonical, .row = stored_row(place, row)};
    part.start.append(row);
    part.extent.append(step);
    if (shape.ndim() > 1) {
      part.start.append(0);
      part.extent.append(shape[1]);
    }
    assembly.parts.push_back(std::move(part));
  }
}

// Of latent attention: the keys of each head, turned, below one another.
Assembly keys_of_latents(const GgufPlace& place, const std::vector<std::int64_t>& dims) {
  const std::int64_t columns = dims[1];
  Assembly keys{.name = place.name,
                .shape = {dims[0] * columns, place.own},
                .transposed = true,
                .matrices = dims[0]};
  for (std::int64_t head = 0; head < dims[0]; ++head) {
    keys.parts.push_back({.name = place.canonical,
                          .start = {head * place.head, 0},
                          .extent = {place.own, columns},
                          .matrix = head});
  }
  return keys;
}

// The values of each head below one another.
Assembly values_of_latents(const GgufPlace& place, const std::vector<std::int64_t>& dims) {
  const std::int64_t width = dims[1];
  Assembly values{.name = place.values, .shape = {dims[0] * width, dims[2]}};
  for (std::int64_t head = 0; head < dims[0]; ++head) {
    values.parts.push_back({.name = place.canonical,
                            .start = {head * place.head + place.own, 0},
                            .extent = {width, dims[2]},
                            .row = head * width});
  }
  return values;
}

// The type of a source's tensors that are joined: that which holds all of them.
class SourceTypes {
 public:
  explicit SourceTypes(const TensorSource& source) {
    for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
      types_[one.name] = ggml_type_of(one.dtype);
  }

  GgmlType of(const Assembly& assembly) const {
    GgmlType type = types_.at(assembly.parts.front().name);
    for (const AssemblyPart& part : assembly.parts) {
      if (types_.at(part.name) != type) type = GgmlType::kF32;
    }
    return type;
  }

 private:
  std::map<std::string, GgmlType> types_;
};

GgmlType type_of(const Written& tensor, bool is_head, const SourceTypes& types,
                 std::optional<GgmlType> wanted, GgufWritten& written) {
  const Assembly& assembly = tensor.assembly;
  if (tensor.shape.size() == 1 || assembly.shape.ndim() == 1 || assembly.name == kPositionsName ||
      assembly.name.ends_with(kRouterEnd) || std::ranges::any_of(kFilterEnds, [&](const char* end) {
        return assembly.name.ends_with(end);
      }))
    return GgmlType::kF32;
  if (!wanted) return types.of(assembly);
  GgmlType type = *wanted;
  // Blocks of turned keys are not those of any matrix of the model.
  if (tensor.of_latents && is_quantized(type)) return GgmlType::kF16;
  if (type == GgmlType::kQ40 && is_head) type = GgmlType::kQ80;
  if ((type == GgmlType::kQ4K || type == GgmlType::kQ5K) && is_head) type = GgmlType::kQ6K;
  const bool k = is_quantized(type) && is_k_format(code_format_of(type));
  if (k && assembly.shape[1] % block_values(type) != 0) {
    type = GgmlType::kQ80;
    if (assembly.shape[1] % block_values(type) == 0)
      written.in_short_blocks.push_back(assembly.name);
  }
  if (assembly.shape[1] % block_values(type) != 0) {
    written.not_in_blocks.push_back(assembly.name);
    return GgmlType::kF16;
  }
  if (is_quantized(type)) ++written.quantized;
  return type;
}

std::vector<Written> tensors_of(const TensorSource& source, const ModelConfig& model,
                                const GgufDescription& description, std::optional<GgmlType> type,
                                GgufWritten& written) {
  const GgufArchitecture architecture = gguf_architecture(description.architecture, "");
  std::map<std::string, Shape> canonical;
  for (const CanonicalShape& one : canonical_tensors(model)) canonical[one.name] = one.shape;
  std::map<std::string, std::vector<std::int64_t>> shapes = gguf_shapes(architecture, model);
  const bool copies_head = model.tied && architecture.copies_head;
  if (copies_head) shapes[kGgufHead] = shapes.at(kGgufTable);
  std::vector<Written> tensors;
  for (const auto& [name, table] : description.tables) {
    tensors.push_back({.assembly = {.name = name, .shape = {std::ssize(table)}},
                       .shape = {std::ssize(table)},
                       .table = &table});
  }
  std::map<std::string, std::size_t> index;
  for (const GgufPlace& place : gguf_places(architecture, model)) {
    const auto shape = shapes.find(place.name);
    if (shape == shapes.end()) continue;  // a tied head
    if (!place.values.empty()) {
      const std::vector<std::int64_t>& values = shapes.at(place.values);
      tensors.push_back({.assembly = keys_of_latents(place, shape->second),
                         .shape = shape->second,
                         .of_latents = true});
      tensors.push_back(
          {.assembly = values_of_latents(place, values), .shape = values, .of_latents = true});
      continue;
    }
    const bool copy = place.name == kGgufHead && copies_head;
    const std::string own = copy ? "embedding.token.weight" : place.canonical;
    const auto [found, is_new] = index.try_emplace(place.name, tensors.size());
    if (is_new) {
      const std::vector<std::int64_t>& dims = shape->second;
      const Shape rows = place.vector         ? Shape{1, dims[0]}
                         : place.columns != 0 ? Shape{dims[0] * dims[1]}
                         : !place.stacked     ? Shape(dims)
                         : dims.size() == 2   ? Shape{dims[0] * dims[1]}
                                              : Shape{dims[0] * dims[1], dims[2]};
      tensors.push_back({.assembly = {.name = place.name, .shape = rows},
                         .shape = dims,
                         .transform = place.transform,
                         .tiled_columns = place.tiled_columns});
    }
    add_parts(place, own, canonical.at(own), tensors[found->second].assembly);
  }
  const SourceTypes types(source);
  for (Written& one : tensors) {
    if (one.table != nullptr) continue;
    const bool is_head =
        one.assembly.name == kGgufHead || (model.tied && one.assembly.name == kGgufTable);
    one.type = type_of(one, is_head, types, type, written);
  }
  return tensors;
}

class TensorWriter {
 public:
  TensorWriter(GgufWriter& out, TensorSource& source,
               const std::function<void(std::int64_t)>& wrote)
      : out_(out), source_(source), wrote_(wrote) {}

  void write(const std::vector<Written>& tensors, ThreadPool* threads) {
    std::vector<TypedAssembly> assemblies;
    std::vector<const Written*> assembled;
    for (const Written& one : tensors) {
      if (one.table != nullptr) {
        PITON_ASSERT(assembled.empty(), "{} is behind weights", one.assembly.name);
        append(std::as_bytes(std::span(*one.table)));
        continue;
      }
      assemblies.push_back({one.assembly, is_kept(one) ? plain_dtype(one.type) : DType::kF32});
      assembled.push_back(&one);
    }
    assemble(source_, assemblies, threads, [&](std::size_t i, std::span<const std::byte> bytes) {
      is_kept(*assembled[i]) ? append(bytes) : encode(*assembled[i], bytes);
    });
  }

 private:
  static bool is_kept(const Written& tensor) {
    return !is_quantized(tensor.type) && tensor.transform == GgufTransform::kNone &&
           !tensor.tiled_columns;
  }

  // The last row of `bytes` may be a part of one, whose other values are in the next bytes.
  void encode(const Written& tensor, std::span<const std::byte> bytes) {
    const std::size_t before = values_.size();
    values_.resize(before + bytes.size() / sizeof(float));
    std::memcpy(values_.data() + before, bytes.data(), bytes.size());
    const Shape& shape = tensor.assembly.shape;
    const auto columns = static_cast<std::size_t>(shape.ndim() > 1 ? shape[1] : 1);
    const std::span<float> whole = std::span(values_).first(values_.size() / columns * columns);
    to_stored(tensor.transform, whole);
    for (std::size_t row = 0; tensor.tiled_columns && row < whole.size(); row += columns)
      tile_columns(*tensor.tiled_columns, whole.subspan(row, columns));
    const std::int64_t blocks = std::ssize(whole) / block_values(tensor.type);
    encoded_.resize(static_cast<std::size_t>(blocks * block_bytes(tensor.type)));
    encode_blocks(tensor.type, whole, encoded_.data(),
                  fmt::format("{}: {}", source_.where(), tensor.assembly.name));
    append(encoded_);
    values_.erase(values_.begin(), values_.begin() + std::ssize(whole));
  }

  void append(std::span<const std::byte> bytes) {
    out_.append(bytes);
    if (wrote_) wrote_(static_cast<std::int64_t>(bytes.size()));
  }

  GgufWriter& out_;
  TensorSource& source_;
  const std::function<void(std::int64_t)>& wrote_;
  std::vector<float> values_;  // of rows that are not encoded yet
  std::vector<std::byte> encoded_;
};

}  // namespace

GgufWritten write_gguf(const std::filesystem::path& path, TensorSource& source,
                       const ModelConfig& model, const GgufDescription& description,
                       const GgufWriteOptions& options) {
  GgufWritten written;
  const std::vector<Written> tensors =
      tensors_of(source, model, description, options.type, written);
  GgufHeader header{.entries = options.entries};
  for (const auto* entries : {&description.entries, &options.vocabulary})
    header.entries.insert(header.entries.end(), entries->begin(), entries->end());
  for (const Written& one : tensors) {
    header.tensors.push_back({.name = one.assembly.name, .shape = one.shape, .type = one.type});
  }
  GgufWriter out(path, std::move(header));
  TensorWriter writer(out, source, options.wrote);
  writer.write(tensors, options.threads);
  out.commit();
  return written;
}

}  // namespace piton
