// Attention in bf16 by tile products. Softmax and rounding are those of attention_dot.cpp. The five
// products read rows in place, and only keys and values are transposed: the gradients of keys and
// values are summed as their transposes,
//   dv^T = dout^T P,   dk^T = q^T dS,
// whose right sides are the pairs of rows that the gradient of the softmax writes.
#include <algorithm>
#include <utility>

#include "kernels/cpu/attention/attention_backward.h"
#include "kernels/cpu/attention/attention_forward_bf16.h"
#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// Queries of one tile: two groups.
constexpr std::int64_t kQueries = 2 * kTilePair;
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

Matrix rows_of(const HeadRows& head, std::int64_t row) {
  return {head.row(row), Type::kBF16, head.stride};
}

// Products of the forward pass (attention_forward_bf16.h).
class TileProducts {
 public:
  static constexpr std::int64_t kQueries = cpu::kQueries;
  static constexpr std::int64_t kRowUnit = kTilePair;
  static constexpr std::int64_t kColumnUnit = kTilePair;
  static std::int64_t wide(std::int64_t d) { return padded(d, kTilePair); }

  TileProducts(const CpuContext& context, std::int64_t d, std::int64_t c)
      : key_bytes(across_bytes(d)),
        value_bytes(along_bytes(c)),
        table_(*context.tiles),
        vector_(context.vector),
        scope_(table_),
        d_(d),
        values_(c) {}

  void pack_keys(std::byte* k, const Matrix& keys, std::int64_t valid) const {
    table_.pack_right_rows(k, keys, valid, d_);
  }
  void pack_values(std::byte* v, const Matrix& values, std::int64_t valid) const {
    table_.pack_right(v, values, values_, valid);
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
  // Scores as k q^T, of which queries are packed, once. Packing keys would take longer than the
  // product of few rows.
  static constexpr bool kReadsRows = true;
  static bool reads_rows(std::int64_t d, std::int64_t rows) {
    return d % kTileDepth == 0 && rows <= 2 * kQueries;
  }
  std::int64_t query_bytes(std::int64_t rows) const { return tile_bytes(rows, d_); }
  void pack_queries(std::byte* to, std::uint16_t* q, std::int64_t rows) const {
    table_.pack_right_rows(to, {q, Type::kBF16, wide(d_)}, rows, d_);
  }
  // All rows of a block of keys are in memory, also those after the last one.
  void scores_of_rows(const std::byte* q, std::int64_t count, const Seen& part, const Matrix& keys,
                      float* turned, float* scores) const {
    table_.multiply({.rows = part.columns,
                     .columns = count,
                     .steps = tile_steps(d_),
                     .left = left_rows(static_cast<const std::uint16_t*>(keys.data), keys.stride),
                     .right = right_packed(q, d_),
                     .sums = turned,
                     .sums_stride = kQueries});
    vector_.transpose(scores, kKeyBlock, {turned, Type::kF32, kQueries},
                      static_cast<int>(part.columns), static_cast<int>(count));
  }
  void add_values(const std::uint16_t* weights, std::int64_t count, const Seen& part,
                  const std::byte* v, std::int64_t valid, float* out) const {
    table_.multiply({.rows = count,
                     .columns = values_,
                     .steps = tile_steps(part.columns),
                     .left = left_rows(weights, kKeyBlock),
                     .right = right_packed(v, valid),
                     .sums = out,
                     .sums_stride = wide(values_),
                     .adds = true});
  }

  const std::int64_t key_bytes;
  const std::int64_t value_bytes;

 private:
  const TileTable& table_;
  const VectorTable& vector_;
  TileScope scope_;
  std::int64_t d_;
  std::int64_t values_;
};

// Products of the backward pass (attention_backward.h).
class TileMatrices {
 public:
  static constexpr std::int64_t kQueries = cpu::kQueries;
  static constexpr std::int64_t kRowUnit = kTilePair;
  static constexpr std::int64_t kColumnUnit = kTilePair;

  TileMatrices(const CpuContext& context, const AttentionBackward& call)
      : wide(padded(call.q.dim(3), kTilePair)),
        context_(context),
        table_(*context.tiles),
        scope_(table_),
        sq_(call.q.dim(1)),
        sk_(call.k.dim(1)),
        d_(call.q.dim(3)) {}

  std::int64_t query_rows() const { return padded(sq_, kQueries); }
  std::int64_t key_rows() const { return sk_; }
  std::int64_t bytes() const {
    return query_rows() * wide * 8 + 2 * across_bytes(d_) + along_bytes(d_) +
           12 * kKeyBlock * wide + 10 * 64;
  }
  void take(Pieces& pieces) {
    const std::int64_t rows = query_rows() * wide * 2;  // bytes
    q_ = reinterpret_cast<std::uint16_t*>(pieces.bytes(rows));
    dout_ = reinterpret_cast<std::uint16_t*>(pieces.bytes(rows));
    q_columns_ = pieces.bytes(rows);
    dout_columns_ = pieces.bytes(rows);
    k_across_ = pieces.bytes(across_bytes(d_));
    v_across_ = pieces.bytes(across_bytes(d_));
    k_along_ = pieces.bytes(along_bytes(d_));
    block_dk_ = pieces.floats(kKeyBlock * wide);
    block_dv_ = pieces.floats(kKeyBlock * wide);
    transposed_ = pieces.floats(kKeyBlock * wide);
  }

  void load_queries(const HeadRows& q, const HeadRows& dout) const {
    copy_rows(q, 0, sq_, d_, q_, wide);
    copy_rows(dout, 0, sq_, d_, dout_, wide);
    for (std::int64_t query = 0; query < sq_; query += kQueries) {
      const std::int64_t queries = std::min(kQueries, sq_ - query);
      table_.pack_left_columns(q_columns_ + query * wide * 2, rows_of(q, query), d_, queries);
      table_.pack_left_columns(dout_columns_ + query * wide * 2, rows_of(dout, query), d_, queries);
    }
  }
  void load_keys(const Sight& sight, const HeadRows& keys, const HeadRows& values,
                 std::int64_t key) const {
    const std::int64_t valid = std::min(kKeyBlock, sight.keys() - key);
    table_.pack_right_rows(k_across_, rows_of(keys, key), valid, d_);
    table_.pack_right_rows(v_across_, rows_of(values, key), valid, d_);
    table_.pack_right(k_along_, rows_of(keys, key), d_, valid);
    std::fill_n(block_dk_, kKeyBlock * wide, 0.0F);
    std::fill_n(block_dv_, kKeyBlock * wide, 0.0F);
  }
  // Adds the gradients of the block of keys to those of all keys.
  void end_keys(const Sight& sight, std::int64_t key, const GradientSums& to) const {
    const std::int64_t valid = std::min(kKeyBlock, sight.keys() - key);
    for (const auto& [block, sums] : {std::pair{block_dk_, to.dk}, std::pair{block_dv_, to.dv}}) {
      context_.vector.transpose(transposed_, wide, {block, Type::kF32, kKeyBlock},
                                static_cast<int>(d_), static_cast<int>(valid));
      for (std::int64_t r = 0; r < valid; ++r) {
        context_.vector.accumulate(sums + (key + r) * wide, transposed_ + r * wide, Type::kF32, d_);
      }
    }
  }

  const std::int64_t wide;

 protected:
  void scores(const GradientTile& tile, const Seen& part, const Bf16Scores& to) const {
    const auto multiply = [&](const std::uint16_t* rows, const std::byte* right, float* sums) {
      table_.multiply({.rows = tile.queries - part.skip,
                       .columns = part.columns,
                       .steps = tile_steps(d_),
                       .left = left_rows(rows + (tile.query + part.skip) * wide, wide),
                       .right = right_packed(right, d_),
                       .sums = sums,
                       .sums_stride = kKeyBlock});
    };
    multiply(q_, k_across_, to.scores);
    multiply(dout_, v_across_, to.dp);
  }
  void add(const GradientTile& tile, const Seen& part, const Bf16Scores& scores,
           const GradientSums& sums) const {
    const std::int64_t count = tile.queries - part.skip;
    const std::int64_t pairs = (count + 1) / 2;
    const std::int64_t missing = tile_steps(count) * kPairs - pairs;
    std::fill_n(scores.weights + pairs * kKeyBlock, missing * kKeyBlock, Pair{0});
    std::fill_n(scores.gradients + pairs * kKeyBlock, missing * kKeyBlock, Pair{0});
    const auto add_columns = [&](const std::byte* left, const Pair* right, float* block) {
      const std::byte* at = left + tile.query * wide * 2 + part.skip / kTileDepth * kStepBytes;
      table_.multiply({.rows = d_,
                       .columns = part.columns,
                       .steps = tile_steps(count),
                       .left = left_packed(at, tile_pair_bytes(tile.queries)),
                       .right = right_pairs(right),
                       .sums = block,
                       .sums_stride = kKeyBlock,
                       .adds = true});
    };
    add_columns(dout_columns_, scores.weights, block_dv_);
    add_columns(q_columns_, scores.gradients, block_dk_);
    table_.multiply({.rows = count,
                     .columns = d_,
                     .steps = tile_steps(part.columns),
                     .left = left_rows(scores.gradient_rows, kKeyBlock),
                     .right = right_packed(k_along_, tile.valid),
                     .sums = sums.dq + (tile.query + part.skip) * wide,
                     .sums_stride = wide,
                     .adds = true});
  }

 private:
  const CpuContext& context_;
  const TileTable& table_;
  TileScope scope_;
  std::int64_t sq_;
  std::int64_t sk_;
  std::int64_t d_;
  std::uint16_t* q_ = nullptr;  // [sq, wide]
  std::uint16_t* dout_ = nullptr;
  std::byte* q_columns_ = nullptr;  // of each block of queries, as left sides along queries
  std::byte* dout_columns_ = nullptr;
  std::byte* k_across_ = nullptr;  // of one block of keys, as right sides
  std::byte* v_across_ = nullptr;
  std::byte* k_along_ = nullptr;
  float* block_dk_ = nullptr;  // [wide, kKeyBlock] of one block of keys
  float* block_dv_ = nullptr;
  float* transposed_ = nullptr;  // [kKeyBlock, wide]
};

}  // namespace

ForwardParts forward_parts_amx(CpuContext& context, const ForwardWork& work) {
  return bf16_parts<TileProducts>(context, work);
}

void attention_backward_amx(CpuContext& context, const AttentionBackward& call) {
  const BackwardPass<Bf16Gradients<TileMatrices>> backward(context, call);
  context.threads.run(backward.parts(), backward);
}

}  // namespace piton::cpu
