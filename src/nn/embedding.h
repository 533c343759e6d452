// The two layers of a language model that depend on the vocabulary: the embedding of tokens (and
// positions), and the head with its loss. The tensor ranks split the rows of their tables. Padding
// rows exist only in memory, not in checkpoints.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/chunk.h"
#include "nn/norm.h"
#include "nn/shard.h"
#include "ops/normalized_rows.h"

namespace piton {

struct EmbeddingShape {
  std::int64_t hidden = 0;         // h
  std::int64_t max_positions = 0;  // rows of the table of learned positions; 0: no table
  double scale = 1;                // factor of the token embeddings
  bool scales_noise = false;       // ModelInput::noise is added before that factor, not after it
  std::int64_t token_types = 0;    // rows of the table of token types; 0: no table
  std::optional<NormShape> norm;   // norm of the token embeddings, before positions are added,
  bool norm_of_sum = false;        // or of the sum of all tables
  std::optional<DType> stream;     // type of the result; unset: that of the table
  double hidden_dropout = 0;       // probability
  std::string dropout_site = "embedding.dropout";  // of two embeddings, each draws its own masks
  Initialization positions;  // of the tables of learned positions and of types
  std::vector<int> stages;   // that hold these tables, if several do
};

class Embedding {
 public:
  // `tokens`: the table [padded / t, h], which the head may share. Two embeddings share the tables
  // of positions and of types.
  Embedding(ParameterList& parameters, const Shard& shard, Parameter& tokens,
            const Vocabulary& vocabulary, const EmbeddingShape& shape);
  // input.tokens int32 [b*s] -> [b*s, h], under sequence parallelism this rank's rows [b*s/t, h].
  Value forward(Context& context, const ModelInput& input) const;

 private:
  Value noisy_tokens(Context& context, const ModelInput& input) const;

  Shard shard_;
  Vocabulary vocabulary_;
  Parameter* tokens_;
  double scale_;
  bool scales_noise_;
  std::optional<Norm> norm_;
  bool norm_of_sum_;
  Parameter* positions_ = nullptr;
  Parameter* types_ = nullptr;
  std::optional<DType> stream_;
  double hidden_dropout_;
  std::string dropout_site_;
};

// Gathers rows of x [n, h] (under sequence parallelism this rank's [n/t, h]) on every tensor rank:
// the rows with the numbers `rows`, int32 [k] -> [k, h], or all rows -> [n, h] if `rows` is empty.
Tensor whole_rows(Context& context, const Shard& shard, const Tensor& x, const Tensor& rows);
// The rows of x [n, h] with the numbers `rows`, int32 [k] -> [k, h].
Tensor chosen_rows(const Context& context, const Tensor& x, const Tensor& rows);

struct HeadShape {
  bool normalized = false;    // each row of the table divided by its length (ops/normalized_rows.h)
  double divisor = 1;         // of logits, before their cap: the rows of x are divided by it
  double soft_cap = 0;        // of logits (kernels/elementwise.h); 0: none
  Parameter* bias = nullptr;  // [padded / t] of the logits; null: none
  bool same_rows = false;     // loss() gets the same rows on every tensor rank, in any case
};

class Head {
 public:
  Head(const Shard& shard, Parameter& table, const Vocabulary& vocabulary, const HeadShape& shape);
  // x [n, h], the same on every tensor rank -> fp32 (fp64) [n, padded / t]: the logits of this
  // rank's part of the vocabulary. For a loss use loss(), which needs less memory.
  Tensor logits(Context& context, const Tensor& x) const;
  // The loss of x [n, h], under sequence parallelism this rank's [n/t, h] unless
  // HeadShape::same_rows. Labels and mask are [n].
  LossOutput loss(Context& context, const Value& x, const LossInputs& inputs) const;

 private:
  Shard shard_;
  Vocabulary vocabulary_;
  Parameter* table_;
  Parameter* bias_;
  bool same_rows_;
  double divisor_;
  double soft_cap_;
  std::shared_ptr<NormalizedRowsCache> normalized_;  // null: the table as it is
};

}  // namespace piton
