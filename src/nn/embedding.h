// The two ends of a language model that know the vocabulary: token (and position) embedding, and
// the head with its loss. The table is split over the vocabulary; padded rows exist only in memory.
#pragma once

#include <string>

#include "nn/chunk.h"
#include "nn/shard.h"

namespace piton {

struct Vocabulary {
  std::int64_t size = 0;    // V, real ids
  std::int64_t padded = 0;  // rows over all tensor ranks

  std::int64_t begin(const Shard& shard) const { return shard.rank() * (padded / shard.size()); }
  // Real ids among this rank's rows.
  std::int64_t valid(const Shard& shard) const;
};

class Embedding {
 public:
  // `max_positions` 0: no learned positions. `tokens`: the table, which the head may share.
  Embedding(ParameterList& parameters, const Shard& shard, Parameter& tokens,
            const Vocabulary& vocabulary, std::int64_t hidden, std::int64_t max_positions,
            Initialization initialization, double hidden_dropout);
  // [b*s, h], or this rank's part of the rows under sequence parallelism.
  Value forward(Context& context, const ModelInput& input) const;

 private:
  Shard shard_;
  Vocabulary vocabulary_;
  Parameter* tokens_;
  Parameter* positions_ = nullptr;
  double hidden_dropout_;
};

class Head {
 public:
  Head(const Shard& shard, Parameter& table, const Vocabulary& vocabulary);
  // `rows` (int32 [k]) of the micro-batch's x, all of them if empty, on every tensor rank; x [n,
  // h], under sequence parallelism this rank's [n/t, h].
  Tensor whole_rows(Context& context, const Tensor& x, const Tensor& rows) const;
  // Of x [n, h], whole rows on every tensor rank: fp32 (fp64) [n, padded / t], this rank's part of
  // the vocabulary. The loss takes loss(), which never holds more than a slice of them.
  Tensor logits(Context& context, const Tensor& x) const;
  // x [n, h], under sequence parallelism this rank's [n/t, h].
  LossOutput loss(Context& context, const Value& x, const LossInputs& inputs) const;

 private:
  Shard shard_;
  Vocabulary vocabulary_;
  Parameter* table_;
};

}  // namespace piton
