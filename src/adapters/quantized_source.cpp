#include "adapters/quantized_source.h"

#include "checkpoint/load_values.h"
#include "checkpoint/values.h"
#include "device/host_device.h"

namespace piton {

QuantizedSource::QuantizedSource(TensorSource& model, const CodeFormat& format,
                                 const ComputeContext& compute)
    : model_(model), format_(format), compute_(compute) {
  for (const CanonicalTensor& one : model.tensors(TensorKind::kWeight))
    shapes_[one.name] = one.shape;
}

const Tensor& QuantizedSource::rows_of(const std::string& name, const Shape& shape) {
  if (name == last_) return rows_;
  last_.clear();
  Parameter matrix{.name = name, .dtype = DType::kF32, .shape = shape};
  matrix.pieces.push_back({.name = name, .global = shape, .start = {0, 0}, .extent = shape});
  matrix.code_format = format_;
  matrix.codes = allocate_codes(format_, shape[0], shape[1], compute_.arena);
  load_codes(model_, matrix, nullptr, compute_.device, compute_.stream);
  rows_ = host_tensor(DType::kF32, shape);
  const bool on_host = matrix.codes.codes.place().kind == DeviceKind::kHost;
  const Tensor rows = on_host ? rows_
                              : compute_.arena.allocate(DType::kF32, shape, MemoryKind::kWorkspace,
                                                        compute_.stream);
  compute_.kernels.run(ExpandWeight{.rows = rows, .codes = matrix.codes}, compute_.stream);
  if (!on_host) compute_.device.download(rows, rows_.raw(), compute_.stream);
  compute_.stream.synchronize();
  last_ = name;
  return rows_;
}

void QuantizedSource::read(const std::string& name, const TensorRun& run, DType dtype,
                           std::byte* dst) {
  const Shape& shape = shapes_.at(name);
  if (shape.ndim() != 2) return model_.read(name, run, dtype, dst);
  const Tensor& rows = rows_of(name, shape);
  for_each_stretch(shape, run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    convert_values(rows.raw() + from * size_bytes(DType::kF32), DType::kF32,
                   dst + (to - run.begin) * size_bytes(dtype), dtype, count);
  });
}

}  // namespace piton
