// Backward attention by tiles, for any `Products`: fp32 (attention_fp32.cpp), dot products
// (attention_dot.cpp) or tile products (attention_amx.cpp).
//
// With P from q, k and lse, masks M, and D_i = dout_i . out_i, tile by tile:
//   dv_j += (M P)^T dout_i     dS = P (M (dout_i v_j^T) - D_i) scale, times the slope of a soft cap
//   dq_i += dS k_j             dk_j += dS^T q_i
//
// A part is one (sample, key head): one thread takes the query heads of a key head in order, so the
// order of sums into dk and dv is fixed.
#pragma once

#include <algorithm>

#include "kernels/cpu/attention/attention_bf16.h"

namespace piton::cpu {

// Sums of one part, in fp32 [rows, wide].
struct GradientSums {
  float* dq = nullptr;     // of one query head
  float* delta = nullptr;  // [sq]: D of one query head
  float* dk = nullptr;
  float* dv = nullptr;
};

// One tile of scores.
struct GradientTile {
  const Sight& sight;
  std::int64_t batch = 0;
  std::int64_t head = 0;   // of queries
  std::int64_t query = 0;  // the first one
  std::int64_t queries = 0;
  std::int64_t key = 0;        // the first one
  std::int64_t valid = 0;      // existing keys of the block
  const float* lse = nullptr;  // of query 0
  float slope = 0;             // ALiBi
};

// Products(context, call) has:
//   kQueries                  queries of a tile
//   wide                      channels of a row of sums
//   query_rows(), key_rows()  rows of dq; of dk and dv
//   bytes()                   of its memory, and take(pieces), which gets it
//   load_queries(q, dout)                 rows of one query head
//   load_keys(sight, keys, values, key)   one block of keys and values
//   add(tile, sums)                       the gradients of a tile
//   end_keys(sight, key, sums)            called after the last tile of a block of keys
template <typename Products>
class BackwardPass {
 public:
  BackwardPass(CpuContext& context, const AttentionBackward& call)
      : context_(context), call_(call), sq_(call.q.dim(1)), sk_(call.k.dim(1)) {}

  std::int64_t parts() const { return call_.k.dim(0) * call_.k.dim(2); }

  void operator()(std::int64_t part) const {
    const std::int64_t batch = part / call_.k.dim(2);
    const std::int64_t group = part % call_.k.dim(2);
    const std::int64_t heads = call_.q.dim(2) / call_.k.dim(2);
    Products products(context_, call_);
    const std::int64_t query_sums = products.query_rows() * products.wide;
    const std::int64_t key_sums = products.key_rows() * products.wide;
    Pieces pieces(context_.scratch.own(Sight::bytes(sq_, sk_) + products.bytes() +
                                       4 * (query_sums + sq_ + 2 * key_sums) + 5 * 64));
    const Sight sight(call_.mask, call_.block_rows, batch, sq_, sk_,
                      pieces.bytes(Sight::bytes(sq_, sk_)));
    products.take(pieces);
    const GradientSums sums{.dq = pieces.floats(query_sums),
                            .delta = pieces.floats(sq_),
                            .dk = pieces.floats(key_sums),
                            .dv = pieces.floats(key_sums)};
    std::fill_n(sums.dk, key_sums, 0.0F);
    std::fill_n(sums.dv, key_sums, 0.0F);
    for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
      run(products, sight, batch, group, head, sums);
    }
    store(HeadRows(call_.dk, batch, group), sums.dk, sk_, products.wide);
    store(HeadRows(call_.dv, batch, group), sums.dv, sk_, products.wide);
  }

 private:
  void store(const HeadRows& to, const float* from, std::int64_t rows, std::int64_t wide) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      context_.vector.convert(to.row(r), to.type, from + r * wide, Type::kF32, call_.q.dim(3));
    }
  }

  void run(Products& products, const Sight& sight, std::int64_t batch, std::int64_t group,
           std::int64_t head, const GradientSums& sums) const {
    const HeadRows out(call_.out, batch, head);
    const HeadRows dout(call_.dout, batch, head);
    products.load_queries(HeadRows(call_.q, batch, head), dout);
    for (std::int64_t r = 0; r < sq_; ++r) {
      sums.delta[r] =
          context_.vector.dot(dout.row(r), dout.type, out.row(r), out.type, call_.q.dim(3));
    }
    std::fill_n(sums.dq, sq_ * products.wide, 0.0F);
    const HeadRows keys(call_.k, batch, group);
    const HeadRows values(call_.v, batch, group);
    GradientTile tile{
        .sight = sight,
        .batch = batch,
        .head = head,
        .lse = call_.lse.data<float>() + batch * call_.lse.stride(0) + head * call_.lse.stride(1),
        .slope = slope_of(call_.mask, head)};
    std::int64_t loaded = -1;
    const auto visit = [&](std::int64_t query, std::int64_t queries, std::int64_t key) {
      if (key != loaded) {
        if (loaded >= 0) products.end_keys(sight, loaded, sums);
        products.load_keys(sight, keys, values, key);
        loaded = key;
      }
      tile.query = query;
      tile.queries = queries;
      tile.key = key;
      tile.valid = std::min(kKeyBlock, sight.keys() - key);
      products.add(tile, sums);
    };
    sight.for_tiles(0, sq_, Products::kQueries, kKeyBlock, visit);
    if (loaded >= 0) products.end_keys(sight, loaded, sums);
    store(HeadRows(call_.dq, batch, head), sums.dq, sq_, products.wide);
  }

  CpuContext& context_;
  const AttentionBackward& call_;
  std::int64_t sq_;
  std::int64_t sk_;
};

// Scores and gradients of one tile [queries, kKeyBlock] in bf16.
struct Bf16Scores {
  float* scores = nullptr;
  float* dp = nullptr;
  float* kept = nullptr;      // dropout factors
  Pair* weights = nullptr;    // P, pairs of rows
  Pair* gradients = nullptr;  // dS, pairs of rows
  std::uint16_t* gradient_rows = nullptr;
};

// Products of BackwardPass in bf16: weights P and score gradients dS are rounded to bf16, sums are
// in fp32. `Matrices(context, call)` has the same members except add(), and
//   kRowUnit, kColumnUnit            rows and columns of a tile are rounded up to these
//   scores(tile, part, scores)       q k^T and dout v^T
//   add(tile, part, scores, sums)    dv, dk and dq
template <typename Matrices>
class Bf16Gradients : public Matrices {
 public:
  Bf16Gradients(CpuContext& context, const AttentionBackward& call)
      : Matrices(context, call), context_(context), call_(call), masks_(call.dropout) {}

  std::int64_t bytes() const { return Matrices::bytes() + 18 * kTile + 6 * 64; }
  void take(Pieces& pieces) {
    Matrices::take(pieces);
    scores_ = {.scores = pieces.floats(kTile),
               .dp = pieces.floats(kTile),
               .kept = pieces.floats(kTile),
               .weights = reinterpret_cast<Pair*>(pieces.floats(kTile / 2)),
               .gradients = reinterpret_cast<Pair*>(pieces.floats(kTile / 2)),
               .gradient_rows = reinterpret_cast<std::uint16_t*>(pieces.bytes(kTile * 2))};
  }

  void add(const GradientTile& tile, const GradientSums& sums) const {
    const Seen part = seen_of(tile.sight, tile.query, tile.queries, tile.key, Matrices::kRowUnit,
                              Matrices::kColumnUnit);
    const std::int64_t first = tile.query + part.skip;
    const std::int64_t count = tile.queries - part.skip;
    Matrices::scores(tile, part, scores_);
    const float* kept = factors(context_, masks_, tile.sight, tile.batch,
                                call_.head_begin + tile.head, first, count, tile.key, scores_.kept);
    ScoreArguments arguments = scores_of(tile.sight, first, count, tile.key, scores_.scores,
                                         static_cast<float>(call_.scale), tile.slope);
    arguments.columns = static_cast<int>(part.columns);
    context_.dot->score_gradients(arguments, kept, tile.lse + first, scores_.dp, sums.delta + first,
                                  scores_.weights, scores_.gradients, scores_.gradient_rows);
    Matrices::add(tile, part, scores_, sums);
  }

 private:
  static constexpr std::int64_t kTile = Matrices::kQueries * kKeyBlock;

  CpuContext& context_;
  const AttentionBackward& call_;
  Masks masks_;
  Bf16Scores scores_;
};

}  // namespace piton::cpu
