#include "decoding_cases.h"

#include <cmath>

#include "support/tensors.h"

namespace piton::test {
namespace {

struct Rotation {
  std::int64_t first = 0;
  std::int64_t channels = 0;  // 0: none
  Rotary::Convention convention = Rotary::Convention::kHalves;
};

class DecodingCases {
 public:
  explicit DecodingCases(const CaseOptions& options)
      : dtype_(options.dtype),
        sums_(options.dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        codes_(options.codes),
        source_(0xDEC0DE, options.awkward) {}

  // Of heads that are vectors and ones that are not, rotated in whole, in part, and not at all.
  void add_cache_appends() {
    constexpr auto kPairs = Rotary::Convention::kPairs;
    for (const std::vector<double>& slots :
         {std::vector<double>{}, std::vector<double>{64}, std::vector<double>{127, 0, 63, 130}}) {
      for (const std::int64_t d : {5, 64, 67}) {
        for (const bool coded : {false, true}) {
          add_append(slots, d, coded, {});
          if (d == 5) {
            add_append(slots, d, coded, {.channels = 4});
            add_append(slots, d, coded, {.first = 1, .channels = 2, .convention = kPairs});
          } else if (d == 64) {
            add_append(slots, d, coded, {.channels = 64});
            add_append(slots, d, coded, {.channels = 64, .convention = kPairs});
            add_append(slots, d, coded, {.channels = 32});
            add_append(slots, d, coded, {.first = 48, .channels = 16, .convention = kPairs});
            add_append(slots, d, coded, {.first = 16, .channels = 6});
          }
        }
      }
    }
  }

  void add_gated_linears() {
    for (const std::int64_t n : {0, 1, 9, 17}) {
      for (const auto& [width, in] : {std::pair{1, 8}, {8, 64}, {21, 130}, {40, 264}}) {
        add_gated(n, width, in, ActivationKind::kSilu, {}, WeightForm::kRows);
        if (codes_ && in % 2 == 0)
          add_gated(n, width, in, ActivationKind::kSilu, {}, WeightForm::kCodes);
      }
      add_gated(n, 19, 72, ActivationKind::kGeluFast, {.bound = 0.8, .offset = 1},
                WeightForm::kRows);
      for (const auto kind : {ActivationKind::kGeluTanh, ActivationKind::kGeluErf,
                              ActivationKind::kRelu, ActivationKind::kSigmoid})
        add_gated(n, 12, 40, kind, {}, WeightForm::kRows);
    }
  }

  std::vector<CallCase> take() { return std::move(cases_); }

 private:
  // Codes of numbers that were rotated would depend on their last bits, so these are rotated by
  // quarter turns, which are exact.
  void add_append(const std::vector<double>& slots, std::int64_t d, bool coded,
                  const Rotation& rotation) {
    constexpr std::int64_t kHeads = 3, kQueries = 6, kPages = 3, kPositions = 40;
    const auto n = std::ssize(slots);
    const auto rows = [&](std::int64_t heads) {
      return source_.normal_rows(dtype_, {n, heads * d}).split_dim(1, d);
    };
    const auto cache = [&] {
      const Shape shape{kPages, kHeads, kCachePage, d};
      return (coded ? source_.integers(shape, 0, 255, DType::kU8) : source_.normal(dtype_, shape))
          .swap_dims(1, 2);
    };
    const auto scales = [&] {
      return coded ? source_.normal(DType::kF32, {kPages, kHeads, kCachePage}).swap_dims(1, 2)
                   : Tensor();
    };
    CacheAppend call{.keys = cache(),
                     .values = cache(),
                     .k = rows(kHeads),
                     .v = rows(kHeads),
                     .slots = tensor_of(DType::kI32, {n}, slots),
                     .key_scales = scales(),
                     .value_scales = scales()};
    if (n > 1) {  // of zeros
      for (std::int64_t i = 0; i < d; ++i) set_value(call.v, call.v.stride(1) + i, 0);
    }
    if (rotation.channels > 0) {
      call.q = rows(kQueries);
      call.positions = source_.integers({n}, 0, kPositions - 1);
      call.cosine = source_.normal(sums_, {kPositions, rotation.channels / 2});
      call.sine = source_.normal(sums_, {kPositions, rotation.channels / 2});
      for (std::int64_t i = 0; i < call.cosine.elements(); ++i) {
        const double angle = value_at(call.cosine, i);
        const bool turned = angle > 0;
        set_value(call.cosine, i, coded ? (turned ? 0 : -1) : std::cos(angle));
        set_value(call.sine, i, coded ? (turned ? 1 : 0) : std::sin(angle));
      }
      call.convention = rotation.convention;
      call.first_channel = rotation.first;
    }
    add(fmt::format("{} rows, d {}, coded {}, {} channels rotated from {} on, pairs {}", n, d,
                    coded, rotation.channels, rotation.first,
                    rotation.convention == Rotary::Convention::kPairs),
        2, 1, call);
  }

  // Of numbers whose sums have unit variance.
  void add_gated(std::int64_t n, std::int64_t width, std::int64_t in, ActivationKind kind,
                 const GateRule& rule, WeightForm form) {
    const double size = 1 / std::sqrt(static_cast<double>(in));
    WeightView weight{.form = form, .out = 2 * width, .in = in, .dtype = dtype_};
    if (form == WeightForm::kCodes) {
      weight.codes = {.kind = CodeKind::kInt8,
                      .group = in,
                      .codes = source_.integers({2 * width, in}, 0, 255, DType::kU8),
                      .scales = source_.normal(DType::kF32, {2 * width, 1}, size / 80, size / 400)};
    } else {
      weight.tensor = source_.normal(dtype_, {2 * width, in}, 0, size);
    }
    // Few rows times codes are rounded to 16-bit integers on the way. A sum next to the middle of
    // two numbers of 16 bits becomes either of them.
    const bool coded = form == WeightForm::kCodes;
    const DType rounded = coded && size_bytes(dtype_) == 4 ? DType::kF16 : dtype_;
    add(fmt::format("n {} width {} in {} kind {} bound {} coded {}", n, width, in,
                    static_cast<int>(kind), rule.bound, coded),
        in, 16,
        GatedLinear{.y = source_.unwritten_rows(dtype_, {n, width}),
                    .x = source_.normal_rows(dtype_, {n, in}),
                    .weight = weight,
                    .bias = width % 2 == 0 ? source_.normal(dtype_, {2 * width}) : Tensor(),
                    .kind = kind,
                    .gate = rule},
        rounded);
  }

  template <typename Call>
  void add(const std::string& detail, std::int64_t terms, std::int64_t rounded_terms, Call call,
           DType narrowest = DType::kF64) {
    cases_.push_back({.name = fmt::format("{}, {}, {}", Call::kName, name(dtype_), detail),
                      .call = std::move(call),
                      .terms = terms,
                      .narrowest = narrowest,
                      .rounded_terms = rounded_terms});
  }

  DType dtype_;
  DType sums_;
  bool codes_;
  TensorSource source_;
  std::vector<CallCase> cases_;
};

KernelCall in_parts(CacheAppend call, CallRunner& runner) {
  if (!call.rotates()) return runner.run(call);
  const auto rotated = [&](const Tensor& x) {
    const Rotary turn{.x = x.slice(2, call.first_channel, call.rotated_channels()),
                      .positions = call.positions,
                      .cosine = call.cosine,
                      .sine = call.sine,
                      .convention = call.convention};
    return x.with_storage(std::get<Rotary>(runner.run(turn)).x.storage());
  };
  CacheAppend plain = call;
  plain.k = rotated(call.k);
  plain.q = plain.positions = plain.cosine = plain.sine = {};
  auto done = std::get<CacheAppend>(runner.run(plain));
  done.q = rotated(call.q);
  done.k = call.k;
  return done;
}

KernelCall in_parts(const GatedLinear& call, CallRunner& runner) {
  const Tensor gate_up = host_tensor(call.x.dtype(), {call.x.dim(0), call.weight.out});
  const auto product = std::get<LinearForward>(runner.run(call.product(gate_up)));
  GatedLinear done = call;
  done.y = std::get<ActivationForward>(runner.run(call.end(product.y))).y;
  return done;
}

}  // namespace

std::vector<CallCase> decoding_cases(const CaseOptions& options) {
  DecodingCases list(options);
  list.add_cache_appends();
  list.add_gated_linears();
  return list.take();
}

KernelCall run_in_parts(const KernelCall& call, CallRunner& runner) {
  if (const auto* append = std::get_if<CacheAppend>(&call)) return in_parts(*append, runner);
  return in_parts(std::get<GatedLinear>(call), runner);
}

}  // namespace piton::test
