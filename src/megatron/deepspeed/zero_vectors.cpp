#include "megatron/deepspeed/zero_vectors.h"

#include <algorithm>

#include "base/error.h"

namespace piton {

std::vector<ZeroShape> zero_shapes(const PickleValue& dict, const std::string& where,
                                   const char* label) {
  std::vector<ZeroShape> shapes;
  for (const auto& [name, size] : dict.pairs) {
    const bool good = name->kind == PickleValue::Kind::kText &&
                      size->kind == PickleValue::Kind::kList &&
                      (size->items.size() == 1 || size->items.size() == 2) &&
                      std::ranges::all_of(size->items, [](const PickleValue* one) {
                        return one->kind == PickleValue::Kind::kInt && one->integer > 0 &&
                               one->integer < INT32_MAX;
                      });
    if (!good) throw Error(Fault::kData, "{}: {} has no names and sizes of weights", where, label);
    const std::int64_t columns = size->items.size() == 1 ? 1 : size->items[1]->integer;
    shapes.push_back({.name = name->text, .rows = size->items[0]->integer, .columns = columns});
  }
  return shapes;
}

void append_vector(const TorchFile& file, const PickleValue* value, const std::string& label,
                   FlatVector& whole) {
  const std::string where = file.file().path().string();
  if (value == nullptr || value->kind != PickleValue::Kind::kTensor)
    throw Error(Fault::kData, "{}: has no {}", where, label);
  const TorchTensor vector = file.tensor(*value, label);
  if (vector.dtype != "F32" || vector.shape.size() != 1 || !vector.contiguous())
    throw Error(Fault::kData, "{}: {} is no vector of fp32", where, label);
  const std::int64_t begin = whole.elements();
  whole.parts.push_back({&file.file(), vector.offset, begin, begin + vector.shape[0]});
}

}  // namespace piton
