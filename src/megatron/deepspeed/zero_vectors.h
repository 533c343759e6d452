// What the files of all stages of DeepSpeed's ZeRO have alike: names with sizes, and vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/format/megatron_files.h"
#include "pickle/torch_file.h"

namespace piton {

enum class ZeroState : std::uint8_t { kWeight, kFirstMoment, kSecondMoment };

// A parameter of one or two dims.
struct ZeroShape {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  std::int64_t elements() const { return rows * columns; }
};

// Those of a dict {NAME: SIZE}, which `where` calls `label`, in its order. Throws Error(kData).
std::vector<ZeroShape> zero_shapes(const PickleValue& dict, const std::string& where,
                                   const char* label);

// Adds a vector of fp32 to the end of `whole`. `value`: null where there is none. `label` is for
// messages. Throws Error(kData).
void append_vector(const TorchFile& file, const PickleValue* value, const std::string& label,
                   FlatVector& whole);

}  // namespace piton
