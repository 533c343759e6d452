// The types of ids in a corpus (data/corpus/indexed_dataset.h).
#pragma once

#include <cstdint>
#include <string>

namespace piton {

// Type of one id on disk; the values are those of the file.
enum class IdType : std::uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8
};

int bytes_of(IdType type);
// uint16 for vocabularies below 65 500 ids, else int32.
IdType id_type_for(std::int64_t vocabulary);
// The type with this code, which is at byte `offset` of the file. Throws Error(kData) for
// floating-point numbers and for unknown codes.
IdType checked_id_type(std::uint64_t code, const std::string& file, int offset);

}  // namespace piton
