#include "attention_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/tensors.h"

namespace piton::test {
namespace {

class AttentionCases {
 public:
  explicit AttentionCases(const CaseOptions& options)
      : dtype_(options.dtype),
        sums_(options.dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        source_(0xA77, options.awkward) {}

  std::vector<CallCase> take() { return std::move(cases_); }

  struct AttentionSizes {
    std::int64_t b, sq, sk, a, g, d;
  };

  void add_attentions() {
    const AttentionSizes square{2, 13, 13, 4, 4, 8};
    const AttentionSizes grouped{2, 21, 21, 6, 2, 10};
    const AttentionSizes cached{3, 5, 19, 4, 1, 16};
    add_attention("causal", square, {}, 0);
    add_attention("full", square, {.causal = false}, 0);
    add_attention("one row", {1, 1, 1, 1, 1, 1}, {}, 0);
    add_attention("long", {1, 150, 150, 2, 1, 32}, {}, 0);
    add_attention("wide heads", {1, 70, 70, 2, 2, 128}, {}, 0);
    add_attention("no rows", {2, 0, 7, 2, 2, 4}, {.causal = false}, 0);
    add_attention("grouped", grouped, {}, 0);
    add_attention("window", grouped, {.window_before = 4}, 0);
    add_attention("window behind each query", grouped, {.window_before = 6, .window_after = -2}, 0);
    add_attention("two-sided window", grouped,
                  {.causal = false, .window_before = 3, .window_after = 2}, 0);
    add_attention("behind a cache", cached, {.query_begin = 14}, 0);
    const AttentionSizes decoding{2, 1, 150, 6, 2, 64};
    add_attention("decoding", decoding, {.query_begin = 140}, 0);
    add_attention("decoding in a window", decoding, {.window_before = 70, .query_begin = 149}, 0);
    AttentionMask decoding_lengths{.causal = false};
    decoding_lengths.key_lengths = tensor_of(DType::kI32, {2}, std::vector<double>{131, 0});
    add_attention("decoding, key lengths", decoding, decoding_lengths, 0);
    AttentionMask lengths{.causal = false};
    lengths.key_lengths = tensor_of(DType::kI32, {3}, std::vector<double>{19, 7, 0});
    add_attention("key lengths, one of them 0", cached, lengths, 0);
    AttentionMask positions{};
    positions.query_positions = source_.integers({cached.b, cached.sq}, 0, 18);
    add_attention("query positions", cached, positions, 0);
    AttentionMask places{.window_before = 9};  // of queries and of keys, both with gaps
    places.query_positions = source_.integers({cached.b, cached.sq}, 10, 90);
    places.key_positions = ascending(cached.b, cached.sk, 30, 3);
    add_attention("positions of queries and keys", cached, places, 0);
    places.window_before.reset();
    places.window_after = -4;
    places.key_lengths = tensor_of(DType::kI32, {3}, std::vector<double>{19, 7, 0});
    add_attention("positions and lengths of keys", cached, places, 0);
    AttentionMask part{};  // keys 32 .. of a longer row
    part.query_positions = source_.integers({grouped.b, grouped.sq}, 28, 60);
    part.key_positions = ascending(grouped.b, grouped.sk, 32, 1);
    add_attention("a part of the keys, dropout", grouped, part, 0.3);
    part.slopes =
        tensor_of(DType::kF32, {6}, std::vector<double>{0.5, 0.25, 0.125, 1, 0.0625, 0.3});
    add_attention("a part of the keys, slopes", grouped, part, 0);
    AttentionMask hidden{.window_before = 1};
    hidden.query_positions = source_.integers({cached.b, cached.sq}, 15, 60);
    add_attention("queries beyond the window", cached, hidden, 0);
    AttentionMask segments{};
    segments.query_segments = source_.integers({grouped.b, grouped.sq}, 0, 2);
    for (std::int64_t row = 0; row < grouped.b; ++row) {  // documents one after the other
      const Tensor one = segments.query_segments.select(0, row);
      std::sort(one.data<std::int32_t>(), one.data<std::int32_t>() + grouped.sq);
    }
    segments.key_segments = segments.query_segments;
    add_attention("segments", grouped, segments, 0);
    AttentionMask slopes{};
    slopes.slopes =
        tensor_of(DType::kF32, {6}, std::vector<double>{0.5, 0.25, 0.125, 1, 0.0625, 0.3});
    add_attention("slopes", grouped, slopes, 0);
    add_prefixes(square, grouped, segments, slopes);
    add_triangles(grouped, segments, slopes);
    add_attention("dropout", grouped, {}, 0.3);
    add_attention("dropout behind a cache", cached, {.query_begin = 14}, 0.1);
    for (const double cap : {0.3, 30.0}) {
      add_attention(fmt::format("soft cap {}", cap), grouped, slopes, 0.3, 0, cap);
      add_attention(fmt::format("soft cap {}, long", cap), {1, 150, 150, 2, 1, 32},
                    {.window_before = 100}, 0, 0, cap);
      add_attention(fmt::format("soft cap {}, triangle", cap), grouped, {}, 0, 6, cap);
    }
    add_attention("soft cap, decoding", decoding, {.query_begin = 140}, 0, 0, 1);
    add_biases(square, grouped, cached, lengths);
  }

  // Of two parts of the keys. Some queries see no key of one part, or of both.
  void add_merges() {
    for (const AttentionSizes& s : {AttentionSizes{2, 13, 0, 4, 0, 10}, {1, 150, 0, 3, 0, 64}}) {
      const Shape rows{s.b, s.a, s.sq};
      AttentionMerge call{.out = source_.normal(sums_, {s.b, s.sq, s.a, s.d}),
                          .lse = source_.normal(sums_, rows),
                          .part = source_.normal(dtype_, {s.b, s.sq, s.a, s.d}),
                          .part_lse = source_.normal(sums_, rows)};
      const double none = -std::numeric_limits<double>::infinity();
      for (const std::int64_t i : {0, 1, 20}) set_value(call.lse, i, none);
      for (const std::int64_t i : {1, 2, 30}) set_value(call.part_lse, i, none);
      add(fmt::format("of {} queries", s.sq), 2, call, dtype_);
    }
  }

  // Samples of one row and of several, in pages that are out of order and shared.
  void add_cached() {
    struct Sample {
      std::int64_t rows, keys;
    };
    const auto add_one = [&](const std::string& detail, const std::vector<Sample>& samples,
                             const AttentionSizes& s, CachedAttention call, bool coded = false) {
      const std::int64_t pages = 7;
      std::vector<double> begins{0}, lengths, table;
      for (const Sample& sample : samples) {
        begins.push_back(begins.back() + static_cast<double>(sample.rows));
        lengths.push_back(static_cast<double>(sample.keys));
        for (const double page : {3.0, 6.0, 1.0, 5.0}) table.push_back(page);
        if (samples.size() % 2 == 1) std::swap(table.back(), table[table.size() - 2]);
        call.pairs += static_cast<double>(sample.rows * sample.keys);
      }
      const auto n = static_cast<std::int64_t>(begins.back());
      const auto b = std::ssize(samples);
      // As a cache stores them: the rows of one head are consecutive.
      const auto cache = [&] {
        const Shape shape{pages, s.g, kCachePage, s.d};
        return (coded ? source_.integers(shape, 0, 255, DType::kU8)
                      : source_.normal_rows(dtype_, shape))
            .swap_dims(1, 2);
      };
      const auto scales = [&] {
        const Tensor all = source_.normal(DType::kF32, {pages, s.g, kCachePage});
        for (std::int64_t i = 0; i < all.elements(); ++i)
          all.data<float>()[i] = std::abs(all.data<float>()[i]) / 127;
        return all.swap_dims(1, 2);
      };
      if (coded) {
        call.key_scales = scales();
        call.value_scales = scales();
      }
      call.out = source_.unwritten(dtype_, {n, s.a, s.d});
      call.q = source_.normal_rows(dtype_, {n, s.a * s.d}).split_dim(1, s.d);
      call.keys = cache();
      call.values = cache();
      call.begins = tensor_of(DType::kI32, {b + 1}, begins);
      call.lengths = tensor_of(DType::kI32, {b}, lengths);
      call.table = tensor_of(DType::kI32, {b, 4}, table);
      call.scale = 1 / std::sqrt(static_cast<double>(s.d));
      add(detail, s.d + 256, call, dtype_);
    };
    const AttentionSizes wide{0, 0, 0, 6, 2, 64};
    const AttentionSizes odd{0, 0, 0, 4, 4, 9};
    const std::vector<Sample> mixed{{1, 1}, {1, 200}, {70, 130}, {5, 64}, {3, 65}, {1, 256}};
    const std::vector<Sample> prompt{{130, 150}};
    for (const auto& [name, sizes] : {std::pair{"wide", wide}, std::pair{"odd", odd}}) {
      add_one(fmt::format("{}, mixed", name), mixed, sizes, {});
      add_one(fmt::format("{}, one prompt", name), prompt, sizes, {});
      add_one(fmt::format("{}, decoding", name), {{1, 63}, {1, 129}}, sizes, {});
      add_one(fmt::format("{}, window", name), mixed, sizes, {.window_before = 66});
      add_one(fmt::format("{}, hidden", name), mixed, sizes, {.window_after = -70});
      add_one(fmt::format("{}, soft cap", name), mixed, sizes, {.soft_cap = 2});
      add_one(fmt::format("{}, codes, mixed", name), mixed, sizes, {}, true);
      add_one(fmt::format("{}, codes, one prompt", name), prompt, sizes, {}, true);
      add_one(fmt::format("{}, codes, window and soft cap", name), mixed, sizes,
              {.window_before = 66, .soft_cap = 2}, true);
    }
    add_one("slopes", mixed, wide,
            {.slopes = tensor_of(DType::kF32, {6},
                                 std::vector<double>{0.5, 0.25, 0.125, 1, 0.0625, 0.3})});
    add_one("bias", mixed, wide, {.bias = source_.normal(sums_, {6, 260}), .bias_origin = 257});
    add_one("no samples", {}, wide, {});
  }

  void add_edges() {
    struct Edge {
      std::int64_t s, d;
    };
    for (const Edge edge :
         {Edge{47, 32}, Edge{48, 64}, Edge{49, 80}, Edge{63, 96}, Edge{64, 128}, Edge{65, 256},
          Edge{64, 33}, Edge{255, 33}, Edge{256, 32}, Edge{257, 64}, Edge{200, 128}}) {
      const std::string detail = fmt::format("s {} d {}", edge.s, edge.d);
      add_attention(detail, {1, edge.s, edge.s, 1, 1, edge.d}, {.window_before = 70}, 0);
    }
    // Grouped queries and a mask that cuts tiles in both directions.
    add_attention("s 65, two-sided", {1, 65, 65, 4, 2, 64},
                  {.causal = false, .window_before = 20, .window_after = 33}, 0);
    add_attention("s 49, dropout", {1, 49, 49, 3, 1, 64}, {}, 0.2);
  }

 private:
  template <typename Call>
  void add(const std::string& detail, std::int64_t terms, Call call, DType narrowest,
           std::int64_t rounded_terms = 1) {
    cases_.push_back({.name = fmt::format("{}, {}, {}", Call::kName, name(dtype_), detail),
                      .call = std::move(call),
                      .terms = terms,
                      .narrowest = narrowest,
                      .rounded_terms = rounded_terms});
  }

  static Tensor ascending(std::int64_t samples, std::int64_t keys, std::int64_t first,
                          std::int64_t step) {
    std::vector<double> all;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      for (std::int64_t key = 0; key < keys; ++key)
        all.push_back(static_cast<double>(first + key * step));
    }
    return tensor_of(DType::kI32, {samples, keys}, all);
  }

  static Tensor consumed() { return tensor_of(DType::kI64, {1}, std::vector<double>{70000}); }

  // Prefixes whose tokens see one another: of one length for each sample, of each document of a
  // packed row, and reaches before the queries.
  void add_prefixes(const AttentionSizes& square, const AttentionSizes& grouped,
                    AttentionMask segments, AttentionMask slopes) {
    const auto reach_of = [](const std::vector<std::int64_t>& lasts, std::int64_t rows) {
      std::vector<double> all;
      for (const std::int64_t last : lasts) all.insert(all.end(), rows, static_cast<double>(last));
      return tensor_of(DType::kI32, {std::ssize(lasts), rows}, all);
    };
    const auto prefix = [&](const std::vector<std::int64_t>& lasts, std::int64_t rows) {
      AttentionMask mask{};
      mask.query_reach = reach_of(lasts, rows);
      return mask;
    };
    add_attention("prefix", square, prefix({4, 12}, square.sq), 0);
    add_attention("prefix, long", {3, 150, 150, 2, 1, 32}, prefix({0, 63, 100}, 150), 0);
    add_attention("prefix, dropout", grouped, prefix({7, 20}, grouped.sq), 0.3);
    add_attention("prefix, soft cap", square, prefix({5, 30}, square.sq), 0, 0, 0.5);
    AttentionMask behind = prefix({2, 17}, 5);
    behind.query_begin = 14;
    add_attention("prefix, behind a cache", {2, 5, 19, 4, 4, 8}, behind, 0);
    segments.query_reach = source_.integers({grouped.b, grouped.sq}, 0, grouped.sq);
    add_attention("prefix, segments", grouped, segments, 0);
    slopes.query_reach = reach_of({6, 15}, grouped.sq);
    add_attention("prefix, slopes", grouped, slopes, 0.1);
    AttentionMask biased = prefix({3, 9}, square.sq);
    biased.bias = source_.normal(sums_, {4, 2 * square.sq});
    biased.bias_origin = square.sq;
    add_attention("prefix, bias", square, biased, 0);
  }

  // Whole blocks and a rest, less than a block, one row; with every mask that a block's rectangle
  // cuts.
  // Biases of distances: of exactly the distances that occur, and of more.
  void add_biases(const AttentionSizes& square, const AttentionSizes& grouped,
                  const AttentionSizes& cached, AttentionMask lengths) {
    const auto biased = [&](AttentionMask mask, std::int64_t heads, std::int64_t width,
                            std::int64_t origin) {
      mask.bias = source_.normal(sums_, {heads, width});
      mask.bias_origin = origin;
      return mask;
    };
    const AttentionMask full{.causal = false};
    add_attention("bias, full", square, biased(full, 4, 25, 12), 0);
    add_attention("bias, causal", square, biased({}, 4, 13, 12), 0);
    add_attention("bias, causal, long", {1, 150, 150, 2, 1, 32}, biased({}, 2, 150, 149), 0);
    add_attention("bias, full, long", {2, 70, 150, 2, 1, 32}, biased(full, 2, 240, 80), 0.1);
    add_attention("bias, grouped, dropout", grouped, biased({}, 6, 40, 30), 0.3);
    add_attention("bias, behind a cache", cached, biased({.query_begin = 14}, 4, 19, 18), 0);
    add_attention("bias, decoding", {2, 1, 150, 6, 2, 64},
                  biased({.query_begin = 149}, 6, 150, 149), 0);
    add_attention("bias, key lengths", cached, biased(lengths, 4, 23, 4), 0);
    add_attention("bias, soft cap", square, biased(full, 4, 25, 12), 0, 0, 0.5);
  }

  void add_triangles(const AttentionSizes& grouped, const AttentionMask& segments,
                     const AttentionMask& slopes) {
    for (const std::int64_t rows : {1, 7, 8, 21, 64})
      add_attention(fmt::format("triangle of {}", rows), grouped, {}, 0, rows);
    add_attention("triangle, one row", {1, 1, 1, 1, 1, 1}, {}, 0, 4);
    add_attention("triangle, long", {1, 150, 150, 2, 1, 32}, {}, 0, 64);
    add_attention("triangle, long, odd blocks", {1, 150, 150, 2, 1, 32}, {}, 0, 50);
    add_attention("triangle, window", grouped, {.window_before = 4}, 0, 6);
    add_attention("triangle, segments", grouped, segments, 0, 6);
    add_attention("triangle, slopes", grouped, slopes, 0, 6);
    AttentionMask lengths{};
    lengths.key_lengths = tensor_of(DType::kI32, {2}, std::vector<double>{9, 0});
    add_attention("triangle, key lengths, one of them 0", grouped, lengths, 0, 6);
    add_attention("triangle, dropout", grouped, {}, 0.3, 6);
    add_attention("triangle, fewer keys", {2, 13, 5, 4, 4, 8}, {}, 0, 4);
  }

  void add_attention(const std::string& detail, const AttentionSizes& s, const AttentionMask& mask,
                     double probability, std::int64_t block_rows = 0, double soft_cap = 0) {
    Dropout dropout{.probability = probability,
                    .key = site_key(1234, "layers.0.attention.dropout")};
    dropout.rows = {
        .consumed_samples = consumed(), .sample_index = 6, .sequence = s.sq, .first_row = 0};
    const auto q = [&] { return source_.normal_rows(dtype_, {s.b, s.sq, s.a, s.d}); };
    const auto k = [&] { return source_.normal_rows(dtype_, {s.b, s.sk, s.g, s.d}); };
    Tensor dbias;
    if (mask.bias.defined()) dbias = source_.unwritten(sums_, {s.b, s.a, mask.bias.dim(1)});
    AttentionForward forward{.out = source_.unwritten(dtype_, {s.b, s.sq, s.a, s.d}),
                             .lse = source_.unwritten(sums_, {s.b, s.a, s.sq}),
                             .q = q(),
                             .k = k(),
                             .v = k(),
                             .mask = mask,
                             .scale = 1 / std::sqrt(static_cast<double>(s.d)),
                             .dropout = dropout,
                             .head_begin = 8,
                             .block_rows = block_rows,
                             .soft_cap = soft_cap};
    add(detail, s.d + s.sk, forward, dtype_);
    // Backward takes the log-sum-exp of its own scores, in double, so that P sums to at most one.
    const Tensor lse = source_.normal(sums_, {s.b, s.a, s.sq});
    fill_lse(forward, lse);
    add(detail, s.d + s.sk + s.sq,
        AttentionBackward{.dq = source_.unwritten(dtype_, {s.b, s.sq, s.a, s.d}),
                          .dk = source_.unwritten(dtype_, {s.b, s.sk, s.g, s.d}),
                          .dv = source_.unwritten(dtype_, {s.b, s.sk, s.g, s.d}),
                          .dbias = dbias,
                          .dout = q(),
                          .out = q(),
                          .lse = lse,
                          .q = forward.q,
                          .k = forward.k,
                          .v = forward.v,
                          .mask = mask,
                          .scale = forward.scale,
                          .dropout = dropout,
                          .head_begin = 8,
                          .block_rows = block_rows,
                          .soft_cap = soft_cap},
        // A key collects rounded score gradients from all query heads on it, some rows of size 1.
        dtype_, 4 * s.a / s.g);
  }

  // Over visible keys, from the definition of the mask.
  static void fill_lse(const AttentionForward& call, const Tensor& lse) {
    const auto q = values(call.q);
    const auto k = values(call.k);
    const AttentionMask& mask = call.mask;
    const std::int64_t b = call.q.dim(0), sq = call.q.dim(1), a = call.q.dim(2), d = call.q.dim(3);
    const std::int64_t sk = call.k.dim(1), g = call.k.dim(2);
    const auto element = [](const Tensor& tensor, std::int64_t i) {
      return static_cast<std::int64_t>(value_at(tensor, i));
    };
    for (std::int64_t batch = 0; batch < b; ++batch) {
      for (std::int64_t head = 0; head < a; ++head) {
        for (std::int64_t row = 0; row < sq; ++row) {
          const std::int64_t i = mask.query_positions.defined()
                                     ? element(mask.query_positions, batch * sq + row)
                                     : mask.query_begin + row;
          double sum = 0;
          for (std::int64_t key = 0; key < sk; ++key) {
            const std::int64_t j =
                mask.key_positions.defined() ? element(mask.key_positions, batch * sk + key) : key;
            const std::int64_t last = mask.query_reach.defined()
                                          ? std::max(i, element(mask.query_reach, batch * sq + row))
                                          : i;
            bool visible = !(mask.causal && j > last);
            if (mask.window_before) visible &= i - j <= *mask.window_before;
            if (mask.window_after) visible &= j - i <= *mask.window_after;
            if (mask.key_lengths.defined()) visible &= key < element(mask.key_lengths, batch);
            if (mask.query_segments.defined()) {
              visible &= element(mask.query_segments, batch * sq + row) ==
                         element(mask.key_segments, batch * sk + key);
            }
            if (!visible) continue;
            double score = 0;
            for (std::int64_t c = 0; c < d; ++c) {
              score +=
                  q[static_cast<std::size_t>(((batch * sq + row) * a + head) * d + c)] *
                  k[static_cast<std::size_t>(((batch * sk + key) * g + head / (a / g)) * d + c)];
            }
            score *= call.scale;
            if (call.soft_cap > 0) score = call.soft_cap * std::tanh(score / call.soft_cap);
            if (mask.slopes.defined())
              score += value_at(mask.slopes, head) * static_cast<double>(j - i);
            if (mask.bias.defined())
              score += value_at(mask.bias, head * mask.bias.dim(1) + mask.bias_origin + j - i);
            sum += std::exp(score);
          }
          set_value(lse, (batch * a + head) * sq + row, std::log(sum));
        }
      }
    }
  }

  DType dtype_;
  DType sums_;
  TensorSource source_;
  std::vector<CallCase> cases_;
};

}  // namespace

std::vector<CallCase> attention_cases(const CaseOptions& options) {
  AttentionCases list(options);
  list.add_attentions();
  list.add_merges();
  list.add_cached();
  return list.take();
}

std::vector<CallCase> attention_edge_cases(const CaseOptions& options) {
  AttentionCases list(options);
  list.add_edges();
  return list.take();
}

}  // namespace piton::test
