// Attention to a cache: of each sample, by AttentionForward over its keys without pages.
#include "kernels/cached_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/expect.h"
#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

// A row of a cache [g, d] of codes with these scales [g] (or without) as numbers. The first `c`
// channels have `first_scales` in place of them.
Values numbers_of(const Tensor& row, const Tensor& scales, const Tensor& first_scales,
                  std::int64_t c) {
  Values numbers = Values::read(row);
  if (!scales.defined()) return numbers;
  const Values factors = Values::read(scales);
  const Values first_factors = Values::read(first_scales);
  for (std::int64_t head = 0; head < row.dim(0); ++head) {
    for (std::int64_t i = 0; i < row.dim(1); ++i) {
      const double code = numbers(head, i) < 128 ? numbers(head, i) : numbers(head, i) - 256;
      const double factor = i < c ? first_factors(head) : factors(head);
      numbers(head, i) = static_cast<float>(code) * static_cast<float>(factor);
    }
  }
  return numbers;
}

// Keys or values of a cache, and the scales of codes. Of latents, `latents` channels have others.
struct CachedRows {
  const Tensor& cache;
  const Tensor& scales;
  const Tensor& latent_scales;
  std::int64_t latents = 0;
};

// Rows of a sample [1, keys, g, d], from the pages of row `sample` of the table.
Tensor without_pages(const CachedRows& from, DType dtype, const Values& table, std::int64_t sample,
                     std::int64_t keys) {
  Tensor rows = host_tensor(dtype, {1, keys, from.cache.dim(2), from.cache.dim(3)});
  for (std::int64_t key = 0; key < keys; ++key) {
    const auto page = static_cast<std::int64_t>(table(sample, key / kCachePage));
    const auto place = [&](const Tensor& all) {
      return all.defined() ? all.select(0, page).select(0, key % kCachePage) : all;
    };
    numbers_of(place(from.cache), place(from.scales), place(from.latent_scales), from.latents)
        .write(rows.select(0, 0).select(0, key));
  }
  return rows;
}

// Codes of a row x [g, d], and their scales.
void write_codes(const Tensor& x, const Tensor& row, const Tensor& scales) {
  Values codes = Values::read(x);
  Values factors(Shape{x.dim(0)});
  for (std::int64_t head = 0; head < x.dim(0); ++head) {
    float largest = 0;
    bool finite = true;
    for (std::int64_t i = 0; i < x.dim(1); ++i) {
      const auto value = static_cast<float>(codes(head, i));
      finite = finite && std::isfinite(value);
      largest = std::max(largest, std::abs(value));
    }
    const float scale = finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
    factors(head) = scale;
    for (std::int64_t i = 0; i < x.dim(1); ++i) {
      float code = 0;
      if (finite && scale > 0) {
        code = std::nearbyint(static_cast<float>(codes(head, i)) / scale);
        code = std::clamp(code, -127.0F, 127.0F);
      }
      codes(head, i) = code < 0 ? code + 256 : code;
    }
  }
  codes.write(row);
  factors.write(scales);
}

// x [n, g, d] to the slots of a cache with these scales, or without.
void append(const Tensor& x, const Tensor& slots, const Tensor& cache, const Tensor& scales) {
  const Values places = Values::read(slots);
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    const auto slot = static_cast<std::int64_t>(places(row));
    const auto place = [&](const Tensor& all) {
      return all.select(0, slot / kCachePage).select(0, slot % kCachePage);
    };
    if (scales.defined()) {
      write_codes(x.select(0, row), place(cache), place(scales));
    } else {
      Values::read(x.select(0, row)).write(place(cache));
    }
  }
}

}  // namespace

void execute(const CacheAppend& call) {
  Tensor k = call.k;
  if (call.rotates()) {
    k = host_tensor(call.k.dtype(), call.k.shape());
    Values::read(call.k).write(k);
    for (const Tensor& x : {call.q, k}) {
      execute(Rotary{.x = x.slice(2, call.first_channel, call.rotated_channels()),
                     .positions = call.positions,
                     .cosine = call.cosine,
                     .sine = call.sine,
                     .convention = call.convention});
    }
  }
  append(k, call.slots, call.keys, call.key_scales);
  append(call.v, call.slots, call.values, call.value_scales);
}

void execute(const CachedAttention& call) {
  const Values begins = Values::read(call.begins);
  const Values lengths = Values::read(call.lengths);
  const Values table = Values::read(call.table);
  for (std::int64_t sample = 0; sample < call.lengths.elements(); ++sample) {
    const auto begin = static_cast<std::int64_t>(begins(sample));
    const std::int64_t rows = static_cast<std::int64_t>(begins(sample + 1)) - begin;
    const auto keys = static_cast<std::int64_t>(lengths(sample));
    const DType dtype = call.q.dtype();
    const std::int64_t latents = call.of_latents() ? call.out.dim(2) : 0;
    const CachedRows cached_keys{call.keys, call.key_scales, call.value_scales, latents};
    const CachedRows cached_values{call.values, call.value_scales, call.value_scales};
    const Tensor k = without_pages(cached_keys, dtype, table, sample, keys);
    const Tensor lse = host_tensor(sum_dtype(call.q.dtype()), {1, call.q.dim(1), rows});
    execute(AttentionForward{.out = call.out.slice(0, begin, rows).split_dim(0, rows),
                             .lse = lse,
                             .q = call.q.slice(0, begin, rows).split_dim(0, rows),
                             .k = k,
                             .v = call.of_latents()
                                      ? k.slice(3, 0, latents)
                                      : without_pages(cached_values, dtype, table, sample, keys),
                             .mask = call.mask_of(rows, keys),
                             .scale = call.scale,
                             .soft_cap = call.soft_cap});
    if (call.lse.defined()) Values::read(lse.select(0, 0)).write(call.lse.slice(1, begin, rows));
  }
}

}  // namespace piton::reference
