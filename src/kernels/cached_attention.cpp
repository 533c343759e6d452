// Checks and operation counts of attention to a cache.
#include "kernels/cached_attention.h"

#include "kernels/expect.h"

namespace piton {
namespace {

// Of a cache [pages, kCachePage, g, d] of codes: the rows of a head are consecutive.
void expect_scales(std::string_view call, const Tensor& cache, const Tensor& scales) {
  Operand{call, "scales", scales}
      .shape({cache.dim(0), cache.dim(1), cache.dim(2)})
      .dtype(DType::kF32);
  PITON_ASSERT(scales.stride(1) == 1, "{}: scales of a head are {} apart", call, scales.stride(1));
}

}  // namespace

void CacheAppend::check() const {
  expect_one_place(*this);
  Operand{kName, "k", k}.given().floating().rows();
  Operand{kName, "keys", keys}.given().rows();
  PITON_ASSERT(keys.ndim() == 4 && k.ndim() == 3, "{}: keys are {}, k is {}", kName,
               to_string(keys), to_string(k));
  PITON_ASSERT(keys.dim(1) == kCachePage, "{}: pages of {} rows, wanted {}", kName, keys.dim(1),
               kCachePage);
  Operand{kName, "k", k}.shape({k.dim(0), keys.dim(2), keys.dim(3)});
  Operand{kName, "v", v}.given().dtype(k.dtype()).rows();
  PITON_ASSERT(v.ndim() == 3, "{}: v is {}", kName, to_string(v));
  Operand{kName, "v", v}.shape({k.dim(0), k.dim(1), v.dim(2)});
  PITON_ASSERT(key_scales.defined() == value_scales.defined(),
               "{}: scales of one of keys and values", kName);
  if (key_scales.defined()) {
    expect_scales(kName, keys, key_scales);
    expect_scales(kName, keys, value_scales);
  }
  const DType cached = key_scales.defined() ? DType::kU8 : k.dtype();
  Operand{kName, "keys", keys}.dtype(cached);
  Operand{kName, "values", values}
      .shape({keys.dim(0), kCachePage, keys.dim(2), v.dim(2)})
      .dtype(cached)
      .rows();
  Operand{kName, "slots", slots}.shape({k.dim(0)}).dtype(DType::kI32).contiguous();
  if (!rotates()) {
    PITON_ASSERT(!positions.defined() && !cosine.defined() && !sine.defined(),
                 "{}: angles without queries", kName);
    return;
  }
  Operand{kName, "q", q}.dtype(k.dtype());
  PITON_ASSERT(q.ndim() == 3 && q.dim(0) == k.dim(0) && q.dim(2) == k.dim(2),
               "{}: q is {}, k is {}", kName, to_string(q), to_string(k));
  Operand{kName, "cosine", cosine}.given();
  PITON_ASSERT(first_channel >= 0 && first_channel + rotated_channels() <= q.dim(2),
               "{}: {} channels from {} on of {}", kName, rotated_channels(), first_channel,
               q.dim(2));
  Rotary{.x = q.slice(2, first_channel, rotated_channels()),
         .positions = positions,
         .cosine = cosine,
         .sine = sine,
         .convention = convention}
      .check();
}

void CachedAttention::check() const {
  expect_one_place(*this);
  Operand{kName, "q", q}.floating().rows();
  Operand{kName, "keys", keys}.given();
  PITON_ASSERT(q.ndim() == 3 && keys.ndim() == 4, "{}: q is {}, keys are {}", kName, to_string(q),
               to_string(keys));
  PITON_ASSERT(keys.dim(1) == kCachePage, "{}: pages of {} rows, wanted {}", kName, keys.dim(1),
               kCachePage);
  Operand{kName, "out", out}.given().dtype(q.dtype()).rows();
  PITON_ASSERT(out.ndim() == 3, "{}: out is {}", kName, to_string(out));
  Operand{kName, "out", out}.shape({q.dim(0), q.dim(1), of_latents() ? out.dim(2) : q.dim(2)});
  if (lse.defined()) {
    Operand{kName, "lse", lse}.shape({q.dim(1), q.dim(0)}).dtype(sum_dtype(q.dtype())).contiguous();
  }
  const Shape pages{keys.dim(0), kCachePage, keys.dim(2), q.dim(2)};
  const bool coded = key_scales.defined();
  PITON_ASSERT(coded == value_scales.defined(), "{}: scales of one of keys and values", kName);
  const DType cached = coded ? DType::kU8 : q.dtype();
  Operand{kName, "keys", keys}.shape(pages).dtype(cached).rows();
  if (coded) {
    expect_scales(kName, keys, key_scales);
    expect_scales(kName, keys, value_scales);
  }
  if (of_latents()) {
    PITON_ASSERT(keys.dim(2) == 1 && out.dim(2) <= keys.dim(3),
                 "{}: latents of {} channels in keys {}", kName, out.dim(2), to_string(keys));
    PITON_ASSERT(!slopes.defined() && !bias.defined(), "{}: slopes or a bias, and latents", kName);
    Operand{kName, "q", q}.contiguous();
    Operand{kName, "out", out}.contiguous();
  } else {
    Operand{kName, "values", values}.shape(pages).dtype(cached).rows();
  }
  PITON_ASSERT(keys.dim(2) > 0 && q.dim(1) % keys.dim(2) == 0, "{}: {} query heads on {} key heads",
               kName, q.dim(1), keys.dim(2));
  Operand{kName, "lengths", lengths}.given().dtype(DType::kI32).contiguous();
  const std::int64_t samples = lengths.elements();
  Operand{kName, "lengths", lengths}.shape({samples});
  Operand{kName, "begins", begins}.shape({samples + 1}).dtype(DType::kI32).contiguous();
  Operand{kName, "table", table}.given().dtype(DType::kI32).contiguous();
  PITON_ASSERT(table.ndim() == 2 && table.dim(0) == samples, "{}: table is {} for {} samples",
               kName, to_string(table), samples);
  if (slopes.defined())
    Operand{kName, "slopes", slopes}.shape({q.dim(1)}).dtype(DType::kF32).contiguous();
  if (bias.defined()) {
    Operand{kName, "bias", bias}
        .shape({q.dim(1), bias.dim(-1)})
        .dtype(sum_dtype(q.dtype()))
        .contiguous();
  }
  PITON_ASSERT(soft_cap >= 0, "{}: a soft cap of {}", kName, soft_cap);
}

AttentionMask CachedAttention::mask_of(std::int64_t rows, std::int64_t keys) const {
  return {.window_before = window_before,
          .window_after = window_after,
          .query_begin = keys - rows,
          .slopes = slopes,
          .bias = bias,
          .bias_origin = bias_origin};
}

double CachedAttention::flops() const {
  return 2.0 * static_cast<double>(q.dim(1) * (q.dim(2) + out.dim(2))) * pairs;
}

}  // namespace piton
