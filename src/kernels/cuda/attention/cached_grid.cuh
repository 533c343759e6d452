// Attention to a cache in pages in device code: what both of its kernels read. Internal to this
// folder.
#pragma once

#include "kernels/cached_attention.h"
#include "kernels/cuda/attention/attention_tensor.cuh"

namespace piton::cuda {

template <typename T, bool kCoded>
struct CachedGrid {
  T* out;
  std::int64_t out_stride;
  std::int64_t out_head_stride;
  Wide<T>* lse;           // [a, n], or nullptr
  std::int64_t lse_rows;  // n
  const T* q;
  std::int64_t q_stride;
  std::int64_t q_head_stride;
  CachedRows<T, kCoded> keys;
  CachedRows<T, kCoded> values;
  const std::int32_t* begins;
  const std::int32_t* lengths;
  const std::int32_t* table;
  std::int64_t samples;
  std::int64_t pages;  // of a row of the table
  KeySight sight;      // without what depends on the sample: sight_of_sample()
  ScoreRules rules;
  std::int64_t heads_per_key;
  std::int64_t d;
  bool vectors;  // in_vectors(), of q and of a cache without codes

  __device__ std::int64_t rows_of(std::int64_t sample) const {
    return begins[sample + 1] - begins[sample];
  }
  __device__ KeySight sight_of_sample(std::int64_t sample) const {
    KeySight of_sample = sight;
    of_sample.queries = rows_of(sample);
    of_sample.keys = lengths[sample];
    of_sample.query_begin = of_sample.keys - of_sample.queries;
    return of_sample;
  }
};

template <typename T, bool kCoded>
CachedGrid<T, kCoded> cached_grid(const CachedAttention& call) {
  return {
      .out = pointer<T>(call.out),
      .out_stride = call.out.stride(0),
      .out_head_stride = call.out.stride(1),
      .lse = pointer<Wide<T>>(call.lse),
      .lse_rows = call.q.dim(0),
      .q = pointer<const T>(call.q),
      .q_stride = call.q.stride(0),
      .q_head_stride = call.q.stride(1),
      .keys = cached_rows<T, kCoded>(call.keys, call.key_scales),
      .values = cached_rows<T, kCoded>(call.values, call.value_scales),
      .begins = pointer<const std::int32_t>(call.begins),
      .lengths = pointer<const std::int32_t>(call.lengths),
      .table = pointer<const std::int32_t>(call.table),
      .samples = call.lengths.elements(),
      .pages = call.table.dim(1),
      .sight = sight_of(call.mask_of(0, 0), 0, 0),
      .rules = {.scale = static_cast<float>(call.scale), .cap = static_cast<float>(call.soft_cap)},
      .heads_per_key = call.q.dim(1) / call.keys.dim(2),
      .d = call.q.dim(2),
      .vectors = in_vectors(call.q) && in_vectors(call.keys) && in_vectors(call.values)};
}

}  // namespace piton::cuda
