#include "nn/cached_latents.h"

#include <algorithm>
#include <vector>

namespace piton {
namespace {

// Rows of a pass that the expanded form pays for: fewer are products at the speed of memory.
constexpr std::int64_t kFewRows = 32;
// Keys and values of some heads that exist at the same time.
constexpr std::int64_t kExpandedBytes = std::int64_t{64} << 20;

// Rows [begin, begin + count) of a weight [out, in].
WeightView rows_of(const WeightView& weight, std::int64_t begin, std::int64_t count) {
  WeightView some = weight;
  some.out = count;
  const auto take = [&](Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.slice(0, begin, count);
  };
  take(some.tensor);
  WeightCodes::tensors(some.codes, [&](const char*, Tensor& tensor, Access) { take(tensor); });
  return some;
}

// The tokens of a text whose last rows are expanded.
struct WholeText {
  const CacheSample& sample;
  Tensor latents;  // [keys, c]
  Tensor shared;   // [keys, r]
  Tensor reach;    // of the rows: AttentionMask::query_reach, or empty
};

class LatentPass {
 public:
  LatentPass(Context& context, const LatentSite& site, const LatentRows& rows)
      : context_(context),
        cache_(site.cache),
        q_(rows.q),
        matrices_(site.matrices),
        settings_(site.settings),
        // Codes are read where they are, unless the back end cannot.
        use_(context.weights.acquire(
            matrices_.weight,
            matrices_.weight.codes.given() ? WeightForm::kForward : WeightForm::kRows,
            context.stream)),
        heads_(q_.dim(1)),
        latents_(rows.latents.dim(1)),
        result_(context.activation(q_.dtype(), {q_.dim(0), heads_ * matrices_.value})) {}

  void expand(const WholeText& text) {
    const std::int64_t of_head =
        text.sample.keys * (matrices_.rows() + 2 * q_.dim(2)) * size_bytes(q_.dtype());
    const std::int64_t together = std::clamp<std::int64_t>(kExpandedBytes / of_head, 1, heads_);
    for (std::int64_t head = 0; head < heads_; head += together)
      expand_heads(text, head, std::min(together, heads_ - head));
  }

  // Texts [first, end) of the pass, whose rows are [begin, begin + count).
  void absorb(std::int64_t first, std::int64_t end, std::int64_t begin, std::int64_t count) {
    if (!joined_.defined()) {
      joined_ = context_.activation(q_.dtype(), {q_.dim(0), heads_, cache_.keys.dim(3)});
      sums_ = context_.activation(q_.dtype(), {q_.dim(0), heads_, latents_});
      if (settings_.sinks.given)
        lse_ = context_.workspace(sum_dtype(q_.dtype()), {heads_, q_.dim(0)});
    }
    const Tensor q = q_.slice(0, begin, count);
    const Tensor joined = joined_.slice(0, begin, count);
    for_heads([&](std::int64_t head) {
      return LinearBackwardInput{.dx = joined.slice(2, 0, latents_).select(1, head),
                                 .dy = q.slice(2, 0, matrices_.own).select(1, head),
                                 .weight = key_rows(head)};
    });
    const std::int64_t others = joined.dim(2) - latents_;
    context_.kernels.run(
        Copy{.dst = joined.slice(2, latents_, others), .src = q.slice(2, matrices_.own, others)},
        context_.stream);
    context_.kernels.run(
        CachedAttention{.out = sums_,
                        .lse = lse_,
                        .q = joined_,
                        .keys = cache_.keys,
                        .begins = cache_.rows.begins.slice(0, first, end - first + 1),
                        .lengths = cache_.rows.lengths.slice(0, first, end - first),
                        .table = cache_.rows.table.slice(0, first, end - first),
                        .window_before = settings_.window_before,
                        .window_after = settings_.window_after,
                        .scale = settings_.scale,
                        .soft_cap = settings_.soft_cap,
                        .key_scales = cache_.key_scales,
                        .value_scales = cache_.value_scales,
                        .pairs = pairs_of(first, end)},
        context_.stream);
    if (lse_.defined()) {
      add_sinks(context_, settings_.sinks, sums_.reshape({1, q_.dim(0), heads_, latents_}),
                lse_.reshape({1, heads_, q_.dim(0)}));
    }
    const Tensor sums = sums_.slice(0, begin, count);
    for_heads([&](std::int64_t head) {
      return LinearForward{.y = result_of(begin, count).select(1, head),
                           .x = sums.select(1, head),
                           .weight = value_rows(head)};
    });
  }

  const Tensor& result() const { return result_; }

 private:
  WeightView key_rows(std::int64_t head) const {
    return rows_of(use_.view(), head * matrices_.rows(), matrices_.own);
  }
  WeightView value_rows(std::int64_t head) const {
    return rows_of(use_.view(), head * matrices_.rows() + matrices_.own, matrices_.value);
  }
  // Rows of the result [count, a/t, value].
  Tensor result_of(std::int64_t begin, std::int64_t count) const {
    return result_.slice(0, begin, count).split_dim(1, matrices_.value);
  }
  double pairs_of(std::int64_t first, std::int64_t end) const {
    double pairs = 0;
    for (std::int64_t i = first; i < end; ++i) pairs += cache_.rows.samples[i].pairs();
    return pairs;
  }

  template <typename CallOf>
  void for_heads(const CallOf& call_of) {
    std::vector<CallChain> chains(static_cast<std::size_t>(heads_));
    for (std::int64_t head = 0; head < heads_; ++head)
      chains[static_cast<std::size_t>(head)].emplace_back(call_of(head));
    context_.kernels.run_chains(chains, context_.stream);
  }

  void expand_heads(const WholeText& text, std::int64_t head, std::int64_t count) {
    const CacheSample& sample = text.sample;
    const DType dtype = q_.dtype();
    const std::int64_t width = q_.dim(2);
    const Tensor both = context_.activation(dtype, {sample.keys, count * matrices_.rows()});
    context_.kernels.run(LinearForward{.y = both,
                                       .x = text.latents,
                                       .weight = rows_of(use_.view(), head * matrices_.rows(),
                                                         count * matrices_.rows())},
                         context_.stream);
    const Tensor parts = both.split_dim(1, matrices_.rows());
    const Tensor k = context_.activation(dtype, {sample.keys, count, width});
    const Tensor v = context_.activation(dtype, {sample.keys, count, width});
    context_.kernels.run(
        JoinHeads{.y = k, .own = parts.slice(2, 0, matrices_.own), .shared = text.shared},
        context_.stream);
    context_.kernels.run(
        JoinHeads{.y = v, .own = parts.slice(2, matrices_.own, matrices_.value), .shared = {}},
        context_.stream);
    const auto one_sample = [](const Tensor& rows) { return rows.split_dim(0, rows.dim(0)); };
    const Tensor q = q_.slice(0, sample.begin, sample.rows).slice(1, head, count);
    const Tensor out = context_.activation(dtype, {1, sample.rows, count, width});
    const Tensor lse = context_.activation(sum_dtype(dtype), {1, count, sample.rows});
    context_.kernels.run(AttentionForward{.out = out,
                                          .lse = lse,
                                          .q = one_sample(q),
                                          .k = one_sample(k),
                                          .v = one_sample(v),
                                          .mask = {.window_before = settings_.window_before,
                                                   .window_after = settings_.window_after,
                                                   .query_begin = sample.keys - sample.rows,
                                                   .query_reach = text.reach},
                                          .scale = settings_.scale,
                                          .soft_cap = settings_.soft_cap},
                         context_.stream);
    add_sinks(context_, settings_.sinks, out, lse);
    context_.kernels.run(
        SplitHeads{.own = result_of(sample.begin, sample.rows).slice(1, head, count),
                   .shared = {},
                   .y = out.select(0, 0)},
        context_.stream);
  }

  Context& context_;
  const CacheView& cache_;
  const Tensor& q_;
  const LatentMatrices& matrices_;
  const AttentionSettings& settings_;
  WeightUse use_;
  std::int64_t heads_;
  std::int64_t latents_;
  Tensor result_;
  Tensor joined_;  // of absorbed rows: [n, a/t, c + r], as the next two
  Tensor sums_;    // [n, a/t, c]
  Tensor lse_;     // [a/t, n], with sinks
};

// Writes the rows of a pass to the cache. Keys and queries are rotated.
void write_rows(Context& context, const LatentSite& site, const LatentRows& rows) {
  const std::int64_t latents = rows.latents.dim(1);
  const std::int64_t others = rows.shared.dim(2);
  const Tensor turned = rows.q.slice(2, site.matrices.own, others);
  RotarySettings in_cache = site.turn;
  if (site.places.query_reach.defined()) {  // shared is read again, as it is in the cache
    rotary(context, {turned}, site.turn);
    rotary(context, {rows.shared}, site.turn);
    in_cache = {};
  }
  const bool turns = in_cache.cosine.defined();
  const CacheView& cache = site.cache;
  context.kernels.run(CacheAppend{.keys = cache.keys.slice(3, latents, others),
                                  .values = cache.keys.slice(3, 0, latents),
                                  .k = rows.shared,
                                  .v = rows.latents.split_dim(1, latents),
                                  .slots = cache.rows.slots,
                                  .key_scales = cache.key_scales,
                                  .value_scales = cache.value_scales,
                                  .q = turns ? turned : Tensor(),
                                  .positions = turns ? in_cache.positions : Tensor(),
                                  .cosine = in_cache.cosine,
                                  .sine = in_cache.sine,
                                  .convention = in_cache.convention},
                      context.stream);
}

// The rows of a text from the pages of the cache: [keys, c + r].
Tensor rows_from_pages(Context& context, const CacheView& cache, const CacheSample& sample) {
  const Tensor all = context.activation(cache.keys.dtype(), {sample.keys, cache.keys.dim(3)});
  for (std::int64_t key = 0; key < sample.keys; key += kCachePage) {
    const std::int64_t count = std::min(kCachePage, sample.keys - key);
    const Tensor page =
        cache.keys.select(0, sample.pages[static_cast<std::size_t>(key / kCachePage)]);
    context.kernels.run(
        Copy{.dst = all.slice(0, key, count), .src = page.select(1, 0).slice(0, 0, count)},
        context.stream);
  }
  return all;
}

}  // namespace

bool expands_latents(const LatentMatrices& matrices, std::int64_t latents, std::int64_t shared,
                     const CacheSample& sample) {
  if (sample.rows <= kFewRows) return false;
  const auto products = static_cast<double>(latents * matrices.rows());
  const auto rows = static_cast<double>(sample.rows);
  const double absorbed =
      sample.pairs() * static_cast<double>(2 * latents + shared) + rows * products;
  const double expanded = sample.pairs() * static_cast<double>(2 * (matrices.own + shared)) +
                          static_cast<double>(sample.keys) * products;
  return expanded < absorbed;
}

Tensor attend_to_latents(Context& context, const LatentSite& site, const LatentRows& rows) {
  PITON_ASSERT(context.tape == nullptr, "attention to a cache goes forward only");
  const CacheView& cache = site.cache;
  const std::int64_t latents = rows.latents.dim(1);
  const std::int64_t others = rows.shared.dim(2);
  const std::span<const CacheSample> samples = cache.rows.samples;
  const bool sees_itself = site.places.query_reach.defined();
  write_rows(context, site, rows);
  LatentPass pass(context, site, rows);
  if (sees_itself) {
    PITON_ASSERT(samples.size() == 1 && samples[0].rows == samples[0].keys,
                 "{} texts in a pass of one that sees itself", samples.size());
    pass.expand({samples[0], rows.latents, rows.shared.select(1, 0), site.places.query_reach});
    return pass.result();
  }
  std::size_t first = 0;  // of those that are absorbed together
  const auto absorb_until = [&](std::size_t end) {
    if (first == end) return;
    const CacheSample& last = samples[end - 1];
    pass.absorb(static_cast<std::int64_t>(first), static_cast<std::int64_t>(end),
                samples[first].begin, last.begin + last.rows - samples[first].begin);
  };
  for (std::size_t i = 0; i < samples.size(); ++i) {
    // Codes are read by attention to the cache alone.
    if (cache.key_scales.defined() || !expands_latents(site.matrices, latents, others, samples[i]))
      continue;
    absorb_until(i);
    first = i + 1;
    const Tensor all = rows_from_pages(context, cache, samples[i]);
    pass.expand({samples[i], all.slice(1, 0, latents), all.slice(1, latents, others), {}});
  }
  absorb_until(samples.size());
  return pass.result();
}

}  // namespace piton
