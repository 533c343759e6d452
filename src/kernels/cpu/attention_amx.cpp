// Attention in bf16 by tile products. Softmax and rounding are those of attention_dot.cpp. The five
// products read rows in place, and only keys and values are transposed: the gradients of keys and
// values are summed as their transposes,
//   dv^T = dout^T P,   dk^T = q^T dS,
// whose right sides are the pairs of rows that the gradient of the softmax writes.
#include <algorithm>
#include <utility>

#include "kernels/cpu/attention_forward_bf16.h"
#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// Queries of one tile: two groups.
constexpr std::int64_t kQueries = 2 * kTilePair;
constexpr std::int64_t kTile = kQueries * kKeyBlock;
constexpr std::int64_t kPairs = 16;  // per step

// Rows of bf16, `stride` elements apart, as a left side along their columns.
LeftTiles left_rows(const std::uint16_t* rows, std::int64_t stride) {
  return {.data = reinterpret_cast<const std::byte*>(rows),
          .group = kTilePair * stride * 2,
          .row = stride * 2,
          .step = kTileDepth * 2};
}
LeftTiles left_packed(const std::byte* data, std::int64_t group) {
  return {.data = data, .group = group};
}
RightTiles right_packed(const std::byte* data, std::int64_t k) {
  return {.data = data, .panel = tile_pair_bytes(k)};
}
// Pairs of rows of one tile of scores [kQueries / 2, kKeyBlock] as a right side along queries.
RightTiles right_pairs(const Pair* pairs) {
  return {.data = reinterpret_cast<const std::byte*>(pairs),
          .panel = kTilePair * 4,
          .row = kKeyBlock * 4,
          .half = kTileEdge * 4,
          .step = kPairs * kKeyBlock * 4};
}

// Bytes of kKeyBlock keys or values as a right side: along channels, and along keys.
std::int64_t across_bytes(std::int64_t d) { return tile_bytes(kKeyBlock, d); }
std::int64_t along_bytes(std::int64_t d) { return tile_bytes(d, kKeyBlock); }

Matrix rows_of(const Head& head, std::int64_t row) {
  return {head.row(row), Type::kBF16, head.stride};
}

// Products of the forward pass (attention_forward_bf16.h).
class TileProducts {
 public:
  static constexpr std::int64_t kQueries = cpu::kQueries;
  static constexpr std::int64_t kRowUnit = kTilePair;
  static constexpr std::int64_t kColumnUnit = kTilePair;
  static std::int64_t wide(std::int64_t d) { return padded(d, kTilePair); }

  TileProducts(const Context& context, std::int64_t d)
      : key_bytes(across_bytes(d)),
        value_bytes(along_bytes(d)),
        table_(*context.tiles),
        scope_(table_),
        d_(d) {}

  void pack(std::byte* k, std::byte* v, const Matrix& keys, const Matrix& values,
            std::int64_t valid) const {
    table_.pack_right_rows(k, keys, valid, d_);
    table_.pack_right(v, values, d_, valid);
  }
  void scores(const std::uint16_t* q, std::int64_t count, const Seen& part, const std::byte* k,
              std::int64_t /*valid*/, float* scores) const {
    table_.multiply({.rows = count,
                     .columns = part.columns,
                     .steps = tile_steps(d_),
                     .left = left_rows(q, wide(d_)),
                     .right = right_packed(k, d_),
                     .sums = scores,
                     .sums_stride = kKeyBlock});
  }
  void add_values(const std::uint16_t* weights, std::int64_t count, const Seen& part,
                  const std::byte* v, std::int64_t valid, float* out) const {
    table_.multiply({.rows = count,
                     .columns = d_,
                     .steps = tile_steps(part.columns),
                     .left = left_rows(weights, kKeyBlock),
                     .right = right_packed(v, valid),
                     .sums = out,
                     .sums_stride = wide(d_),
                     .adds = true});
  }

  const std::int64_t key_bytes;
  const std::int64_t value_bytes;

 private:
  const TileTable& table_;
  TileScope scope_;
  std::int64_t d_;
};

class Backward {
 public:
  Backward(Context& context, const AttentionBackward& call)
      : context_(context),
        call_(call),
        masks_(call.dropout),
        sq_(call.q.dim(1)),
        sk_(call.k.dim(1)),
        d_(call.q.dim(3)),
        wide_(padded(d_, kTilePair)) {}

  std::int64_t parts() const { return call_.k.dim(0) * call_.k.dim(2); }

  void operator()(std::int64_t part) const {
    const std::int64_t batch = part / call_.k.dim(2);
    const std::int64_t group = part % call_.k.dim(2);
    const std::int64_t heads = call_.q.dim(2) / call_.k.dim(2);
    const std::int64_t queries = padded(sq_, kQueries);
    Pieces pieces(context_.scratch.own(Sight::bytes(sq_, sk_) + queries * wide_ * 12 + 4 * sq_ +
                                       8 * sk_ * wide_ + 2 * across_bytes(d_) + along_bytes(d_) +
                                       12 * kKeyBlock * wide_ + 18 * kTile + 24 * 64));
    const Sight sight(call_.mask, 0, batch, sq_, sk_, pieces.bytes(Sight::bytes(sq_, sk_)));
    const auto halves = [&](std::int64_t n) {
      return reinterpret_cast<std::uint16_t*>(pieces.bytes(n * 2));
    };
    const Tiles tiles{.q = halves(queries * wide_),
                      .dout = halves(queries * wide_),
                      .q_columns = pieces.bytes(queries * wide_ * 2),
                      .dout_columns = pieces.bytes(queries * wide_ * 2),
                      .dq = pieces.floats(queries * wide_),
                      .delta = pieces.floats(sq_),
                      .dk = pieces.floats(sk_ * wide_),
                      .dv = pieces.floats(sk_ * wide_),
                      .k_across = pieces.bytes(across_bytes(d_)),
                      .v_across = pieces.bytes(across_bytes(d_)),
                      .k_along = pieces.bytes(along_bytes(d_)),
                      .block_dk = pieces.floats(kKeyBlock * wide_),
                      .block_dv = pieces.floats(kKeyBlock * wide_),
                      .turned = pieces.floats(kKeyBlock * wide_),
                      .scores = pieces.floats(kTile),
                      .dp = pieces.floats(kTile),
                      .kept = pieces.floats(kTile),
                      .weights = reinterpret_cast<Pair*>(pieces.floats(kTile / 2)),
                      .gradients = reinterpret_cast<Pair*>(pieces.floats(kTile / 2)),
                      .gradient_rows = halves(kTile)};
    std::fill_n(tiles.dk, sk_ * wide_, 0.0F);
    std::fill_n(tiles.dv, sk_ * wide_, 0.0F);
    const TileScope scope(*context_.tiles);
    for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
      run(sight, batch, group, head, tiles);
    }
    store(Head(call_.dk, batch, group), tiles.dk, sk_);
    store(Head(call_.dv, batch, group), tiles.dv, sk_);
  }

 private:
  struct Tiles {
    std::uint16_t* q;  // [sq, wide]
    std::uint16_t* dout;
    std::byte* q_columns;  // of each block of queries, as left sides along queries
    std::byte* dout_columns;
    float* dq;     // [sq, wide]
    float* delta;  // [sq]
    float* dk;     // [sk, wide]
    float* dv;
    std::byte* k_across;  // of one block of keys, as right sides
    std::byte* v_across;
    std::byte* k_along;
    float* block_dk;  // [wide, kKeyBlock] of one block of keys
    float* block_dv;
    float* turned;  // [kKeyBlock, wide]
    float* scores;  // [kQueries, kKeyBlock] of one tile, as the next ones
    float* dp;
    float* kept;
    Pair* weights;  // pairs of rows
    Pair* gradients;
    std::uint16_t* gradient_rows;
  };

  void store(const Head& to, const float* from, std::int64_t rows) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      context_.vector.convert(to.row(r), to.type, from + r * wide_, Type::kF32, d_);
    }
  }

  void run(const Sight& sight, std::int64_t batch, std::int64_t group, std::int64_t head,
           const Tiles& t) const {
    const TileTable& table = *context_.tiles;
    const Head q(call_.q, batch, head);
    const Head out(call_.out, batch, head);
    const Head dout(call_.dout, batch, head);
    copy_rows(q, 0, sq_, d_, t.q, wide_);
    copy_rows(dout, 0, sq_, d_, t.dout, wide_);
    for (std::int64_t query = 0; query < sq_; query += kQueries) {
      const std::int64_t queries = std::min(kQueries, sq_ - query);
      table.pack_left_columns(t.q_columns + query * wide_ * 2, rows_of(q, query), d_, queries);
      table.pack_left_columns(t.dout_columns + query * wide_ * 2, rows_of(dout, query), d_,
                              queries);
    }
    for (std::int64_t r = 0; r < sq_; ++r) {
      t.delta[r] = context_.vector.dot(dout.row(r), dout.type, out.row(r), out.type, d_);
    }
    std::fill_n(t.dq, sq_ * wide_, 0.0F);
    const Head keys(call_.k, batch, group);
    const Head values(call_.v, batch, group);
    std::int64_t loaded = -1;
    const auto visit = [&](std::int64_t query, std::int64_t queries, std::int64_t key) {
      const std::int64_t valid = std::min(kKeyBlock, sight.keys() - key);
      if (key != loaded) {
        if (loaded >= 0) add_block(sight, loaded, t);
        table.pack_right_rows(t.k_across, rows_of(keys, key), valid, d_);
        table.pack_right_rows(t.v_across, rows_of(values, key), valid, d_);
        table.pack_right(t.k_along, rows_of(keys, key), d_, valid);
        std::fill_n(t.block_dk, kKeyBlock * wide_, 0.0F);
        std::fill_n(t.block_dv, kKeyBlock * wide_, 0.0F);
        loaded = key;
      }
      tile(sight, batch, head, query, queries, key, valid, t);
    };
    sight.for_tiles(0, sq_, kQueries, kKeyBlock, visit);
    if (loaded >= 0) add_block(sight, loaded, t);
    store(Head(call_.dq, batch, head), t.dq, sq_);
  }

  // Adds the gradients of one block of keys to those of all keys.
  void add_block(const Sight& sight, std::int64_t key, const Tiles& t) const {
    const std::int64_t valid = std::min(kKeyBlock, sight.keys() - key);
    for (const auto& [block, sums] : {std::pair{t.block_dk, t.dk}, std::pair{t.block_dv, t.dv}}) {
      context_.vector.transpose(t.turned, wide_, {block, Type::kF32, kKeyBlock},
                                static_cast<int>(d_), static_cast<int>(valid));
      for (std::int64_t r = 0; r < valid; ++r) {
        context_.vector.accumulate(sums + (key + r) * wide_, t.turned + r * wide_, Type::kF32, d_);
      }
    }
  }

  void tile(const Sight& sight, std::int64_t batch, std::int64_t head, std::int64_t query,
            std::int64_t queries, std::int64_t key, std::int64_t valid, const Tiles& t) const {
    const TileTable& table = *context_.tiles;
    const float* lse =
        call_.lse.data<float>() + batch * call_.lse.stride(0) + head * call_.lse.stride(1);
    const Seen part = seen_of(sight, query, queries, key, kTilePair, kTilePair);
    const std::int64_t first = query + part.skip;
    const std::int64_t count = queries - part.skip;
    const auto scores = [&](const std::uint16_t* rows, const std::byte* right, float* sums) {
      table.multiply({.rows = count,
                      .columns = part.columns,
                      .steps = tile_steps(d_),
                      .left = left_rows(rows + first * wide_, wide_),
                      .right = right_packed(right, d_),
                      .sums = sums,
                      .sums_stride = kKeyBlock});
    };
    scores(t.q, t.k_across, t.scores);
    scores(t.dout, t.v_across, t.dp);
    const float* kept =
        factors(context_, masks_, sight, batch, call_.head_begin + head, first, count, key, t.kept);
    ScoreArguments arguments =
        scores_of(sight, first, count, key, t.scores, static_cast<float>(call_.scale),
                  slope_of(call_.mask, head));
    arguments.columns = static_cast<int>(part.columns);
    context_.dot->score_gradients(arguments, kept, lse + first, t.dp, t.delta + first, t.weights,
                                  t.gradients, t.gradient_rows);
    const std::int64_t pairs = (count + 1) / 2;
    const std::int64_t missing = tile_steps(count) * kPairs - pairs;
    std::fill_n(t.weights + pairs * kKeyBlock, missing * kKeyBlock, Pair{0});
    std::fill_n(t.gradients + pairs * kKeyBlock, missing * kKeyBlock, Pair{0});
    const auto add_columns = [&](const std::byte* left, const Pair* right, float* sums) {
      const std::byte* at = left + query * wide_ * 2 + part.skip / kTileDepth * kStepBytes;
      table.multiply({.rows = d_,
                      .columns = part.columns,
                      .steps = tile_steps(count),
                      .left = left_packed(at, tile_pair_bytes(queries)),
                      .right = right_pairs(right),
                      .sums = sums,
                      .sums_stride = kKeyBlock,
                      .adds = true});
    };
    add_columns(t.dout_columns, t.weights, t.block_dv);
    add_columns(t.q_columns, t.gradients, t.block_dk);
    table.multiply({.rows = count,
                    .columns = d_,
                    .steps = tile_steps(part.columns),
                    .left = left_rows(t.gradient_rows, kKeyBlock),
                    .right = right_packed(t.k_along, valid),
                    .sums = t.dq + first * wide_,
                    .sums_stride = wide_,
                    .adds = true});
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

void attention_forward_amx(Context& context, const AttentionForward& call) {
  const Bf16Forward<TileProducts> forward(context, call);
  context.threads.run(forward.parts(), forward);
}

void attention_backward_amx(Context& context, const AttentionBackward& call) {
  const Backward backward(context, call);
  context.threads.run(backward.parts(), backward);
}

}  // namespace piton::cpu
