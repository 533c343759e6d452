#include "data/corpus/id_type.h"

#include "base/error.h"

namespace piton {

int bytes_of(IdType type) {
  switch (type) {
    case IdType::kUint8:
    case IdType::kInt8:
      return 1;
    case IdType::kInt16:
    case IdType::kUint16:
      return 2;
    case IdType::kInt32:
      return 4;
    case IdType::kInt64:
      return 8;
  }
  PITON_ASSERT(false, "id type {}", static_cast<int>(type));
  return 0;
}

IdType id_type_for(std::int64_t vocabulary) {
  return vocabulary < 65500 ? IdType::kUint16 : IdType::kInt32;
}

IdType checked_id_type(std::uint64_t code, const std::string& file, int offset) {
  switch (code) {
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 8:
      return static_cast<IdType>(code);
    case 6:
    case 7:
      throw Error(Fault::kData,
                  "{}: byte {}: ids are floating-point numbers (type {}); wanted an integer "
                  "type, 1..5 or 8; write the corpus again with integer ids",
                  file, offset, code);
    default:
      throw Error(Fault::kData,
                  "{}: byte {}: unknown type of ids: got {}, wanted 1..5 or 8; is the file "
                  "damaged?",
                  file, offset, code);
  }
}

}  // namespace piton
