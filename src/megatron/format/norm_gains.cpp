#include "megatron/format/norm_gains.h"

#include "checkpoint/values.h"

namespace piton {

bool is_shifted_gain(const ModelConfig& model, std::string_view name) {
  return model.delta && model.gains_from_one && name.ends_with(".delta.norm.weight");
}

void read_shifted(const ShiftedRun& run, DType dtype, std::byte* dst) {
  std::vector<std::byte> values(static_cast<std::size_t>(run.size * size_bytes(run.through)));
  run.read(run.through, values.data());
  std::vector<float> gains(static_cast<std::size_t>(run.size));
  auto* bytes = reinterpret_cast<std::byte*>(gains.data());
  convert_values(values.data(), run.through, bytes, DType::kF32, run.size);
  for (float& gain : gains) gain += run.shift;
  convert_values(bytes, DType::kF32, dst, dtype, run.size);
}

ShiftedGains::ShiftedGains(TensorSource& source, const ModelConfig& model, float shift,
                           std::optional<DType> through)
    : source_(source), model_(model), shift_(shift), through_(through) {}

void ShiftedGains::read(const std::string& name, const TensorRun& run, DType dtype,
                        std::byte* dst) {
  if (!is_shifted_gain(model_, name)) return source_.read(name, run, dtype, dst);
  read_shifted({.read = [&](DType type, std::byte* to) { source_.read(name, run, type, to); },
                .size = run.size(),
                .shift = shift_,
                .through = through_.value_or(DType::kF32)},
               dtype, dst);
}

}  // namespace piton
