// The header of a GGUF file: entries (keys and values) and the list of tensors. Little-endian.
//
//   head        "GGUF", u32 version 3, u64 number n of tensors, u64 number m of entries
//   m entries   string key, u32 kind (GgufKind), value
//   n tensors   string name, u32 dims, u64 [dims] sizes (columns first), u32 type, u64 offset
//   padding     zeros up to a multiple of general.alignment (default 32)
//   data        each tensor at its offset, in the order of the list, padded with zeros to the next
//               multiple
//
// A string is its u64 number of bytes, then the bytes. A list is u32 kind, u64 count, values.
// Version 2 has the same layout.
//
// The file is not trusted. Counts and lengths beyond its end, sizes whose product overflows,
// offsets that do not follow from the previous tensors, duplicate names, and types that Piton does
// not support are Error(kData): one line that names the file and the entry or tensor. Memory is
// bounded by the bytes in the file, never by a count that it states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/blocks/ggml_type.h"

namespace piton {

enum class GgufKind : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

struct GgufValue {
  GgufKind kind = GgufKind::kU32;
  GgufKind element = GgufKind::kU32;  // of a list
  std::uint64_t bits = 0;             // of a number: as it is in the file
  std::string text;                   // of a string; of a list of numbers their bytes
  std::vector<std::string> texts;     // of a list of strings

  bool operator==(const GgufValue&) const = default;

  static GgufValue u32(std::int64_t value);
  static GgufValue f32(double value);
  static GgufValue boolean(bool value);
  static GgufValue string(std::string value);
  static GgufValue strings(std::vector<std::string> values);
  static GgufValue numbers(std::span<const float> values);
  static GgufValue numbers(std::span<const std::int32_t> values);
  static GgufValue bytes(std::string values);  // a list of u8

  bool is_integer() const;
  bool is_number() const;  // floating
  // integer() is for is_integer(), saturated to signed 64 bits. number() is for is_number(): for a
  // float, the decimal number that it was rounded from, if that has at most seven digits (1e-06,
  // not 9.99999997e-07).
  std::int64_t integer() const;
  double number() const;
  bool truth() const { return bits != 0; }
  // Elements of a list.
  std::int64_t count() const;
  std::vector<std::int64_t> integers() const;
  std::vector<bool> flags() const;  // of booleans, or of integers: those that are not 0
  std::vector<double> numbers() const;
};

struct GgufEntry {
  std::string key;
  GgufValue value;
};

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // rows first
  GgmlType type = GgmlType::kF32;
  std::int64_t offset = 0;  // from the start of the data

  std::int64_t elements() const;
  std::int64_t bytes() const;
};

struct GgufHeader {
  std::vector<GgufEntry> entries;
  std::vector<GgufTensor> tensors;
  std::int64_t alignment = 32;
  std::int64_t data_begin = 0;  // from the start of the file

  // Null if there is no such entry.
  const GgufValue* find(std::string_view key) const;
};

// Fills `out` with the bytes from `offset` on.
using ReadBytes = std::function<void(std::int64_t offset, std::span<std::byte> out)>;

// Reads the header of a file and checks it against the size of the file, `file_bytes`. Throws
// Error(kData), beginning with `where`.
GgufHeader parse_gguf(const ReadBytes& read, std::int64_t file_bytes, const std::string& where);

// The inverse of parse_gguf(): sets offsets and data_begin, and returns the bytes before the data.
std::string make_gguf_header(GgufHeader& header);

// `bytes`, rounded up to a multiple of `alignment`.
std::int64_t aligned(std::int64_t bytes, std::int64_t alignment);

}  // namespace piton
