// Attention by tiles with a running softmax and bf16 dot products. Weights P and score gradients dS
// are rounded to bf16, sums are in fp32.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/cpu/attention/attention_backward.h"
#include "kernels/cpu/attention/attention_forward_bf16.h"
#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

static_assert(kScoreColumns == kKeyBlock);

// Queries of one tile: eight groups of the product's six rows.
constexpr std::int64_t kQueries = 48;

std::int64_t panels_of(std::int64_t d) { return panel_words(d, kKeyBlock); }

// Products of the forward pass (attention_forward_bf16.h).
class DotProducts {
 public:
  static constexpr std::int64_t kQueries = cpu::kQueries;
  static constexpr std::int64_t kRowUnit = 6;
  static constexpr std::int64_t kColumnUnit = 16;
  static std::int64_t wide(std::int64_t d) { return padded(d, 16); }

  DotProducts(const CpuContext& context, std::int64_t d, std::int64_t c)
      : key_bytes(4 * panel_words(kKeyBlock, d)),
        value_bytes(4 * panels_of(c)),
        table_(*context.dot),
        d_(d),
        values_(c) {}

  static constexpr bool kReadsRows = false;

  void pack_keys(std::byte* k, const Matrix& keys, std::int64_t valid) const {
    table_.pack_columns(reinterpret_cast<Pair*>(k), keys, d_, valid);
  }
  void pack_values(std::byte* v, const Matrix& values, std::int64_t valid) const {
    table_.pack_rows(reinterpret_cast<Pair*>(v), values, valid, values_);
  }
  void scores(const std::uint16_t* q, std::int64_t count, const Seen& part, const std::byte* k,
              std::int64_t valid, float* scores) const {
    table_.product_columns(count, part.columns, d_ / 2, q, wide(d_), 2,
                           reinterpret_cast<const Pair*>(k), padded(valid, 16),
                           {.data = scores, .stride = kKeyBlock});
  }
  void add_values(const std::uint16_t* weights, std::int64_t count, const Seen& part,
                  const std::byte* v, std::int64_t valid, float* out) const {
    table_.product(
        count, values_, (part.valid + 1) / 2, weights, kKeyBlock, 2,
        reinterpret_cast<const Pair*>(v), (valid + 1) / 2 * kPanel, 0,
        {.data = out, .stride = wide(values_), .addend = out, .addend_stride = wide(values_)});
  }

  const std::int64_t key_bytes;
  const std::int64_t value_bytes;

 private:
  const DotTable& table_;
  std::int64_t d_;
  std::int64_t values_;
};

// One query per sample (decoding): the query heads of a key head are the rows of a tile, so that
// its keys are read and packed once.
class Decode {
 public:
  Decode(CpuContext& context, const ForwardWork& work)
      : context_(context),
        work_(work),
        call_(work.call),
        d_(call_.q.dim(3)),
        wide_(padded(d_, 16)),
        rows_(call_.q.dim(2) / call_.k.dim(2)) {}

  static bool takes(const ForwardWork& work) {
    return work.call.q.dim(1) == 1 && work.call.dropout.probability == 0 &&
           !work.call.mask.slopes.defined() && !work.of_latents;
  }

  std::int64_t parts() const { return call_.q.dim(0) * call_.k.dim(2); }

  void operator()(std::int64_t part) const {
    const std::int64_t batch = part / call_.k.dim(2);
    const std::int64_t group = part % call_.k.dim(2);
    const std::int64_t sk = work_.keys;
    Pieces pieces(context_.scratch.own(Sight::bytes(1, sk) +
                                       rows_ * (d_ * 2 + 4 * wide_ + 28 + 6 * kKeyBlock) +
                                       softmax_bytes(rows_) + 4 * panel_words(kKeyBlock, d_) +
                                       4 * panels_of(d_) + 2 * work_.expanded_bytes() + 16 * 64));
    const Sight sight(call_.mask, 0, batch, 1, sk, pieces.bytes(Sight::bytes(1, sk)));
    auto* q = reinterpret_cast<std::uint16_t*>(pieces.bytes(rows_ * d_ * 2));
    float* out = pieces.floats(rows_ * wide_);
    float* bases = pieces.floats(rows_);
    float* sums = pieces.floats(rows_ * kSoftmaxLanes);
    float* scores = pieces.floats(rows_ * kKeyBlock);
    auto* weights = reinterpret_cast<std::uint16_t*>(pieces.bytes(rows_ * kKeyBlock * 2));
    auto* k = reinterpret_cast<Pair*>(pieces.floats(panel_words(kKeyBlock, d_)));
    auto* v = reinterpret_cast<Pair*>(pieces.floats(panels_of(d_)));
    std::byte* expanded_keys = pieces.bytes(work_.expanded_bytes());
    std::byte* expanded_values = pieces.bytes(work_.expanded_bytes());
    const auto repeated = [&](const auto* one) {  // every row has the one query's position
      using T = std::remove_cvref_t<decltype(*one)>;
      auto* all = reinterpret_cast<T*>(pieces.bytes(rows_ * static_cast<std::int64_t>(sizeof(T))));
      std::fill_n(all, rows_, *one);
      return all;
    };
    const std::int64_t* low = repeated(sight.low());
    const std::int64_t* high = repeated(sight.high());
    const std::int64_t* positions = repeated(sight.positions());
    const std::int32_t* segments =
        sight.query_segments() != nullptr ? repeated(sight.query_segments()) : nullptr;
    for (std::int64_t r = 0; r < rows_; ++r) {
      copy_rows(HeadRows(call_.q, batch, group * rows_ + r), 0, 1, d_, q + r * d_, d_);
    }
    std::fill_n(out, rows_ * wide_, 0.0F);
    std::fill_n(bases, rows_, -std::numeric_limits<float>::infinity());
    std::fill_n(sums, rows_ * kSoftmaxLanes, 0.0F);
    const HeadRows keys = work_.key_rows(batch, group);
    const HeadRows values = work_.value_rows(batch, group);
    const std::int64_t first = low[0] / kKeyBlock * kKeyBlock;
    bring(keys, first, std::min(first + kKeyBlock, high[0]));
    bring(values, first, std::min(first + kKeyBlock, high[0]));
    for (std::int64_t key = first; key < high[0]; key += kKeyBlock) {
      bring(keys, key + kKeyBlock, std::min(key + 2 * kKeyBlock, high[0]));
      bring(values, key + kKeyBlock, std::min(key + 2 * kKeyBlock, high[0]));
      if (!sight.computed(0, 1, key, kKeyBlock)) continue;
      const std::int64_t valid = std::min(kKeyBlock, sight.keys() - key);
      const std::int64_t pairs = (valid + 1) / 2;
      const HeadRows from = expanded_block(context_, keys, key, valid, expanded_keys);
      const HeadRows with = expanded_block(context_, values, key, valid, expanded_values);
      context_.dot->pack_columns(k, {from.row(key), Type::kBF16, from.stride}, d_, valid);
      context_.dot->pack_rows(v, {with.row(key), Type::kBF16, with.stride}, valid, d_);
      context_.dot->product(rows_, valid, d_ / 2, q, d_, 2, k, 0, 0,
                            {.data = scores, .stride = kKeyBlock});
      ScoreArguments arguments =
          scores_of(sight, 0, 1, key, scores, static_cast<float>(call_.scale), 0);
      arguments.rows = static_cast<int>(rows_);
      arguments.low = low;
      arguments.high = high;
      arguments.positions = positions;
      arguments.query_segments = segments;
      context_.dot->softmax(arguments, nullptr, bases, sums, out, wide_, wide_, weights);
      context_.dot->product(rows_, d_, pairs, weights, kKeyBlock, 2, v, pairs * kPanel, 0,
                            {.data = out, .stride = wide_, .addend = out, .addend_stride = wide_});
    }
    for (std::int64_t r = 0; r < rows_; ++r) {
      finish(context_, call_, batch, group * rows_ + r, 0, 1, d_, wide_, out + r * wide_, bases + r,
             sums + r * kSoftmaxLanes);
    }
  }

 private:
  CpuContext& context_;
  const ForwardWork& work_;
  const AttentionForward& call_;
  std::int64_t d_;
  std::int64_t wide_;
  std::int64_t rows_;
};

// Products of the backward pass (attention_backward.h).
class DotMatrices {
 public:
  static constexpr std::int64_t kQueries = cpu::kQueries;
  static constexpr std::int64_t kRowUnit = 6;
  static constexpr std::int64_t kColumnUnit = 16;

  DotMatrices(const CpuContext& context, const AttentionBackward& call)
      : wide(padded(call.q.dim(3), 16)),
        table_(*context.dot),
        sq_(call.q.dim(1)),
        sk_(call.k.dim(1)),
        d_(call.q.dim(3)) {}

  std::int64_t query_rows() const { return sq_; }
  std::int64_t key_rows() const { return padded(sk_, kKeyBlock); }
  std::int64_t bytes() const {
    return 2 * sq_ * d_ * 2 + 2 * padded(sq_, kQueries) * wide * 2 +
           4 * (2 * panel_words(kKeyBlock, d_) + panels_of(d_)) + 7 * 64;
  }
  void take(Pieces& pieces) {
    const auto pairs = [&](std::int64_t words) {
      return reinterpret_cast<Pair*>(pieces.floats(words));
    };
    const std::int64_t queries = padded(sq_, kQueries);
    q_ = reinterpret_cast<std::uint16_t*>(pieces.bytes(sq_ * d_ * 2));
    dout_ = reinterpret_cast<std::uint16_t*>(pieces.bytes(sq_ * d_ * 2));
    q_panels_ = pairs(queries / 2 * wide);
    dout_panels_ = pairs(queries / 2 * wide);
    k_columns_ = pairs(panel_words(kKeyBlock, d_));
    v_columns_ = pairs(panel_words(kKeyBlock, d_));
    k_rows_ = pairs(panels_of(d_));
  }

  void load_queries(const HeadRows& q, const HeadRows& dout) const {
    copy_rows(q, 0, sq_, d_, q_, d_);
    copy_rows(dout, 0, sq_, d_, dout_, d_);
    for (std::int64_t query = 0; query < sq_; query += kQueries) {
      const std::int64_t queries = std::min(kQueries, sq_ - query);
      table_.pack_rows(q_panels_ + query / 2 * wide, {q_ + query * d_, Type::kBF16, d_}, queries,
                       d_);
      table_.pack_rows(dout_panels_ + query / 2 * wide, {dout_ + query * d_, Type::kBF16, d_},
                       queries, d_);
    }
  }
  void load_keys(const Sight& sight, const HeadRows& keys, const HeadRows& values,
                 std::int64_t key) const {
    const std::int64_t valid = std::min(kKeyBlock, sight.keys() - key);
    table_.pack_columns(k_columns_, {keys.row(key), Type::kBF16, keys.stride}, d_, valid);
    table_.pack_columns(v_columns_, {values.row(key), Type::kBF16, values.stride}, d_, valid);
    table_.pack_rows(k_rows_, {keys.row(key), Type::kBF16, keys.stride}, valid, d_);
  }
  void end_keys(const Sight& /*sight*/, std::int64_t /*key*/, const GradientSums& /*sums*/) const {}

  const std::int64_t wide;

 protected:
  void scores(const GradientTile& tile, const Seen& part, const Bf16Scores& to) const {
    const std::int64_t first = tile.query + part.skip;
    const std::int64_t count = tile.queries - part.skip;
    const std::int64_t step = padded(tile.valid, 16);
    table_.product_columns(count, part.columns, d_ / 2, q_ + first * d_, d_, 2, k_columns_, step,
                           {.data = to.scores, .stride = kKeyBlock});
    table_.product_columns(count, part.columns, d_ / 2, dout_ + first * d_, d_, 2, v_columns_, step,
                           {.data = to.dp, .stride = kKeyBlock});
  }
  void add(const GradientTile& tile, const Seen& part, const Bf16Scores& scores,
           const GradientSums& sums) const {
    const std::int64_t count = tile.queries - part.skip;
    const std::int64_t panel = (tile.queries + 1) / 2 * kPanel;
    const std::int64_t pairs = (count + 1) / 2;
    const auto to = [&](float* sum) {
      return DotOutput{.data = sum, .stride = wide, .addend = sum, .addend_stride = wide};
    };
    table_.product(part.valid, d_, pairs, reinterpret_cast<const std::uint16_t*>(scores.weights), 2,
                   2 * kKeyBlock, dout_panels_ + tile.query / 2 * wide, panel, part.skip / 2,
                   to(sums.dv + tile.key * wide));
    table_.product(part.valid, d_, pairs, reinterpret_cast<const std::uint16_t*>(scores.gradients),
                   2, 2 * kKeyBlock, q_panels_ + tile.query / 2 * wide, panel, part.skip / 2,
                   to(sums.dk + tile.key * wide));
    table_.product(count, d_, (part.valid + 1) / 2, scores.gradient_rows, kKeyBlock, 2, k_rows_,
                   (tile.valid + 1) / 2 * kPanel, 0, to(sums.dq + (tile.query + part.skip) * wide));
  }

 private:
  const DotTable& table_;
  std::int64_t sq_;
  std::int64_t sk_;
  std::int64_t d_;
  std::uint16_t* q_ = nullptr;     // [sq, d]
  std::uint16_t* dout_ = nullptr;  // [sq, d]
  Pair* q_panels_ = nullptr;       // of each block of queries, as right sides
  Pair* dout_panels_ = nullptr;
  Pair* k_columns_ = nullptr;  // of one block of keys, as right sides
  Pair* v_columns_ = nullptr;
  Pair* k_rows_ = nullptr;
};

}  // namespace

ForwardParts forward_parts_dot(CpuContext& context, const ForwardWork& work) {
  if (Decode::takes(work)) return parts_of<Decode>(context, work);
  return bf16_parts<DotProducts>(context, work);
}

void attention_backward_dot(CpuContext& context, const AttentionBackward& call) {
  const BackwardPass<Bf16Gradients<DotMatrices>> backward(context, call);
  context.threads.run(backward.parts(), backward);
}

}  // namespace piton::cpu
