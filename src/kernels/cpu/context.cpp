// Scratch memory, views of tensors for the loops, mask rows.
#include "kernels/cpu/context.h"

#include <cstdlib>

#include "base/huge_pages.h"

namespace piton::cpu {

void Scratch::Release::operator()(std::byte* data) const { std::free(data); }

std::byte* Scratch::grown(Buffer& buffer, std::int64_t bytes) {
  if (bytes > buffer.bytes) {
    buffer.data.reset();
    buffer.bytes = 0;
    // From half a huge page on the buffer is whole ones, for packed operands.
    const std::int64_t unit = bytes >= kHugePage / 2 ? kHugePage : 64;
    const std::int64_t size = (bytes + unit - 1) / unit * unit;
    std::byte* data = allocate_in_huge_pages(size);
    if (data == nullptr) {
      throw Error(Fault::kMemory,
                  "cpu kernels: out of memory: wanted {} bytes of workspace; use a smaller "
                  "micro-batch",
                  bytes);
    }
    buffer.data.reset(data);
    buffer.bytes = size;
  }
  return buffer.data.get();
}

Tensor memory_in(Tensor& kept, DType dtype, const Shape& shape) {
  const std::int64_t bytes = shape.elements() * size_bytes(dtype);
  if (!kept.defined() || kept.bytes() < bytes) {
    kept = {};
    kept = host_tensor(DType::kU8, {bytes});
  }
  return {kept.storage(), 0, dtype, shape};
}

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Type::kF32;
    case DType::kBF16:
      return Type::kBF16;
    case DType::kF16:
      return Type::kF16;
    default:
      break;
  }
  PITON_ASSERT(false, "cpu kernels: no arithmetic in {}; fp64 is the reference's",
               piton::name(dtype));
  return Type::kF32;
}

Matrix matrix_of(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.raw(), type_of(tensor.dtype()), tensor.stride(0)};
}

Masks::Masks(PhiloxKey key, const MaskRows& rows)
    : key_(key),
      rows_(rows),
      first_sample_(*rows.consumed_samples.data<std::int64_t>() + rows.sample_index) {}

Masks::Masks(const Dropout& dropout)
    : key_(dropout.key),
      rows_(dropout.rows),
      probability_(dropout.probability),
      given_(dropout.probability > 0) {
  if (given_) {
    first_sample_ = *dropout.rows.consumed_samples.data<std::int64_t>() + dropout.rows.sample_index;
  }
}

MaskRow Masks::make(std::int64_t sample, std::int64_t head, std::int64_t position) const {
  const PhiloxBlock counter =
      mask_counter(static_cast<std::uint64_t>(sample), static_cast<std::uint32_t>(head),
                   static_cast<std::uint32_t>(position), 0);
  return {.key_low = key_.low,
          .key_high = key_.high,
          .counter = {counter[0], counter[1], counter[2]},
          .threshold = drop_threshold(probability_),
          .scale = static_cast<float>(1.0 / (1.0 - probability_))};
}

MaskRow Masks::hidden(std::int64_t row) const {
  const std::int64_t unsplit = rows_.first_row + row;
  const std::int64_t sequence = rows_.sequence;
  MaskRow mask = make(first_sample_ + unsplit / sequence, 0, rows_.position(unsplit % sequence));
  mask.first_column = rows_.first_column;
  return mask;
}

MaskRow Masks::query(std::int64_t batch, std::int64_t head, std::int64_t position) const {
  return make(first_sample_ + batch, head, position);
}

}  // namespace piton::cpu
