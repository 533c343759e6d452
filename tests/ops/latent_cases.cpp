// Latents of one row and of several, of few keys and of many, whose sums are merged; in windows,
// with a soft cap, as numbers and as codes.
#include "latent_cases.h"

#include <cmath>

#include "support/tensors.h"

namespace piton::test {
namespace {

struct LatentSizes {
  std::int64_t heads = 0;
  std::int64_t latents = 0;  // channels of a value
  std::int64_t others = 0;   // channels that keys have in addition
};

struct LatentSample {
  std::int64_t rows, keys;
};

class LatentCases {
 public:
  explicit LatentCases(const CaseOptions& options)
      : dtype_(options.dtype),
        sums_(options.dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        source_(0x1A7E, options.awkward) {}

  void add_appends() {
    for (const bool coded : {false, true}) {
      add_append({3, 48, 16}, Rotary::Convention::kPairs, coded);
      add_append({5, 7, 6}, Rotary::Convention::kHalves, coded);
    }
  }

  void add_attentions() {
    const std::vector<LatentSample> mixed{{1, 1}, {1, 200}, {40, 130}, {5, 64}, {3, 65}, {1, 256}};
    // Of one row with 16 heads keys from 1024 on are in several parts, and of 130 rows none: on
    // CPUs and on GPUs alike.
    const std::vector<LatentSample> many{{1, 1023}, {1, 1024}, {2, 1300}, {130, 1100}};
    for (const bool coded : {false, true}) {
      for (const LatentSizes& sizes : {LatentSizes{16, 128, 64}, {5, 33, 6}, {3, 8, 0}, {1, 40, 8}})
        add_attention("mixed", mixed, sizes, {}, coded);
      add_attention("one row", {{1, 70}}, {16, 512, 64}, {}, coded);
      add_attention("many keys", many, {16, 32, 16}, {}, coded);
      add_attention("many keys, window", many, {2, 20, 6}, {.window_before = 450}, coded);
      add_attention("soft cap", mixed, {6, 48, 16}, {.soft_cap = 2}, coded);
    }
    add_attention("many keys, soft cap", many, {4, 32, 16}, {.soft_cap = 2}, false);
    add_attention("hidden", mixed, {4, 48, 16}, {.window_after = -70}, false);
    add_attention("no samples", {}, {4, 48, 16}, {}, false);
  }

  std::vector<CallCase> take() { return std::move(cases_); }

 private:
  Tensor scales(std::int64_t pages, bool coded) {
    if (!coded) return {};
    const Tensor all = source_.normal(DType::kF32, {pages, 1, kCachePage});
    for (std::int64_t i = 0; i < all.elements(); ++i)
      all.data<float>()[i] = std::abs(all.data<float>()[i]) / 127;
    return all.swap_dims(1, 2);
  }
  Tensor cache(std::int64_t pages, std::int64_t d, bool coded) {
    const Shape shape{pages, 1, kCachePage, d};
    return (coded ? source_.integers(shape, 0, 255, DType::kU8)
                  : source_.normal_rows(dtype_, shape))
        .swap_dims(1, 2);
  }

  // Codes of numbers that were rotated would depend on their last bits, so these are rotated by
  // half a turn, which is exact.
  void add_append(const LatentSizes& s, Rotary::Convention convention, bool coded) {
    constexpr std::int64_t kPages = 3, kPositions = 40;
    const std::vector<double> slots{127, 0, 63, 130};
    const auto n = std::ssize(slots);
    // Tests take the tensors of a call apart, so these are parts of different rows.
    const std::int64_t d = s.latents + s.others;
    CacheAppend call{
        .keys = cache(kPages, d, coded).slice(3, s.latents, s.others),
        .values = cache(kPages, d, coded).slice(3, 0, s.latents),
        .k = source_.normal_rows(dtype_, {n, s.others}).split_dim(1, s.others),
        .v = source_.normal_rows(dtype_, {n, s.latents}).split_dim(1, s.latents),
        .slots = tensor_of(DType::kI32, {n}, slots),
        .key_scales = scales(kPages, coded),
        .value_scales = scales(kPages, coded),
        .q = source_.normal_rows(dtype_, {n, s.heads * s.others}).split_dim(1, s.others),
        .positions = source_.integers({n}, 0, kPositions - 1),
        .cosine = source_.normal(sums_, {kPositions, s.others / 2}),
        .sine = source_.normal(sums_, {kPositions, s.others / 2}),
        .convention = convention};
    for (std::int64_t i = 0; i < call.cosine.elements(); ++i) {
      const double angle = value_at(call.cosine, i);
      set_value(call.cosine, i, coded ? -1 : std::cos(angle));
      set_value(call.sine, i, coded ? 0 : std::sin(angle));
    }
    add(fmt::format("latents of {} and {} channels, coded {}", s.latents, s.others, coded), 2,
        call);
  }

  void add_attention(const std::string& detail, const std::vector<LatentSample>& samples,
                     const LatentSizes& s, CachedAttention call, bool coded) {
    constexpr std::int64_t kPages = 23;
    std::vector<double> begins{0}, lengths, table;
    for (const LatentSample& sample : samples) {
      begins.push_back(begins.back() + static_cast<double>(sample.rows));
      lengths.push_back(static_cast<double>(sample.keys));
      for (std::int64_t i = 0; i < kPages; ++i)
        table.push_back(static_cast<double>((7 * i + sample.rows) % kPages));
      call.pairs += static_cast<double>(sample.rows * sample.keys);
    }
    const auto n = static_cast<std::int64_t>(begins.back());
    const auto b = std::ssize(samples);
    const std::int64_t d = s.latents + s.others;
    call.out = source_.unwritten(dtype_, {n, s.heads, s.latents});
    call.lse = detail == "mixed" ? source_.unwritten(sums_, {s.heads, n}) : Tensor();
    call.q = source_.normal(dtype_, {n, s.heads, d});
    call.keys = cache(kPages, d, coded);
    call.key_scales = scales(kPages, coded);
    call.value_scales = scales(kPages, coded);
    call.begins = tensor_of(DType::kI32, {b + 1}, begins);
    call.lengths = tensor_of(DType::kI32, {b}, lengths);
    call.table = tensor_of(DType::kI32, {b, kPages}, table);
    call.scale = 1 / std::sqrt(static_cast<double>(d));
    add(fmt::format("latents, {}, {} heads of {} and {} channels, coded {}", detail, s.heads,
                    s.latents, s.others, coded),
        d + 1300, call, dtype_);
  }

  template <typename Call>
  void add(const std::string& detail, std::int64_t terms, Call call,
           DType narrowest = DType::kF64) {
    cases_.push_back({.name = fmt::format("{}, {}, {}", Call::kName, name(dtype_), detail),
                      .call = std::move(call),
                      .terms = terms,
                      .narrowest = narrowest});
  }

  DType dtype_;
  DType sums_;
  TensorSource source_;
  std::vector<CallCase> cases_;
};

}  // namespace

std::vector<CallCase> latent_cases(const CaseOptions& options) {
  LatentCases list(options);
  list.add_appends();
  list.add_attentions();
  return list.take();
}

}  // namespace piton::test
