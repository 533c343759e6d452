// Attention by tiles of fp32 with a running softmax (Milakov & Gimelshein 2018, arXiv:1805.02867;
// Dao et al. 2022, arXiv:2205.14135): the matrix of scores is never stored, and tiles without a
// visible pair are skipped.
//
// The triangle form differs only in its blocks: parts of block_rows queries, and tiles as wide as
// all keys of the part, so that the running softmax has one step.
//
// Forward divides (sample, head, part of the queries) among threads, backward (sample, key head):
// one thread takes the query heads of a key head in order, so the order of sums into dk and dv is
// fixed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// With a soft cap, scales and caps the scores q . k of one tile. Returns the factor that the scores
// still have to be multiplied by.
template <typename Call>
float cap_scores(const Context& context, const Call& call, float* scores, std::int64_t count) {
  const auto scale = static_cast<float>(call.scale);
  if (call.soft_cap == 0) return scale;
  context.vector.soft_cap(scores, scores, count, scale, static_cast<float>(call.soft_cap));
  return 1;
}

class Forward {
 public:
  Forward(Context& context, const AttentionForward& call)
      : context_(context),
        call_(call),
        masks_(call.dropout),
        d_(call.q.dim(3)),
        wide_(padded(d_, context.vector.lanes)),
        part_rows_(call.block_rows > 0 ? call.block_rows : kQueryPart) {}

  std::int64_t parts() const { return call_.q.dim(0) * call_.q.dim(2) * query_parts(); }

  void operator()(std::int64_t part) const {
    const std::int64_t heads = call_.q.dim(0) * call_.q.dim(2);
    const std::int64_t begin = part / heads * part_rows_;
    const std::int64_t head = part % heads % call_.q.dim(2);
    const std::int64_t batch = part % heads / call_.q.dim(2);
    run(batch, head, begin, std::min(begin + part_rows_, call_.q.dim(1)));
  }

 private:
  std::int64_t query_parts() const { return (call_.q.dim(1) + part_rows_ - 1) / part_rows_; }

  void run(std::int64_t batch, std::int64_t head, std::int64_t begin, std::int64_t end) const {
    const std::int64_t sq = call_.q.dim(1);
    const std::int64_t sk = call_.k.dim(1);
    const std::int64_t group = head / (call_.q.dim(2) / call_.k.dim(2));
    const std::int64_t rows = end - begin;
    const std::int64_t columns =
        call_.block_rows > 0 ? padded(std::min(begin + part_rows_, sk), kKeyBlock) : kKeyBlock;
    Pieces pieces(context_.scratch.own(
        Sight::bytes(sq, sk) +
        4 * (2 * rows * wide_ + 2 * rows + 2 * columns * wide_ + kQueryBlock * columns) + 8 * 64));
    const Sight sight(call_.mask, call_.block_rows, batch, sq, sk,
                      pieces.bytes(Sight::bytes(sq, sk)));
    float* q = pieces.floats(rows * wide_);
    float* out = pieces.floats(rows * wide_);
    float* maxima = pieces.floats(rows);
    float* sums = pieces.floats(rows);
    float* k = pieces.floats(columns * wide_);
    float* v = pieces.floats(columns * wide_);
    float* scores = pieces.floats(kQueryBlock * columns);
    const float slope = call_.mask.slopes.defined() ? call_.mask.slopes.data<float>()[head] : 0.0F;
    const Head keys(call_.k, batch, group);
    const Head values(call_.v, batch, group);
    load_rows(context_, Head(call_.q, batch, head), begin, rows, sq, d_, q, wide_);
    std::fill_n(out, rows * wide_, 0.0F);
    std::fill_n(maxima, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sums, rows, 0.0F);

    std::int64_t loaded = -1;
    const auto tile = [&](std::int64_t query, std::int64_t queries, std::int64_t key) {
      if (key != loaded) {
        load_columns(context_, keys, key, columns, sight.keys(), d_, k);
        load_rows(context_, values, key, columns, sight.keys(), d_, v, wide_);
        loaded = key;
      }
      const std::int64_t at = query - begin;
      context_.vector.product(static_cast<int>(queries), static_cast<int>(columns),
                              static_cast<int>(d_), q + at * wide_, wide_, 1, k, columns, scores,
                              columns, false);
      const float scale = cap_scores(context_, call_, scores, queries * columns);
      context_.vector.softmax_step(
          scores_of(sight, query, queries, key, scores, scale, slope, columns), maxima + at,
          sums + at, out + at * wide_, wide_, static_cast<int>(wide_));
      drop(sight, batch, head, query, queries, key, columns, scores);
      context_.vector.product(static_cast<int>(queries), static_cast<int>(wide_),
                              static_cast<int>(columns), scores, columns, 1, v, wide_,
                              out + at * wide_, wide_, true);
    };
    sight.for_tiles(begin, end, kQueryBlock, columns, tile);
    finish(Head(call_.out, batch, head), batch, head, begin, rows, out, maxima, sums);
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

  void finish(const Head& to, std::int64_t batch, std::int64_t head, std::int64_t begin,
              std::int64_t rows, float* out, const float* maxima, const float* sums) const {
    float* lse =
        call_.lse.data<float>() + batch * call_.lse.stride(0) + head * call_.lse.stride(1) + begin;
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = out + r * wide_;
      const bool sees = maxima[r] != -std::numeric_limits<float>::infinity() || sums[r] != 0;
      const float inverse = sees ? 1.0F / sums[r] : 0.0F;
      for (std::int64_t c = 0; c < d_; ++c) row[c] *= inverse;
      context_.vector.convert(to.row(begin + r), to.type, row, Type::kF32, d_);
      lse[r] = sees ? maxima[r] + std::log(sums[r]) : -std::numeric_limits<float>::infinity();
    }
  }

  Context& context_;
  const AttentionForward& call_;
  Masks masks_;
  std::int64_t d_;
  std::int64_t wide_;
  std::int64_t part_rows_;
};

// With P from q, k and lse, masks M, and D_i = dout_i . out_i, tile by tile:
//   dv_j += (M P)^T dout_i     dS = P (M (dout_i v_j^T) - D_i) scale, times the slope of a soft cap
//   dq_i += dS k_j             dk_j += dS^T q_i
class Backward {
 public:
  Backward(Context& context, const AttentionBackward& call)
      : context_(context),
        call_(call),
        masks_(call.dropout),
        sq_(call.q.dim(1)),
        sk_(call.k.dim(1)),
        d_(call.q.dim(3)),
        wide_(padded(d_, context.vector.lanes)) {}

  std::int64_t parts() const { return call_.k.dim(0) * call_.k.dim(2); }

  void operator()(std::int64_t part) const {
    const std::int64_t batch = part / call_.k.dim(2);
    const std::int64_t group = part % call_.k.dim(2);
    const std::int64_t heads = call_.q.dim(2) / call_.k.dim(2);
    const std::int64_t keys = padded(sk_, kKeyBlock);
    constexpr std::int64_t kTile = kQueryBlock * kKeyBlock;
    Pieces pieces(context_.scratch.own(
        Sight::bytes(sq_, sk_) +
        4 * (3 * sq_ * wide_ + sq_ + 2 * keys * wide_ + 3 * kKeyBlock * wide_ + 4 * kTile) +
        17 * 64));
    const Sight sight(call_.mask, call_.block_rows, batch, sq_, sk_,
                      pieces.bytes(Sight::bytes(sq_, sk_)));
    Tiles tiles{.q = pieces.floats(sq_ * wide_),
                .dout = pieces.floats(sq_ * wide_),
                .dq = pieces.floats(sq_ * wide_),
                .delta = pieces.floats(sq_),
                .dk = pieces.floats(keys * wide_),
                .dv = pieces.floats(keys * wide_),
                .k = pieces.floats(kKeyBlock * wide_),
                .k_columns = pieces.floats(kKeyBlock * wide_),
                .v_columns = pieces.floats(kKeyBlock * wide_),
                .p = pieces.floats(kTile),
                .capped = pieces.floats(kTile),
                .dropped = pieces.floats(kTile),
                .dp = pieces.floats(kTile)};
    std::fill_n(tiles.dk, keys * wide_, 0.0F);
    std::fill_n(tiles.dv, keys * wide_, 0.0F);
    for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
      run(sight, batch, group, head, tiles);
    }
    store(Head(call_.dk, batch, group), tiles.dk, sk_);
    store(Head(call_.dv, batch, group), tiles.dv, sk_);
  }

 private:
  struct Tiles {
    float* q;
    float* dout;
    float* dq;
    float* delta;
    float* dk;
    float* dv;
    float* k;
    float* k_columns;
    float* v_columns;
    float* p;
    float* capped;  // scores
    float* dropped;
    float* dp;
  };

  void store(const Head& to, const float* from, std::int64_t rows) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      context_.vector.convert(to.row(r), to.type, from + r * wide_, Type::kF32, d_);
    }
  }

  void run(const Sight& sight, std::int64_t batch, std::int64_t group, std::int64_t head,
           const Tiles& tiles) const {
    const Head out(call_.out, batch, head);
    const Head dout(call_.dout, batch, head);
    load_rows(context_, Head(call_.q, batch, head), 0, sq_, sq_, d_, tiles.q, wide_);
    load_rows(context_, dout, 0, sq_, sq_, d_, tiles.dout, wide_);
    std::fill_n(tiles.dq, sq_ * wide_, 0.0F);
    for (std::int64_t r = 0; r < sq_; ++r) {
      tiles.delta[r] = context_.vector.dot(dout.row(r), dout.type, out.row(r), out.type, d_);
    }
    std::int64_t loaded = -1;
    sight.for_tiles(0, sq_, kQueryBlock, kKeyBlock,
                    [&](std::int64_t query, std::int64_t queries, std::int64_t key) {
                      if (key != loaded) {
                        load_rows(context_, Head(call_.k, batch, group), key, kKeyBlock,
                                  sight.keys(), d_, tiles.k, wide_);
                        load_columns(context_, Head(call_.k, batch, group), key, kKeyBlock,
                                     sight.keys(), d_, tiles.k_columns);
                        load_columns(context_, Head(call_.v, batch, group), key, kKeyBlock,
                                     sight.keys(), d_, tiles.v_columns);
                        loaded = key;
                      }
                      tile(sight, batch, head, query, queries, key, tiles);
                    });
    store(Head(call_.dq, batch, head), tiles.dq, sq_);
  }

  void tile(const Sight& sight, std::int64_t batch, std::int64_t head, std::int64_t query,
            std::int64_t queries, std::int64_t key, const Tiles& t) const {
    const VectorTable& vector = context_.vector;
    const int m = static_cast<int>(queries);
    const int d = static_cast<int>(d_);
    const int wide = static_cast<int>(wide_);
    const float slope = call_.mask.slopes.defined() ? call_.mask.slopes.data<float>()[head] : 0.0F;
    const float* lse =
        call_.lse.data<float>() + batch * call_.lse.stride(0) + head * call_.lse.stride(1);
    const float* q = t.q + query * wide_;
    const float* dout = t.dout + query * wide_;
    vector.product(m, kKeyBlock, d, q, wide_, 1, t.k_columns, kKeyBlock, t.p, kKeyBlock, false);
    const float scale = cap_scores(context_, call_, t.p, queries * kKeyBlock);
    if (call_.soft_cap > 0)
      std::memcpy(t.capped, t.p, static_cast<std::size_t>(queries * kKeyBlock) * 4);
    vector.softmax_again(scores_of(sight, query, queries, key, t.p, scale, slope), lse + query);
    vector.product(m, kKeyBlock, d, dout, wide_, 1, t.v_columns, kKeyBlock, t.dp, kKeyBlock, false);
    const float* kept = t.p;
    if (masks_.given()) {
      std::memcpy(t.dropped, t.p, static_cast<std::size_t>(queries * kKeyBlock) * 4);
      for (std::int64_t r = 0; r < queries; ++r) {
        const MaskRow row = masks_.query(batch, call_.head_begin + head, sight.position(query + r));
        const std::int64_t column = sight.first_position() + key;
        vector.mask(t.dropped + r * kKeyBlock, row, column, kKeyBlock);
        vector.mask(t.dp + r * kKeyBlock, row, column, kKeyBlock);
      }
      kept = t.dropped;
    }
    vector.product(kKeyBlock, wide, m, kept, 1, kKeyBlock, dout, wide_, t.dv + key * wide_, wide_,
                   true);
    vector.score_gradient(t.dp, t.p, kKeyBlock, m, kKeyBlock, t.delta + query,
                          static_cast<float>(call_.scale));
    if (call_.soft_cap > 0) {
      vector.soft_cap_gradient(t.dp, t.dp, Type::kF32, t.capped, queries * kKeyBlock,
                               static_cast<float>(call_.soft_cap));
    }
    vector.product(kKeyBlock, wide, m, t.dp, 1, kKeyBlock, q, wide_, t.dk + key * wide_, wide_,
                   true);
    vector.product(m, wide, kKeyBlock, t.dp, kKeyBlock, 1, t.k, wide_, t.dq + query * wide_, wide_,
                   true);
  }

  Context& context_;
  const AttentionBackward& call_;
  Masks masks_;
  std::int64_t sq_;
  std::int64_t sk_;
  std::int64_t d_;
  std::int64_t wide_;
};

}  // namespace

void attention_forward_fp32(Context& context, const AttentionForward& call) {
  const Forward forward(context, call);
  context.threads.run(forward.parts(), forward);
}

void attention_backward_fp32(Context& context, const AttentionBackward& call) {
  const Backward backward(context, call);
  context.threads.run(backward.parts(), backward);
}

}  // namespace piton::cpu
