// Forward attention in bf16 with a running softmax, for any `Products`: dot products
// (attention_dot.cpp) or tiles (attention_amx.cpp). Weights P are rounded to bf16, sums are in
// fp32.
//
// A part has some queries of one head. It packs the keys and values of a stretch once; each of its
// blocks of queries passes over the stretch with its sums in the first-level cache.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "kernels/cpu/attention/attention_bf16.h"

namespace piton::cpu {

// Products(context, d, c) has, for keys of d channels and values of c:
//   kQueries               rows of a block
//   kRowUnit, kColumnUnit  rows and columns of a block are rounded up to these
//   wide(d), wide(c)       channels of a row of q, and of a row of sums
//   key_bytes, value_bytes of one packed block of keys, of values
//   pack_keys(k, keys, valid), pack_values(v, values, valid)   the first `valid` rows of a block
//   scores(q, count, part, k, valid, scores)    [count, kKeyBlock] = q k^T
//   add_values(weights, count, part, v, valid, out)   out [count, wide(c)] += weights v
//   kReadsRows             whether keys can be rows as they are, with the same bits, and then:
//   reads_rows(d, rows)    whether this is faster for so many rows of a part
//   pack_queries(to, q, rows)            to: query_bytes(rows)
//   scores_of_rows(q, count, part, keys, turned, scores)   as scores(); turned: [kKeyBlock,
//   kQueries]
template <typename Products>
class Bf16Forward {
 public:
  Bf16Forward(CpuContext& context, const ForwardWork& work)
      : context_(context),
        work_(work),
        call_(work.call),
        masks_(call_.dropout),
        d_(call_.q.dim(3)),
        values_(call_.v.dim(3)),
        wide_(Products::wide(d_)),
        wide_values_(Products::wide(values_)),
        stretch_(d_ <= kWidestOfMost ? kMostStretch : kMostStretch / 2) {
    while (part_queries_ > kFewestQueries && parts() < kPartsOfThread * context.threads.threads()) {
      part_queries_ /= 2;
    }
  }

  std::int64_t parts() const { return work_.stretches() * query_parts() * heads(); }

  // Heads are the inner direction: consecutive parts cost the same, so threads that take them in
  // turn finish together.
  void operator()(std::int64_t part) const {
    const std::int64_t begin = part / heads() % query_parts() * part_queries_;
    run(part % heads() / call_.q.dim(2), part % heads() % call_.q.dim(2), begin,
        std::min(begin + part_queries_, call_.q.dim(1)), part / heads() / query_parts());
  }

 private:
  std::int64_t heads() const { return call_.q.dim(0) * call_.q.dim(2); }
  std::int64_t query_parts() const { return (call_.q.dim(1) + part_queries_ - 1) / part_queries_; }

  static constexpr std::int64_t kTile = Products::kQueries * kKeyBlock;
  // Queries of a part: many, so that keys are rarely packed, unless threads would lack parts. The
  // cut does not affect bits: rows of a block are independent.
  static constexpr std::int64_t kMostQueries = 16 * Products::kQueries;
  static constexpr std::int64_t kFewestQueries = 4 * Products::kQueries;
  static constexpr std::int64_t kPartsOfThread = 4;
  // Keys that are packed together, so that they stay in the second-level cache: 256 KiB for heads
  // of 64. Half as many of latents: 1.1 MiB for rows of 576 channels with values of 512.
  static constexpr std::int64_t kMostStretch = 1024;
  static constexpr std::int64_t kWidestOfMost = 256;

  struct Tiles {
    std::uint16_t* q;  // [rows, wide(d)]
    float* out;        // [rows, wide(c)]
    float* bases;      // [rows], of the softmax
    float* sums;       // [rows, kSoftmaxLanes]
    std::byte* k;      // blocks of a stretch
    std::byte* v;
    float* scores;
    float* kept;
    std::uint16_t* weights;
    std::byte* packed_q;  // of keys that are read as rows, as the next one
    float* turned;
  };
  // One block of keys and values.
  struct KeyTile {
    const std::byte* k;  // packed, or of rows not given
    const std::byte* v;
    Matrix rows;
    std::int64_t valid;
  };

  // `share`: of the keys, which stretch of ForwardWork.
  void run(std::int64_t batch, std::int64_t head, std::int64_t begin, std::int64_t end,
           std::int64_t share) const {
    const Products products(context_, d_, values_);
    const std::int64_t sq = call_.q.dim(1);
    const std::int64_t sk = work_.keys;
    const std::int64_t group = head / (call_.q.dim(2) / call_.k.dim(2));
    const std::int64_t rows = end - begin;
    const std::int64_t whole = padded(rows, Products::kQueries);
    const std::int64_t blocks = padded(std::min(sk, stretch_), kKeyBlock) / kKeyBlock;
    const bool reads_rows = reads_rows_of(rows);
    std::int64_t query_bytes = 0;
    if constexpr (Products::kReadsRows) query_bytes = reads_rows ? products.query_bytes(rows) : 0;
    Pieces pieces(context_.scratch.own(
        Sight::bytes(sq, sk) + whole * (2 * wide_ + 4 * wide_values_) + softmax_bytes(rows) +
        blocks * (products.key_bytes + products.value_bytes) + 14 * kTile + query_bytes +
        2 * work_.expanded_bytes() + 12 * 64));
    const Sight sight(call_.mask, 0, batch, sq, sk, pieces.bytes(Sight::bytes(sq, sk)));
    const Tiles t{.q = reinterpret_cast<std::uint16_t*>(pieces.bytes(whole * wide_ * 2)),
                  .out = pieces.floats(whole * wide_values_),
                  .bases = pieces.floats(rows),
                  .sums = pieces.floats(rows * kSoftmaxLanes),
                  .k = pieces.bytes(blocks * products.key_bytes),
                  .v = pieces.bytes(blocks * products.value_bytes),
                  .scores = pieces.floats(kTile),
                  .kept = pieces.floats(kTile),
                  .weights = reinterpret_cast<std::uint16_t*>(pieces.bytes(kTile * 2)),
                  .packed_q = pieces.bytes(query_bytes),
                  .turned = pieces.floats(kTile)};
    std::byte* expanded_keys = pieces.bytes(work_.expanded_bytes());
    std::byte* expanded_values = pieces.bytes(work_.expanded_bytes());
    copy_rows(HeadRows(call_.q, batch, head), begin, rows, d_, t.q, wide_);
    if constexpr (Products::kReadsRows) {
      if (reads_rows) products.pack_queries(t.packed_q, t.q, rows);
    }
    std::fill_n(t.out, whole * wide_values_, 0.0F);
    std::fill_n(t.bases, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(t.sums, rows * kSoftmaxLanes, 0.0F);

    const HeadRows keys = work_.key_rows(batch, group);
    const HeadRows values = work_.value_rows(batch, group);
    std::int64_t stretch = -1;
    std::array<bool, kMostStretch / kKeyBlock> packed{};
    const auto visit = [&](std::int64_t query, std::int64_t queries, std::int64_t key) {
      if (key / stretch_ != stretch) {
        stretch = key / stretch_;
        packed = {};
      }
      const std::int64_t block = key % stretch_ / kKeyBlock;
      const std::int64_t valid = std::min(kKeyBlock, sight.keys() - key);
      std::byte* k = t.k + block * products.key_bytes;
      std::byte* v = t.v + block * products.value_bytes;
      KeyTile tile_of_keys{.k = k, .v = v, .rows = {}, .valid = valid};
      if (reads_rows && !coded()) tile_of_keys.rows = {keys.row(key), Type::kBF16, keys.stride};
      if (!packed[static_cast<std::size_t>(block)]) {
        if (reads_rows) bring(keys, key + kKeyBlock, std::min(key + 2 * kKeyBlock, sk));
        const HeadRows from = expanded_block(context_, keys, key, valid, expanded_keys);
        const HeadRows with =
            work_.of_latents ? from : expanded_block(context_, values, key, valid, expanded_values);
        const Matrix rows_of_keys{from.row(key), Type::kBF16, from.stride};
        if (reads_rows) {
          tile_of_keys.rows = rows_of_keys;
        } else {
          products.pack_keys(k, rows_of_keys, valid);
        }
        products.pack_values(v, {with.row(key), Type::kBF16, with.stride}, valid);
        packed[static_cast<std::size_t>(block)] = true;
      }
      tile(products, sight, batch, head, query, queries, key, query - begin, t, tile_of_keys);
    };
    sight.for_tiles(begin, end, Products::kQueries, kKeyBlock, visit, stretch_,
                    work_.keys_of(share));
    if (work_.stretch_keys > 0) return write_partial(share, begin, rows, t);
    finish(context_, call_, batch, head, begin, rows, values_, wide_values_, t.out, t.bases,
           t.sums);
  }

  void write_partial(std::int64_t share, std::int64_t begin, std::int64_t rows,
                     const Tiles& t) const {
    const PartialRows to = partial_rows(work_, share, begin);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* lanes = t.sums + r * kSoftmaxLanes;
      std::copy_n(t.out + r * wide_values_, values_, to.out + r * values_);
      to.sums[r] = std::accumulate(lanes, lanes + kSoftmaxLanes, 0.0F);
    }
    std::copy_n(t.bases, rows, to.bases);
  }

  // `row`: of the first query, in the part.
  void tile(const Products& products, const Sight& sight, std::int64_t batch, std::int64_t head,
            std::int64_t query, std::int64_t queries, std::int64_t key, std::int64_t row,
            const Tiles& t, const KeyTile& with) const {
    const Seen part =
        seen_of(sight, query, queries, key, Products::kRowUnit, Products::kColumnUnit);
    const std::int64_t first = query + part.skip;
    const std::int64_t count = queries - part.skip;
    const std::int64_t at = row + part.skip;
    scores(products, at, count, part, t, with);
    const float* dropout =
        factors(context_, masks_, sight, batch, call_.head_begin + head, first, count, key, t.kept);
    ScoreArguments arguments =
        scores_of(sight, first, count, key, t.scores, static_cast<float>(call_.scale),
                  slope_of(call_.mask, head));
    arguments.columns = static_cast<int>(part.columns);
    float* out = t.out + at * wide_values_;
    context_.dot->softmax(arguments, dropout, t.bases + at, t.sums + at * kSoftmaxLanes, out,
                          wide_values_, wide_values_, t.weights);
    products.add_values(t.weights, count, part, with.v, with.valid, out);
  }

  // Of rows from `at` on.
  void scores(const Products& products, std::int64_t at, std::int64_t count, const Seen& part,
              const Tiles& t, const KeyTile& with) const {
    if constexpr (Products::kReadsRows) {
      if (with.rows.data != nullptr) {
        const std::byte* q = t.packed_q + products.query_bytes(at);
        return products.scores_of_rows(q, count, part, with.rows, t.turned, t.scores);
      }
    }
    products.scores(t.q + at * wide_, count, part, with.k, with.valid, t.scores);
  }

  bool coded() const { return work_.key_scales.defined(); }
  // Whether a part of so many rows reads keys as rows. Codes are expanded one block at a time,
  // which then serves one block of queries.
  bool reads_rows_of(std::int64_t rows) const {
    if constexpr (Products::kReadsRows) {
      return work_.of_latents && Products::reads_rows(d_, rows) &&
             (!coded() || rows <= Products::kQueries);
    }
    return false;
  }

  CpuContext& context_;
  const ForwardWork& work_;
  const AttentionForward& call_;
  Masks masks_;
  std::int64_t d_;
  std::int64_t values_;       // channels of a value
  std::int64_t wide_;         // of a row of q
  std::int64_t wide_values_;  // and of one of sums
  std::int64_t stretch_;      // keys that are packed together
  std::int64_t part_queries_ = kMostQueries;
};

template <typename Products>
ForwardParts bf16_parts(CpuContext& context, const ForwardWork& work) {
  ForwardParts parts = parts_of<Bf16Forward<Products>>(context, work);
  parts.merge = [&](std::int64_t row) { merge_stretches(context, work, SoftmaxBase::kTwo, row); };
  return parts;
}

}  // namespace piton::cpu
