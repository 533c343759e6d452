#include "generate/token_draws.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/random/philox.h"

namespace piton {
namespace {

template <typename T>
Tensor put(const Context& context, DType dtype, const Shape& shape, const std::vector<T>& values) {
  const Tensor tensor = context.workspace(dtype, shape);
  context.device.upload(values.data(), tensor, context.stream);
  return tensor;
}

// [m, 3] of ChangeLogits.
std::vector<std::int32_t> seen_of(std::span<const TokenDraw> draws) {
  std::vector<std::int32_t> seen;
  for (std::size_t row = 0; row < draws.size(); ++row) {
    const TokenDraw& draw = draws[row];
    if (!draw.sampling->has_penalties()) continue;
    std::map<std::int32_t, std::int32_t> generated;  // of each id of the text, how often
    for (std::size_t i = 0; i < draw.text.size(); ++i)
      generated[draw.text[i]] += i >= draw.prompt ? 1 : 0;
    for (const auto& [id, times] : generated)
      seen.insert(seen.end(), {static_cast<std::int32_t>(row), id, times});
  }
  return seen;
}

// Logits are biased as by frequency penalties of -kBiasUnit for each of a number of times, so that
// the kernels of penalties do both. A unit is less than the rounding of logits above 8.
constexpr double kBiasUnit = 0x1p-20;

std::vector<std::int32_t> units_of(double bias, std::size_t row, std::int32_t id) {
  return {static_cast<std::int32_t>(row), id,
          static_cast<std::int32_t>(std::lround(bias / kBiasUnit))};
}

std::vector<std::int32_t> biased_of(std::span<const TokenDraw> draws) {
  std::vector<std::int32_t> biased;
  for (std::size_t row = 0; row < draws.size(); ++row) {
    for (const auto& [id, bias] : draws[row].sampling->logit_bias)
      std::ranges::copy(units_of(bias, row, id), std::back_inserter(biased));
  }
  return biased;
}

// Of ids that would repeat a run.
std::vector<std::int32_t> repeating_of(std::span<const TokenDraw> draws) {
  std::vector<std::int32_t> repeating;
  for (std::size_t row = 0; row < draws.size(); ++row) {
    for (const auto& [id, penalty] : run_penalties(draws[row].text, draws[row].sampling->dry))
      std::ranges::copy(units_of(-penalty, row, id), std::back_inserter(repeating));
  }
  return repeating;
}

// Leaves out the ids that followed the last n - 1 ids of the text before, unless no id is left.
void forbid_repeats(const TokenDraw& draw, std::vector<bool>& allowed) {
  const auto n = static_cast<std::size_t>(draw.sampling->no_repeat_ngram_size);
  const std::vector<std::int32_t>& text = draw.text;
  if (n == 0 || text.size() < n) return;
  std::vector<bool> left = allowed;
  const auto last = text.end() - static_cast<std::ptrdiff_t>(n - 1);
  for (std::size_t i = 0; i + n <= text.size(); ++i) {
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::equal(last, text.end(), begin))
      left[static_cast<std::size_t>(text[i + n - 1])] = false;
  }
  if (std::ranges::find(left, true) != left.end()) allowed = std::move(left);
}

// Whether a draw has ids that are left out.
bool has_forbidden(const TokenDraw& draw) {
  return draw.constraint != nullptr || draw.sampling->no_repeat_ngram_size > 0;
}

// [n, bytes] of ChangeLogits.
std::vector<std::uint8_t> allowed_of(std::span<const TokenDraw> draws, std::int64_t vocabulary) {
  const auto bytes = static_cast<std::size_t>((vocabulary + 7) / 8);
  std::vector<std::uint8_t> all(draws.size() * bytes, 0xFF);
  for (std::size_t row = 0; row < draws.size(); ++row) {
    if (!has_forbidden(draws[row])) continue;
    TokenConstraint* constraint = draws[row].constraint;
    std::vector<bool> allowed(static_cast<std::size_t>(vocabulary), constraint == nullptr);
    if (constraint != nullptr) constraint->allow(allowed);
    forbid_repeats(draws[row], allowed);
    std::uint8_t* of_row = all.data() + row * bytes;
    std::fill_n(of_row, bytes, std::uint8_t{0});
    for (std::size_t id = 0; id < allowed.size(); ++id)
      if (allowed[id]) of_row[id / 8] |= static_cast<std::uint8_t>(1U << id % 8);
  }
  return all;
}

// The logits, or a copy of them with the changes that the draws ask for.
Tensor changed(const Context& context, const Tensor& logits, std::int64_t vocabulary,
               std::span<const TokenDraw> draws) {
  const std::vector<std::int32_t> seen = seen_of(draws);
  const std::vector<std::int32_t> biased = biased_of(draws);
  const std::vector<std::int32_t> repeating = repeating_of(draws);
  const bool constrained = std::ranges::any_of(draws, has_forbidden);
  if (seen.empty() && biased.empty() && repeating.empty() && !constrained) return logits;
  const auto n = std::ssize(draws);
  ChangeLogits call{.logits = context.workspace(logits.dtype(), logits.shape()),
                    .vocabulary = vocabulary};
  context.kernels.run(Copy{.dst = call.logits, .src = logits}, context.stream);
  const auto add = [&](const std::vector<std::int32_t>& units) {
    if (units.empty()) return;
    std::vector<double> penalties;
    for (std::int64_t row = 0; row < n; ++row)
      penalties.insert(penalties.end(), {1, -kBiasUnit, 0});
    context.kernels.run(
        ChangeLogits{.logits = call.logits,
                     .seen = put(context, DType::kI32, {std::ssize(units) / 3, 3}, units),
                     .penalties = put(context, DType::kF64, {n, 3}, penalties),
                     .vocabulary = vocabulary},
        context.stream);
  };
  add(biased);
  if (!seen.empty()) {
    std::vector<double> penalties;
    for (const TokenDraw& draw : draws) {
      const SamplingOptions& sampling = *draw.sampling;
      penalties.insert(penalties.end(), {sampling.repetition_penalty, sampling.frequency_penalty,
                                         sampling.presence_penalty});
    }
    call.seen = put(context, DType::kI32, {std::ssize(seen) / 3, 3}, seen);
    call.penalties = put(context, DType::kF64, {n, 3}, penalties);
  }
  if (constrained)
    call.allowed =
        put(context, DType::kU8, {n, (vocabulary + 7) / 8}, allowed_of(draws, vocabulary));
  // What is not allowed is -infinity, from which penalties of runs take nothing.
  if (!seen.empty() || constrained) context.kernels.run(call, context.stream);
  add(repeating);
  return call.logits;
}

}  // namespace

DrawnIds draw_ids(const Context& context, const Tensor& logits, std::int64_t vocabulary,
                  std::span<const TokenDraw> draws) {
  const auto n = std::ssize(draws);
  PITON_ASSERT(n > 0 && logits.dim(1) == n, "{} draws from {}", n, to_string(logits));
  std::vector<double> filters;
  std::vector<std::int32_t> places;
  for (const TokenDraw& draw : draws) {
    const SamplingOptions& sampling = *draw.sampling;
    std::int64_t most = sampling.top_k > 0 ? sampling.top_k : vocabulary;
    if (sampling.greedy) most = 1;
    filters.insert(filters.end(),
                   {sampling.temperature, static_cast<double>(most), sampling.top_p, sampling.min_p,
                    sampling.top_n_sigma, sampling.typical_p, sampling.xtc_probability,
                    sampling.xtc_threshold, sampling.dynatemp_range, sampling.dynatemp_exponent,
                    sampling.mirostat > 0 ? std::exp2(-draw.most_surprise) : 0});
    const PhiloxKey key = site_key(sampling.seed, "generate");
    for (const std::uint64_t word :
         {std::uint64_t{key.low}, std::uint64_t{key.high},
          static_cast<std::uint64_t>(draw.place.index), draw.place.draw, draw.place.draw >> 32})
      places.push_back(static_cast<std::int32_t>(static_cast<std::uint32_t>(word)));
  }
  DrawTokens call{.ids = context.workspace(DType::kI32, {n}),
                  .shares = context.workspace(DType::kF64, {n}),
                  .logits = changed(context, logits, vocabulary, draws),
                  .filters = put(context, DType::kF64, {n, kDrawFilters}, filters),
                  .places = put(context, DType::kI32, {n, 5}, places),
                  .vocabulary = vocabulary};
  context.kernels.run(call, context.stream);
  return {.ids = call.ids, .shares = call.shares};
}

}  // namespace piton
