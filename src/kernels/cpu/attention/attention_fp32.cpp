// Attention by tiles of fp32 with a running softmax (Milakov & Gimelshein 2018, arXiv:1805.02867;
// Dao et al. 2022, arXiv:2205.14135): the matrix of scores is never stored, and tiles without a
// visible pair are skipped.
//
// The triangle form differs only in its blocks: parts of block_rows queries, and tiles as wide as
// all keys of the part, so that the running softmax has one step.
//
// Forward divides (sample, head, part of the queries) among threads. With few queries, as in
// decoding, a part has several heads that share keys, which are then converted once for all of
// them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention.h"
#include "kernels/cpu/attention/attention_backward.h"
#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// With a soft cap, scales and caps the scores q . k of one tile. Returns the factor that the scores
// still have to be multiplied by.
template <typename Call>
float cap_scores(const CpuContext& context, const Call& call, float* scores, std::int64_t count) {
  const auto scale = static_cast<float>(call.scale);
  if (call.soft_cap == 0) return scale;
  context.vector.soft_cap(scores, scores, count, scale, static_cast<float>(call.soft_cap));
  return 1;
}

// Columns [begin, end) of a row of a tile have a bias: column c that of number first + c.
struct BiasRow {
  std::int64_t first;
  std::int64_t begin;
  std::int64_t end;
};
// `key`: of column 0.
BiasRow bias_row(const AttentionMask& mask, const Sight& sight, std::int64_t query,
                 std::int64_t key, std::int64_t columns) {
  const std::int64_t first = key - sight.positions()[query] + mask.bias_origin;
  return {first, std::clamp<std::int64_t>(-first, 0, columns),
          std::clamp<std::int64_t>(mask.bias.dim(1) - first, 0, columns)};
}

// With a bias, multiplies the scores of one tile by `factor` and adds their biases. Returns the
// factor that they still have to be multiplied by. Pairs without a distance are invisible.
float add_bias(const AttentionMask& mask, const Sight& sight, std::int64_t head, std::int64_t query,
               std::int64_t queries, std::int64_t key, std::int64_t columns, float* scores,
               float factor) {
  if (!mask.bias.defined()) return factor;
  const float* bias = mask.bias.data<float>() + head * mask.bias.dim(1);
  for (std::int64_t r = 0; r < queries; ++r) {
    const BiasRow row = bias_row(mask, sight, query + r, key, columns);
    float* at = scores + r * columns;
    for (std::int64_t c = row.begin; c < row.end; ++c) at[c] = factor * at[c] + bias[row.first + c];
  }
  return 1;
}

class Forward {
 public:
  Forward(CpuContext& context, const ForwardWork& work)
      : context_(context),
        work_(work),
        call_(work.call),
        masks_(call_.dropout),
        d_(call_.q.dim(3)),
        values_(call_.v.dim(3)),
        wide_(padded(d_, context.vector.lanes)),
        wide_values_(padded(values_, context.vector.lanes)),
        part_rows_(call_.block_rows > 0 ? call_.block_rows : kQueryPart),
        together_(heads_together()) {}

  std::int64_t parts() const { return work_.stretches() * head_parts() * query_parts(); }

  void operator()(std::int64_t part) const {
    const std::int64_t heads = call_.q.dim(2) / together_;
    const std::int64_t begin = part / head_parts() % query_parts() * part_rows_;
    const std::int64_t head = part % head_parts() % heads * together_;
    const std::int64_t batch = part % head_parts() / heads;
    run(batch, head, begin, std::min(begin + part_rows_, call_.q.dim(1)),
        part / head_parts() / query_parts());
  }

 private:
  std::int64_t head_parts() const { return call_.q.dim(0) * call_.q.dim(2) / together_; }
  std::int64_t query_parts() const { return (call_.q.dim(1) + part_rows_ - 1) / part_rows_; }

  // Heads of a part, which have the same keys: as many as fill one tile of queries, but every
  // thread gets a part.
  std::int64_t heads_together() const {
    const std::int64_t queries = call_.q.dim(1);
    const std::int64_t heads = call_.q.dim(2) / call_.k.dim(2);
    if (call_.block_rows > 0) return 1;
    const std::int64_t all = call_.q.dim(0) * call_.q.dim(2);
    const std::int64_t most = std::min(kQueryBlock / queries, all / context_.threads.threads());
    std::int64_t together = std::min(heads, std::max<std::int64_t>(most, 1));
    while (heads % together != 0) --together;
    return together;
  }

  // `share`: of the keys, which stretch of ForwardWork.
  void run(std::int64_t batch, std::int64_t head, std::int64_t begin, std::int64_t end,
           std::int64_t share) const {
    const std::int64_t sq = call_.q.dim(1);
    const std::int64_t sk = work_.keys;
    const std::int64_t group = head / (call_.q.dim(2) / call_.k.dim(2));
    const std::int64_t rows = end - begin;  // of one head; those of the next head follow
    const std::int64_t all = together_ * rows;
    // Of tiles; the last one of the keys has fewer, and of few keys all have.
    const std::int64_t most =
        call_.block_rows > 0 ? padded(std::min(begin + part_rows_, sk), kKeyBlock) : kKeyBlock;
    Pieces pieces(context_.scratch.own(
        Sight::bytes(sq, sk) +
        4 * ((all + most) * (wide_ + wide_values_) + 2 * all + kQueryBlock * most) +
        work_.expanded_bytes() + 8 * 64));
    const Sight sight(call_.mask, call_.block_rows, batch, sq, sk,
                      pieces.bytes(Sight::bytes(sq, sk)));
    float* q = pieces.floats(all * wide_);
    float* out = pieces.floats(all * wide_values_);
    float* maxima = pieces.floats(all);
    float* sums = pieces.floats(all);
    float* k = pieces.floats(most * wide_);
    float* v = pieces.floats(most * wide_values_);
    float* scores = pieces.floats(kQueryBlock * most);
    std::byte* expanded = pieces.bytes(work_.expanded_bytes());
    const HeadRows keys = work_.key_rows(batch, group);
    const HeadRows values = work_.value_rows(batch, group);
    for (std::int64_t h = 0; h < together_; ++h) {
      load_rows(context_, HeadRows(call_.q, batch, head + h), begin, rows, sq, d_,
                q + h * rows * wide_, wide_);
    }
    std::fill_n(out, all * wide_values_, 0.0F);
    std::fill_n(maxima, all, -std::numeric_limits<float>::infinity());
    std::fill_n(sums, all, 0.0F);

    std::int64_t loaded = -1;
    const auto tile = [&](std::int64_t query, std::int64_t queries, std::int64_t key) {
      const std::int64_t valid = std::min(most, sight.keys() - key);
      const std::int64_t columns = padded(valid, context_.vector.lanes);
      if (key != loaded) {
        const HeadRows from = expanded_block(context_, keys, key, valid, expanded);
        load_columns(context_, from, key, columns, sight.keys(), d_, k);
        load_rows(context_,
                  work_.of_latents ? from : expanded_block(context_, values, key, valid, expanded),
                  key, valid, sight.keys(), values_, v, wide_values_);
        loaded = key;
      }
      const std::int64_t at = query - begin;  // 0 with several heads
      const int tile_rows = static_cast<int>(together_ * queries);
      context_.vector.product(tile_rows, static_cast<int>(columns), static_cast<int>(d_),
                              q + at * wide_, wide_, 1, k, columns, scores, columns, false);
      for (std::int64_t h = 0; h < together_; ++h) {
        float* of_head = scores + h * queries * columns;
        const std::int64_t row = at + h * rows;
        const float scale =
            add_bias(call_.mask, sight, head + h, query, queries, key, columns, of_head,
                     cap_scores(context_, call_, of_head, queries * columns));
        context_.vector.softmax_step(
            scores_of(sight, query, queries, key, of_head, scale, slope_of(head + h), columns),
            maxima + row, sums + row, out + row * wide_values_, wide_values_,
            static_cast<int>(wide_values_));
        drop(sight, batch, head + h, query, queries, key, columns, of_head);
      }
      context_.vector.product(tile_rows, static_cast<int>(wide_values_), static_cast<int>(valid),
                              scores, columns, 1, v, wide_values_, out + at * wide_values_,
                              wide_values_, true);
    };
    sight.for_tiles(begin, end, kQueryBlock, most, tile, most, work_.keys_of(share));
    if (work_.stretch_keys > 0) return write_partial(share, begin, rows, out, maxima, sums);
    for (std::int64_t h = 0; h < together_; ++h) {
      const std::int64_t row = h * rows;
      finish(HeadRows(call_.out, batch, head + h), batch, head + h, begin, rows,
             out + row * wide_values_, maxima + row, sums + row);
    }
  }

  void write_partial(std::int64_t share, std::int64_t begin, std::int64_t rows, const float* out,
                     const float* maxima, const float* sums) const {
    const PartialRows to = partial_rows(work_, share, begin);
    for (std::int64_t r = 0; r < rows; ++r)
      std::copy_n(out + r * wide_values_, values_, to.out + r * values_);
    std::copy_n(maxima, rows, to.bases);
    std::copy_n(sums, rows, to.sums);
  }

  float slope_of(std::int64_t head) const {
    return call_.mask.slopes.defined() ? call_.mask.slopes.data<float>()[head] : 0.0F;
  }

  void drop(const Sight& sight, std::int64_t batch, std::int64_t head, std::int64_t query,
            std::int64_t queries, std::int64_t key, std::int64_t columns, float* scores) const {
    if (!masks_.given()) return;
    for (std::int64_t r = 0; r < queries; ++r) {
      context_.vector.mask(scores + r * columns,
                           masks_.query(batch, call_.head_begin + head, sight.position(query + r)),
                           sight.first_position() + key, columns);
    }
  }

  void finish(const HeadRows& to, std::int64_t batch, std::int64_t head, std::int64_t begin,
              std::int64_t rows, float* out, const float* maxima, const float* sums) const {
    float* lse = lse_of(call_, batch, head, begin);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = out + r * wide_values_;
      const bool sees = maxima[r] != -std::numeric_limits<float>::infinity() || sums[r] != 0;
      const float inverse = sees ? 1.0F / sums[r] : 0.0F;
      for (std::int64_t c = 0; c < values_; ++c) row[c] *= inverse;
      context_.vector.convert(to.row(begin + r), to.type, row, Type::kF32, values_);
      if (lse == nullptr) continue;
      lse[r] = sees ? maxima[r] + std::log(sums[r]) : -std::numeric_limits<float>::infinity();
    }
  }

  CpuContext& context_;
  const ForwardWork& work_;
  const AttentionForward& call_;
  Masks masks_;
  std::int64_t d_;
  std::int64_t values_;  // channels of a value
  std::int64_t wide_;    // of rows of q and k, and of those of v and out
  std::int64_t wide_values_;
  std::int64_t part_rows_;
  std::int64_t together_;  // heads of a part
};

// Products of the backward pass (attention_backward.h).
class Fp32Gradients {
 public:
  static constexpr std::int64_t kQueries = kQueryBlock;

  Fp32Gradients(CpuContext& context, const AttentionBackward& call)
      : wide(padded(call.q.dim(3), context.vector.lanes)),
        context_(context),
        call_(call),
        masks_(call.dropout),
        sq_(call.q.dim(1)),
        d_(call.q.dim(3)) {}

  std::int64_t query_rows() const { return sq_; }
  std::int64_t key_rows() const { return padded(call_.k.dim(1), kKeyBlock); }
  std::int64_t bytes() const {
    return 4 * (2 * sq_ * wide + 3 * kKeyBlock * wide + 4 * kTile) + 9 * 64;
  }
  void take(Pieces& pieces) {
    q_ = pieces.floats(sq_ * wide);
    dout_ = pieces.floats(sq_ * wide);
    k_ = pieces.floats(kKeyBlock * wide);
    k_columns_ = pieces.floats(kKeyBlock * wide);
    v_columns_ = pieces.floats(kKeyBlock * wide);
    p_ = pieces.floats(kTile);
    capped_ = pieces.floats(kTile);
    dropped_ = pieces.floats(kTile);
    dp_ = pieces.floats(kTile);
  }

  void load_queries(const HeadRows& q, const HeadRows& dout) const {
    load_rows(context_, q, 0, sq_, sq_, d_, q_, wide);
    load_rows(context_, dout, 0, sq_, sq_, d_, dout_, wide);
  }
  void load_keys(const Sight& sight, const HeadRows& keys, const HeadRows& values,
                 std::int64_t key) const {
    load_rows(context_, keys, key, kKeyBlock, sight.keys(), d_, k_, wide);
    load_columns(context_, keys, key, kKeyBlock, sight.keys(), d_, k_columns_);
    load_columns(context_, values, key, kKeyBlock, sight.keys(), d_, v_columns_);
  }
  void end_keys(const Sight& /*sight*/, std::int64_t /*key*/, const GradientSums& /*sums*/) const {}

  void add(const GradientTile& tile, const GradientSums& sums) const {
    const VectorTable& vector = context_.vector;
    const auto& [sight, batch, head, query, queries, key, valid, lse, slope] = tile;
    const int m = static_cast<int>(queries);
    const int d = static_cast<int>(d_);
    const int width = static_cast<int>(wide);
    const float* q = q_ + query * wide;
    const float* dout = dout_ + query * wide;
    vector.product(m, kKeyBlock, d, q, wide, 1, k_columns_, kKeyBlock, p_, kKeyBlock, false);
    const float left = cap_scores(context_, call_, p_, queries * kKeyBlock);
    if (call_.soft_cap > 0)
      std::memcpy(capped_, p_, static_cast<std::size_t>(queries * kKeyBlock) * 4);
    const float scale = add_bias(call_.mask, sight, head, query, queries, key, kKeyBlock, p_, left);
    vector.softmax_again(scores_of(sight, query, queries, key, p_, scale, slope), lse + query);
    vector.product(m, kKeyBlock, d, dout, wide, 1, v_columns_, kKeyBlock, dp_, kKeyBlock, false);
    const float* kept = p_;
    if (masks_.given()) {
      std::memcpy(dropped_, p_, static_cast<std::size_t>(queries * kKeyBlock) * 4);
      for (std::int64_t r = 0; r < queries; ++r) {
        const MaskRow row = masks_.query(batch, call_.head_begin + head, sight.position(query + r));
        const std::int64_t column = sight.first_position() + key;
        vector.mask(dropped_ + r * kKeyBlock, row, column, kKeyBlock);
        vector.mask(dp_ + r * kKeyBlock, row, column, kKeyBlock);
      }
      kept = dropped_;
    }
    vector.product(kKeyBlock, width, m, kept, 1, kKeyBlock, dout, wide, sums.dv + key * wide, wide,
                   true);
    vector.score_gradient(dp_, p_, kKeyBlock, m, kKeyBlock, sums.delta + query,
                          static_cast<float>(call_.scale));
    if (call_.dbias.defined()) add_bias_gradient(tile);
    if (call_.soft_cap > 0) {
      vector.soft_cap_gradient(dp_, dp_, Type::kF32, capped_, queries * kKeyBlock,
                               static_cast<float>(call_.soft_cap));
    }
    vector.product(kKeyBlock, width, m, dp_, 1, kKeyBlock, q, wide, sums.dk + key * wide, wide,
                   true);
    vector.product(m, width, kKeyBlock, dp_, kKeyBlock, 1, k_, wide, sums.dq + query * wide, wide,
                   true);
  }

  const std::int64_t wide;

 private:
  static constexpr std::int64_t kTile = kQueryBlock * kKeyBlock;

  // Of dp_, the gradients of scores times the scale; 0 where invisible.
  void add_bias_gradient(const GradientTile& tile) const {
    const auto inverse = static_cast<float>(1 / call_.scale);
    const Tensor& dbias = call_.dbias;
    float* sums = dbias.data<float>() + (tile.batch * dbias.dim(1) + tile.head) * dbias.dim(2);
    for (std::int64_t r = 0; r < tile.queries; ++r) {
      const BiasRow row = bias_row(call_.mask, tile.sight, tile.query + r, tile.key, kKeyBlock);
      const float* from = dp_ + r * kKeyBlock;
      for (std::int64_t c = row.begin; c < row.end; ++c) sums[row.first + c] += inverse * from[c];
    }
  }

  CpuContext& context_;
  const AttentionBackward& call_;
  Masks masks_;
  std::int64_t sq_;
  std::int64_t d_;
  float* q_ = nullptr;     // [sq, wide]
  float* dout_ = nullptr;  // [sq, wide]
  float* k_ = nullptr;     // of one block of keys, [kKeyBlock, wide]
  float* k_columns_ = nullptr;
  float* v_columns_ = nullptr;
  float* p_ = nullptr;       // [kQueryBlock, kKeyBlock] of one tile, as the next ones
  float* capped_ = nullptr;  // scores
  float* dropped_ = nullptr;
  float* dp_ = nullptr;
};

}  // namespace

ForwardParts forward_parts_fp32(CpuContext& context, const ForwardWork& work) {
  ForwardParts parts = parts_of<Forward>(context, work);
  parts.merge = [&](std::int64_t row) { merge_stretches(context, work, SoftmaxBase::kE, row); };
  return parts;
}

void attention_backward_fp32(CpuContext& context, const AttentionBackward& call) {
  // A part adds to the heads of its sample alone.
  if (call.dbias.defined())
    std::memset(call.dbias.raw(), 0, static_cast<std::size_t>(call.dbias.bytes()));
  const BackwardPass<Fp32Gradients> backward(context, call);
  context.threads.run(backward.parts(), backward);
}

}  // namespace piton::cpu
