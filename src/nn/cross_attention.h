// Attention of a decoder's rows to the outputs of an encoder (Vaswani et al. 2017,
// arXiv:1706.03762): queries of the decoder, keys and values of the encoder, then the output
// projection, bias, dropout and residual. Each tensor rank has a/t of the heads.
#pragma once

#include <optional>
#include <string>

#include "nn/attention.h"

namespace piton {

// What is read of the encoder.
struct CrossInput {
  std::int64_t batch = 1;  // b; ignored with a cache
  Value source;            // [b*ss, h], under sequence parallelism this rank's [b*ss/t, h]
  Tensor lengths;          // int32 [b]: keys from there on are padding
  // In generation: keys and values that write_keys() computed. Row i of a pass is a sample of one
  // row, whose text has the whole source.
  std::optional<CacheView> cache;
  bool recompute = false;  // AttentionSettings::recompute
};

class CrossAttention {
 public:
  // Reads of `shape`: sizes, biases, scale, dropout. Every key is seen by every query.
  CrossAttention(ParameterList& parameters, const Shard& shard, const std::string& name,
                 const AttentionShape& shape, const BranchInitialization& initialization);
  // residual + dropout(attention(x) + bias). x, residual and the result: [b*s, h], under sequence
  // parallelism this rank's [b*s/t, h].
  Value forward(Context& context, const Value& x, const Value& residual,
                const CrossInput& input) const;
  // Writes the keys and values of `source` [n, h] to a cache, at slots int32 [n].
  void write_keys(Context& context, const Tensor& source, const CacheView& cache,
                  const Tensor& slots) const;

 private:
  // [n, h] -> keys and values, [n, heads, d] each.
  std::pair<Value, Value> keys_and_values(Context& context, const Value& source) const;

  Shard shard_;
  AttentionShape shape_;
  std::string attention_site_;
  std::string output_site_;
  ColumnLinear query_;
  ColumnLinear key_value_;
  RowLinear output_;
};

}  // namespace piton
