// Vocabularies of one part and of several, with every filter alone and with all; ties, ids that
// may not come, and rows of one id.
#include "sampling_cases.h"

#include <limits>

#include "support/tensors.h"

namespace piton::test {
namespace {

struct Size {
  std::int64_t parts, n, columns, vocabulary;
};

struct Filters {
  double temperature = 1;
  double most = 0;  // 0: all
  double share = 1;
  double least = 0;
  double sigma = 0;
  double typical = 1;
  double xtc = 0;
  double range = 0;
  double rare = 0;
};

}  // namespace

std::vector<CallCase> sampling_cases(const CaseOptions& options) {
  const DType dtype = options.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  TensorSource source(0xD1CE, options.awkward);
  std::vector<CallCase> cases;
  const auto filters_of = [&](const Size& size, const Filters& one) {
    const Tensor tensor = source.normal(DType::kF64, {size.n, kDrawFilters});
    for (std::int64_t row = 0; row < size.n; ++row) {
      const double most = one.most > 0 ? one.most : static_cast<double>(size.vocabulary);
      std::int64_t at = kDrawFilters * row;
      for (const double value : {one.temperature, most, one.share, one.least, one.sigma,
                                 one.typical, one.xtc, /*threshold=*/0.07, one.range,
                                 /*exponent=*/1.5, one.rare})
        set_value(tensor, at++, value);
    }
    return tensor;
  };
  for (const Size& size : {Size{1, 0, 5, 5}, Size{1, 1, 1, 1}, Size{1, 9, 37, 37},
                           Size{3, 9, 40, 101}, Size{1, 3, 2100, 2100}}) {
    const std::string detail =
        fmt::format("{} x {} x {} of {}", size.parts, size.n, size.columns, size.vocabulary);
    const auto logits = [&](double deviation) {
      return source.normal(dtype, {size.parts, size.n, size.columns}, 0, deviation);
    };
    for (const Filters& one :
         {Filters{}, Filters{.temperature = 0.4}, Filters{.most = 1}, Filters{.most = 1000},
          Filters{.most = 5}, Filters{.share = 0.8}, Filters{.share = 1e-9}, Filters{.least = 0.05},
          Filters{.least = 1}, Filters{.sigma = 1.2}, Filters{.typical = 0.6}, Filters{.xtc = 0.7},
          Filters{.share = 0.9, .least = 0.01, .sigma = 2, .typical = 0.8, .xtc = 1},
          Filters{.range = 0.5}, Filters{.temperature = 0.4, .range = 1}, Filters{.rare = 0.03},
          Filters{.rare = 2}, Filters{.temperature = 0.7, .range = 0.6, .rare = 0.01},
          Filters{.temperature = 1.3, .most = 30, .share = 0.9, .least = 0.01}}) {
      Filters fitting = one;
      fitting.most = std::min(one.most, static_cast<double>(size.vocabulary));
      const Tensor x = logits(one.temperature == 0.4 ? 40 : 2);  // some weights are 0
      const std::int64_t count = x.elements();
      for (std::int64_t i = 0; i < count; ++i) {
        if (one.least == 0 && i % 3 == 1 && size.vocabulary > 5) set_value(x, i, 1.5);  // ties
        if (one.share == 0.8 && i % 2 == 1)
          set_value(x, i, -std::numeric_limits<double>::infinity());
      }
      cases.push_back(
          {.name = fmt::format("draw tokens {} T {} k {} p {} min {} sigma {} typical {} xtc {} "
                               "range {} rare {}",
                               detail, one.temperature, one.most, one.share, one.least, one.sigma,
                               one.typical, one.xtc, one.range, one.rare),
           .call = DrawTokens{.ids = source.integers({size.n}, 0, 0),
                              .shares = source.normal(DType::kF64, {size.n}),
                              .logits = x,
                              .filters = filters_of(size, fitting),
                              .places = source.integers({size.n, 5}, INT32_MIN, INT32_MAX),
                              .vocabulary = size.vocabulary},
           .terms = size.vocabulary});
    }
    const std::int64_t seen = size.n > 0 ? std::min<std::int64_t>(size.vocabulary, 4) : 0;
    const Tensor tokens = source.integers({seen, 3}, 0, 3);
    for (std::int64_t i = 0; i < seen; ++i) {
      set_value(tokens, 3 * i, static_cast<double>(i % size.n));
      set_value(tokens, 3 * i + 1, static_cast<double>(size.vocabulary - 1 - i));
    }
    const Tensor penalties = source.normal(DType::kF64, {size.n, 3}, 1.5, 0.1);
    const Tensor allowed = source.integers({size.n, (size.vocabulary + 7) / 8}, 0, 255, DType::kU8);
    for (const bool with_seen : {false, true}) {
      for (const bool with_allowed : {false, true}) {
        cases.push_back(
            {.name = fmt::format("change logits {} {} {}", detail, with_seen, with_allowed),
             .call = ChangeLogits{.logits = logits(2),
                                  .seen = with_seen ? tokens : Tensor(),
                                  .penalties = with_seen ? penalties : Tensor(),
                                  .allowed = with_allowed ? allowed : Tensor(),
                                  .vocabulary = size.vocabulary},
             .terms = 3});
      }
    }
  }
  return cases;
}

}  // namespace piton::test
