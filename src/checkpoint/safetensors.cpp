#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/files/lfs_pointer.h"
#include "base/json.h"
#include "checkpoint/safetensors_header.h"

namespace piton {
namespace {

struct TypeRow {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};

constexpr std::array<TypeRow, 22> kTypes{{
    {"BOOL", 8, std::nullopt},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, DType::kU8},
    {"I8", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"I32", 32, DType::kI32},
    {"U32", 32, std::nullopt},
    {"F32", 32, DType::kF32},
    {"C64", 64, std::nullopt},
    {"F64", 64, DType::kF64},
    {"I64", 64, DType::kI64},
    {"U64", 64, std::nullopt},
}};

const TypeRow* find_type(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// Bytes of the tensor; nullopt if the product overflows or is not a whole number of bytes.
std::optional<std::int64_t> size_of(const SafetensorsEntry& entry, int bits) {
  std::int64_t product = bits;
  bool empty = false;
  for (const std::int64_t size : entry.shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  if (empty) return 0;
  if (product % 8 != 0) return std::nullopt;
  return product / 8;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::size_t kHeaderMultiple = 64;

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const TypeRow& row : kTypes) {
    if (row.dtype == dtype) return row.name;
  }
  PITON_ASSERT(false, "no name for {}", name(dtype));
  return "";
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  const TypeRow* row = find_type(name);
  return row == nullptr ? std::nullopt : row->dtype;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> begin, std::int64_t file_bytes,
                                    const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Fault::kData, "{}: not a valid safetensors file: {}; is the copy complete?", where,
                what);
  };
  if (file_bytes < 8) refuse(fmt::format("got {} bytes, wanted at least 8", file_bytes));
  std::uint64_t length = 0;
  std::memcpy(&length, begin.data(), 8);
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    refuse(fmt::format("its first 8 bytes say a header of {} bytes, wanted at most {}", length,
                       kMaxHeaderBytes));
  }
  if (static_cast<std::int64_t>(length) > file_bytes - 8) {
    refuse(fmt::format("its header has {} bytes, the file only {} after its first 8", length,
                       file_bytes - 8));
  }
  PITON_ASSERT(begin.size() >= 8 + length, "{}: {} bytes", where, begin.size());
  const std::string_view text(reinterpret_cast<const char*>(begin.data()) + 8, length);
  if (text.empty() || text[0] != '{') refuse("its header does not begin with \"{\"");

  SafetensorsHeader header = read_header_json(text, where);
  header.data_begin = 8 + static_cast<std::int64_t>(length);
  const std::int64_t data_bytes = file_bytes - header.data_begin;
  for (const SafetensorsEntry& entry : header.entries) {
    const TypeRow* type = find_type(entry.dtype);
    if (type == nullptr) {
      refuse(fmt::format("tensor \"{}\" has the unknown type \"{}\"", entry.name, entry.dtype));
    }
    const std::optional<std::int64_t> size = size_of(entry, type->bits);
    if (!size) {
      refuse(fmt::format("tensor \"{}\": {} elements of {} are no size in bytes", entry.name,
                         shape_text(entry.shape), entry.dtype));
    }
    if (entry.begin > entry.end || entry.end > data_bytes) {
      refuse(fmt::format("tensor \"{}\" has data_offsets [{}, {}], the data has {} bytes",
                         entry.name, entry.begin, entry.end, data_bytes));
    }
    if (entry.end - entry.begin != *size) {
      refuse(fmt::format("tensor \"{}\" is {} {}, {} bytes, but its data_offsets hold {}",
                         entry.name, entry.dtype, shape_text(entry.shape), *size,
                         entry.end - entry.begin));
    }
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              if (a.begin != b.begin) return a.begin < b.begin;
              if (a.end != b.end) return a.end < b.end;
              return a.name < b.name;
            });
  std::int64_t at = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != at) {
      refuse(fmt::format("tensor \"{}\" begins at byte {}, the one before it ends at {}: {}",
                         entry.name, entry.begin, at, entry.begin > at ? "a hole" : "an overlap"));
    }
    at = entry.end;
  }
  if (at != data_bytes) {
    refuse(fmt::format("its tensors end at byte {} of the data, which has {}", at, data_bytes));
  }
  return header;
}

SafetensorsHeader read_safetensors_header(const RegularFile& file) {
  refuse_lfs_pointer(file);
  const std::int64_t file_bytes = file.size_bytes();
  std::vector<std::byte> begin(static_cast<std::size_t>(std::min<std::int64_t>(file_bytes, 8)));
  file.read_at(0, begin);
  std::uint64_t length = 0;
  if (begin.size() == 8) std::memcpy(&length, begin.data(), 8);
  // A length that is too large is rejected below, from these first bytes.
  if (length <= static_cast<std::uint64_t>(std::min(kMaxHeaderBytes, file_bytes - 8))) {
    begin.resize(8 + length);
    file.read_at(8, std::span(begin).subspan(8));
  }
  return parse_safetensors(begin, file_bytes, file.path().string());
}

std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto quoted = [](const std::string& name) { return nlohmann::json(name).dump(); };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += quoted(key) + ":" + quoted(value);
    }
    text += '}';
  }
  std::int64_t at = 0;
  for (SafetensorsEntry& entry : entries) {
    const TypeRow* type = find_type(entry.dtype);
    PITON_ASSERT(type != nullptr, "{} of {}", entry.dtype, entry.name);
    const std::optional<std::int64_t> size = size_of(entry, type->bits);
    PITON_ASSERT(size.has_value(), "{} {}", entry.name, shape_text(entry.shape));
    entry.begin = at;
    entry.end = at + *size;
    at = entry.end;
    if (text.back() != '{') text += ',';
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        quoted(entry.name), entry.dtype, fmt::join(entry.shape, ","), entry.begin,
                        entry.end);
  }
  text += '}';
  const std::size_t whole =
      (8 + text.size() + kHeaderMultiple - 1) / kHeaderMultiple * kHeaderMultiple;
  text.resize(whole - 8, ' ');
  PITON_ASSERT(static_cast<std::int64_t>(text.size()) <= kMaxHeaderBytes,
               "a header of {} bytes: write more files", text.size());
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

void sort_for_alignment(std::vector<SafetensorsEntry>& entries) {
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              const TypeRow* first = find_type(a.dtype);
              const TypeRow* second = find_type(b.dtype);
              PITON_ASSERT(first != nullptr && second != nullptr, "{} of {}, {} of {}", a.dtype,
                           a.name, b.dtype, b.name);
              if (first->bits != second->bits) return first->bits > second->bits;
              return a.name < b.name;
            });
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), header_(read_safetensors_header(file_)) {
  for (std::size_t i = 0; i < header_.entries.size(); ++i) index_[header_.entries[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.entries[found->second];
}

Tensor SafetensorsFile::tensor(const std::string& name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) {
    std::vector<std::string> known;
    for (const auto& [known_name, index] : index_) known.push_back(known_name);
    const std::string near = nearest_name(name, known);
    throw Error(Fault::kData, "{}: has no tensor \"{}\" among its {}{}", path().string(), name,
                known.size(), near.empty() ? "" : fmt::format("; did you mean \"{}\"", near));
  }
  const std::optional<DType> dtype = dtype_of_safetensors(entry->dtype);
  if (!dtype || entry->shape.size() > static_cast<std::size_t>(Shape::kMaxDims)) {
    throw Error(Fault::kData,
                "{}: {}: cannot use {} {}, wanted fp64, fp32, bf16, fp16, int64, int32 or "
                "uint8 of at most {} dims",
                path().string(), name, entry->dtype, shape_text(entry->shape), Shape::kMaxDims);
  }
  Tensor result = host_tensor(*dtype, Shape(entry->shape));
  file_.read_at(offset(*entry), {result.raw(), static_cast<std::size_t>(entry->bytes())});
  return result;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<SafetensorsEntry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path), entries_(std::move(entries)) {
  const std::string header = make_safetensors_header(entries_, metadata);
  expected_bytes_ =
      static_cast<std::int64_t>(header.size()) + (entries_.empty() ? 0 : entries_.back().end);
  file_.write(bytes_of(header));
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) { file_.write(bytes); }

void SafetensorsWriter::commit() {
  PITON_ASSERT(file_.size_bytes() == expected_bytes_, "wrote {} of {} bytes", file_.size_bytes(),
               expected_bytes_);
  file_.commit();
}

void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    PITON_ASSERT(tensor.place().kind == DeviceKind::kHost && tensor.contiguous(), "{}: {}", name,
                 to_string(tensor));
    const std::span<const std::int64_t> sizes = tensor.shape().sizes();
    entries.push_back({.name = name,
                       .dtype = std::string(safetensors_name(tensor.dtype())),
                       .shape = {sizes.begin(), sizes.end()}});
  }
  sort_for_alignment(entries);
  SafetensorsWriter writer(path, std::move(entries), metadata);
  for (const SafetensorsEntry& entry : writer.entries()) {
    const Tensor& tensor = tensors.at(entry.name);
    writer.append({tensor.raw(), static_cast<std::size_t>(tensor.bytes())});
  }
  writer.commit();
}

}  // namespace piton
