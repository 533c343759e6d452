#include "gguf/gguf_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "gguf/kind_width.h"

namespace piton {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kOldest = 2;
constexpr std::uint32_t kNewest = 3;
constexpr int kMostDims = 4;
constexpr std::int64_t kMostAlignment = std::int64_t{1} << 20;
constexpr std::int64_t kMostElements = std::int64_t{1} << 56;
constexpr std::int64_t kLongestKey = 65535;
// Of the bytes before the data: the tokens of the largest vocabularies are 20 MB.
constexpr std::int64_t kLargestHeader = std::int64_t{128} << 20;
constexpr std::int64_t kLeastEntry = 8 + 1 + 4 + 1;           // of a key of one letter and a byte
constexpr std::int64_t kLeastTensor = 8 + 1 + 4 + 8 + 4 + 8;  // of one dim

// The bytes of the head from its start on, read in pieces.
class Cursor {
 public:
  Cursor(const ReadBytes& read, std::int64_t file_bytes, const std::string& where)
      : read_(read), file_bytes_(file_bytes), where_(where) {}

  std::int64_t at() const { return at_; }
  std::int64_t left() const { return file_bytes_ - at_; }

  template <typename T>
  T number(const std::string& what) {
    T value{};
    take({reinterpret_cast<std::byte*>(&value), sizeof(T)}, what);
    return value;
  }

  // A number of things of `least` bytes or more each: all of them have to be there.
  std::int64_t count(const std::string& what, std::int64_t least) {
    const auto count = number<std::uint64_t>(what);
    if (count > static_cast<std::uint64_t>(left() / least))
      refuse(fmt::format("{}: got {}, but only {} bytes follow", what, count, left()));
    return static_cast<std::int64_t>(count);
  }

  std::string bytes(std::int64_t count, const std::string& what) {
    std::string text;
    check(count, what);
    text.resize(static_cast<std::size_t>(count));
    take(std::as_writable_bytes(std::span(text)), what);
    return text;
  }

  std::string string(const std::string& what) {
    return bytes(count("the length of " + what, 1), what);
  }

  [[noreturn]] void refuse(const std::string& what,
                           const char* advice = "is the copy complete, and a GGUF file?") const {
    throw Error(Fault::kData, "{}: {}; {}", where_, what, advice);
  }

 private:
  void check(std::int64_t bytes, const std::string& what) const {
    if (bytes > left()) refuse(fmt::format("ends at byte {} within {}", file_bytes_, what));
    if (at_ + bytes > kLargestHeader) {
      refuse(fmt::format("{}: the header goes beyond byte {}, wanted a smaller one", what,
                         kLargestHeader));
    }
  }

  void take(std::span<std::byte> out, const std::string& what) {
    check(std::ssize(out), what);
    while (!out.empty()) {
      if (at_ == begin_ + std::ssize(buffer_)) fill();
      const auto from = static_cast<std::size_t>(at_ - begin_);
      const std::size_t size = std::min(out.size(), buffer_.size() - from);
      std::memcpy(out.data(), buffer_.data() + from, size);
      at_ += static_cast<std::int64_t>(size);
      out = out.subspan(size);
    }
  }

  void fill() {
    constexpr std::int64_t kPiece = 1 << 18;
    begin_ = at_;
    buffer_.resize(static_cast<std::size_t>(std::min(kPiece, left())));
    read_(begin_, buffer_);
  }

  const ReadBytes& read_;
  std::int64_t file_bytes_;
  const std::string& where_;
  std::int64_t at_ = 0;
  std::int64_t begin_ = 0;  // of the buffer, in the file
  std::vector<std::byte> buffer_;
};

GgufKind kind_of(Cursor& cursor, const std::string& what) {
  const auto number = cursor.number<std::uint32_t>(what);
  if (number > static_cast<std::uint32_t>(GgufKind::kF64))
    cursor.refuse(fmt::format("{}: kind {}, wanted 0 to 12", what, number));
  return static_cast<GgufKind>(number);
}

std::uint64_t bits_of(Cursor& cursor, GgufKind kind, const std::string& what) {
  const std::string bytes = cursor.bytes(kind_width(kind), what);
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data(), bytes.size());
  if (kind == GgufKind::kBool && bits > 1)
    cursor.refuse(fmt::format("{}: got {}, wanted true or false", what, bits));
  return bits;
}

GgufValue read_list(Cursor& cursor, const std::string& what) {
  GgufValue value{.kind = GgufKind::kArray, .element = kind_of(cursor, what)};
  if (value.element == GgufKind::kArray)
    cursor.refuse(fmt::format("{}: a list of lists, wanted one of numbers or strings", what));
  const bool strings = value.element == GgufKind::kString;
  const std::int64_t width = strings ? 8 : kind_width(value.element);
  const std::int64_t count = cursor.count("the length of " + what, width);
  if (!strings) {
    value.text = cursor.bytes(count * width, what);
    return value;
  }
  for (std::int64_t i = 0; i < count; ++i) value.texts.push_back(cursor.string(what));
  return value;
}

GgufValue read_value(Cursor& cursor, const std::string& what) {
  const GgufKind kind = kind_of(cursor, what);
  if (kind == GgufKind::kArray) return read_list(cursor, what);
  if (kind == GgufKind::kString) return {.kind = kind, .text = cursor.string(what)};
  return {.kind = kind, .bits = bits_of(cursor, kind, what)};
}

std::string read_name(Cursor& cursor, const std::string& what) {
  const std::int64_t size = cursor.count("the length of " + what, 1);
  if (size < 1 || size > kLongestKey)
    cursor.refuse(fmt::format("{}: {} bytes long, wanted 1 to {}", what, size, kLongestKey));
  return cursor.bytes(size, what);
}

void read_start(Cursor& cursor) {
  const std::string magic = cursor.bytes(4, "its first bytes");
  if (magic != kMagic) cursor.refuse("does not start with \"GGUF\"");
  const auto version = cursor.number<std::uint32_t>("its version");
  if (version >= kOldest && version <= kNewest) return;
  if ((version & 0xFFU) == 0) cursor.refuse("is big-endian, wanted little-endian");
  cursor.refuse(fmt::format("version {}, wanted {} or {}", version, kOldest, kNewest));
}

std::vector<GgufEntry> read_entries(Cursor& cursor, std::int64_t count) {
  std::vector<GgufEntry> entries;
  std::set<std::string> keys;
  for (std::int64_t i = 0; i < count; ++i) {
    GgufEntry entry{.key = read_name(cursor, fmt::format("key {}", i))};
    if (!keys.insert(entry.key).second)
      cursor.refuse(fmt::format("the key {} is there twice", entry.key));
    entry.value = read_value(cursor, entry.key);
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Sizes of which no product passes 2^56, rows first.
std::vector<std::int64_t> read_shape(Cursor& cursor, const std::string& name) {
  const auto dims = cursor.number<std::uint32_t>(name);
  if (dims < 1 || dims > kMostDims)
    cursor.refuse(fmt::format("{}: {} dims, wanted 1 to {}", name, dims, kMostDims));
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (std::uint32_t dim = 0; dim < dims; ++dim) {
    const auto size = cursor.number<std::uint64_t>(name);
    if (size < 1 || size > static_cast<std::uint64_t>(kMostElements / elements))
      cursor.refuse(fmt::format("{}: size {} of dim {} cannot be", name, size, dim));
    shape.push_back(static_cast<std::int64_t>(size));
    elements *= shape.back();
  }
  std::ranges::reverse(shape);
  return shape;
}

GgufTensor read_tensor(Cursor& cursor, std::int64_t index) {
  GgufTensor tensor{.name = read_name(cursor, fmt::format("the name of tensor {}", index))};
  tensor.shape = read_shape(cursor, tensor.name);
  const auto number = cursor.number<std::uint32_t>(tensor.name);
  const std::optional<GgmlType> type = ggml_type(number);
  if (!type) {
    cursor.refuse(fmt::format("{} is of type {}, wanted {}", tensor.name, ggml_type_name(number),
                              fmt::join(ggml_type_names(), ", ")),
                  "load a file of these types");
  }
  tensor.type = *type;
  if (tensor.shape.back() % block_values(*type) != 0) {
    cursor.refuse(fmt::format("{}: rows of {}, wanted a multiple of {} for {}", tensor.name,
                              tensor.shape.back(), block_values(*type), name(*type)));
  }
  const auto offset = cursor.number<std::uint64_t>(tensor.name);
  if (offset > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    cursor.refuse(fmt::format("{}: offset {} cannot be", tensor.name, offset));
  tensor.offset = static_cast<std::int64_t>(offset);
  return tensor;
}

std::int64_t read_alignment(const Cursor& cursor, const GgufHeader& header) {
  const GgufValue* value = header.find("general.alignment");
  if (value == nullptr) return GgufHeader{}.alignment;
  const std::int64_t alignment = value->is_integer() ? value->integer() : 0;
  const bool fits = alignment >= 1 && alignment <= kMostAlignment &&
                    std::has_single_bit(static_cast<std::uint64_t>(alignment));
  if (!fits) {
    cursor.refuse(fmt::format("general.alignment: {}, wanted a power of 2 up to {}",
                              value->is_integer() ? fmt::format("{}", alignment) : "no number",
                              kMostAlignment));
  }
  return alignment;
}

// Each tensor follows the one before.
void check_offsets(const Cursor& cursor, const GgufHeader& header, std::int64_t file_bytes) {
  std::int64_t at = 0;
  for (const GgufTensor& tensor : header.tensors) {
    if (tensor.offset != at) {
      cursor.refuse(fmt::format("{}: at offset {}, wanted {}, after the previous tensor",
                                tensor.name, tensor.offset, at));
    }
    if (tensor.bytes() > file_bytes - header.data_begin - at) {
      cursor.refuse(fmt::format("{}: its {} bytes at offset {} pass the end of the file of {}",
                                tensor.name, tensor.bytes(), at, file_bytes));
    }
    at = aligned(at + tensor.bytes(), header.alignment);
  }
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

void put_value(std::string& out, const GgufValue& value) {
  put(out, static_cast<std::uint32_t>(value.kind));
  if (value.kind == GgufKind::kString) return put_string(out, value.text);
  if (value.kind != GgufKind::kArray) {
    out.append(reinterpret_cast<const char*>(&value.bits),
               static_cast<std::size_t>(kind_width(value.kind)));
    return;
  }
  put(out, static_cast<std::uint32_t>(value.element));
  put(out, static_cast<std::uint64_t>(value.count()));
  if (value.element != GgufKind::kString) {
    out += value.text;
    return;
  }
  for (const std::string& text : value.texts) put_string(out, text);
}

}  // namespace

std::int64_t aligned(std::int64_t bytes, std::int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::int64_t GgufTensor::elements() const {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

std::int64_t GgufTensor::bytes() const {
  return elements() / block_values(type) * block_bytes(type);
}

const GgufValue* GgufHeader::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &GgufEntry::key);
  return found == entries.end() ? nullptr : &found->value;
}

GgufHeader parse_gguf(const ReadBytes& read, std::int64_t file_bytes, const std::string& where) {
  Cursor cursor(read, file_bytes, where);
  read_start(cursor);
  GgufHeader header;
  const std::int64_t tensors = cursor.count("its number of tensors", kLeastTensor);
  const std::int64_t entries = cursor.count("its number of entries", kLeastEntry);
  header.entries = read_entries(cursor, entries);
  std::set<std::string> names;
  for (std::int64_t i = 0; i < tensors; ++i) {
    header.tensors.push_back(read_tensor(cursor, i));
    if (!names.insert(header.tensors.back().name).second)
      cursor.refuse(fmt::format("the tensor {} is there twice", header.tensors.back().name));
  }
  header.alignment = read_alignment(cursor, header);
  header.data_begin = aligned(cursor.at(), header.alignment);
  check_offsets(cursor, header, file_bytes);
  return header;
}

std::string make_gguf_header(GgufHeader& header) {
  std::string out(kMagic);
  put(out, kNewest);
  put(out, static_cast<std::uint64_t>(header.tensors.size()));
  put(out, static_cast<std::uint64_t>(header.entries.size()));
  for (const GgufEntry& entry : header.entries) {
    put_string(out, entry.key);
    put_value(out, entry.value);
  }
  std::int64_t at = 0;
  for (GgufTensor& tensor : header.tensors) {
    tensor.offset = at;
    put_string(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t dim = tensor.shape.size(); dim-- > 0;)
      put(out, static_cast<std::uint64_t>(tensor.shape[dim]));
    put(out, static_cast<std::uint32_t>(tensor.type));
    put(out, static_cast<std::uint64_t>(tensor.offset));
    at = aligned(at + tensor.bytes(), header.alignment);
  }
  header.data_begin = aligned(std::ssize(out), header.alignment);
  out.resize(static_cast<std::size_t>(header.data_begin), '\0');
  return out;
}

}  // namespace piton
