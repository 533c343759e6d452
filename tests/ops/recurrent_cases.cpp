// Samples of one and of several documents, and texts that begin and that are continued, by one row
// and by many.
#include "recurrent_cases.h"

#include <cmath>

#include "support/tensors.h"

namespace piton::test {
namespace {

struct Rows {
  std::string name;
  std::int64_t samples = 1;
  std::int64_t length = 0;             // of a sample
  std::vector<double> documents = {};  // rows of each, in every sample; empty: no segments
  double rate = -1;                    // mean; above 2, little is kept for more than a few rows
};

class RecurrentCases {
 public:
  explicit RecurrentCases(const CaseOptions& options)
      : dtype_(options.dtype),
        sums_(options.dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        source_(0xDE17A, options.awkward) {}

  void add_convolutions() {
    const std::vector<Rows> all{{"none", 1, 0},
                                {"one row", 2, 1},
                                {"short", 3, 2},
                                {"samples", 2, 37},
                                {"documents", 2, 12, {1, 2, 5, 4}}};
    for (const Rows& rows : all) {
      for (const auto& [c, w] : {std::pair{1, 1}, {7, 4}, {64, 3}, {131, 4}}) {
        for (const bool biased : {false, true}) {
          for (const bool silu : {false, true}) add(rows, {c, w}, biased, silu);
        }
      }
    }
    for (const auto& [c, silu] : {std::pair{5, true}, {130, true}, {130, false}}) {
      const std::int64_t n = 9;
      add(fmt::format("texts, c {}{}", c, silu ? "" : ", sums"), 4,
          ConvolutionForward{.y = source_.unwritten(dtype_, {n, c}),
                             .x = source_.normal_rows(dtype_, {n, c}),
                             .weight = source_.normal(dtype_, {c, 4}),
                             .bias = c == 5 ? Tensor() : source_.normal(dtype_, {c}),
                             .texts = texts(),
                             .state = source_.normal(dtype_, {5, 3, c}),
                             .silu = silu});
    }
  }

  void add_delta_rules(StateRule rule) {
    const bool corrects = rule == StateRule::kDelta;
    struct Heads {
      std::int64_t keys, values, key_size, value_size;
    };
    const std::vector<Rows> all{{"none", 1, 0},
                                {"one row", 2, 1},
                                {"samples", 2, 13},
                                {"chunks", 1, 150},
                                {"long documents", 1, 150, {30, 1, 80, 39}},
                                {"chunks of fast decays", 1, 150, {}, 2.5},
                                {"documents", 2, 12, {1, 2, 5, 4}}};
    for (const Rows& rows : all) {
      for (const Heads& h : {Heads{1, 1, 1, 1},
                             {2, 4, 9, 5},
                             {1, 2, 32, 70},
                             {1, 1, 128, 24},
                             {1, 2, 256, 64},
                             {1, 19, 6, 3}}) {
        if (rows.length == 150 && h.key_size == 1) continue;
        if (rows.length == 150 && (h.key_size == 256 || h.values == 19)) continue;
        const auto [in, detail] = input(rule, rows, h.keys, h.values, h.key_size, h.value_size);
        add("forward, " + detail, terms_of(rule, rows, h.key_size),
            DeltaRuleForward{.out = source_.unwritten(dtype_, in.v.shape()), .in = in});
        const bool all_sums = h.values != 1;
        const Shape heads{h.values};
        add("backward, " + detail, terms_of(rule, rows, h.key_size) * 4,
            DeltaRuleBackward{
                .dq = source_.unwritten_rows(dtype_, in.q.shape()),
                .dk = source_.unwritten_rows(dtype_, in.q.shape()),
                .dv = source_.unwritten_rows(dtype_, in.v.shape()),
                .ddecay = source_.unwritten_rows(dtype_, in.decay.shape()),
                .dstrength = corrects ? source_.unwritten_rows(dtype_, in.decay.shape()) : Tensor(),
                .drate = all_sums ? source_.normal(sums_, heads) : Tensor(),
                .dbias = all_sums ? source_.normal(sums_, heads) : Tensor(),
                .dskip = all_sums && !corrects ? source_.normal(sums_, heads) : Tensor(),
                .dout = source_.normal(dtype_, in.v.shape()),
                .in = in});
      }
    }
    for (const std::int64_t d : {3, 64}) {
      auto [in, detail] = input(rule, {"texts", 1, 9}, 2, 4, d, d + 1);
      add("forward, " + detail, terms_of(rule, {"texts", 1, 9}, d),
          DeltaRuleForward{.out = source_.unwritten(dtype_, in.v.shape()),
                           .in = in,
                           .texts = texts(),
                           .state = source_.normal(sums_, {5, 4, d, d + 1})});
    }
  }

  // Of attention and of what heads give: columns of a projection.
  void add_gates(ActivationKind kind, const char* name) {
    for (const std::int64_t n : {0, 1, 9}) {
      for (const std::int64_t c : {6, 40, 67}) {
        const Shape shape{n, c};
        const auto inputs = [&] { return source_.normal_rows(dtype_, shape); };
        const auto outputs = [&] { return source_.unwritten_rows(dtype_, shape); };
        const std::string detail = fmt::format("{}, n {} c {}", name, n, c);
        add(detail, 1,
            ActivationForward{.y = outputs(), .x = inputs(), .up = inputs(), .kind = kind});
        add(detail, 1,
            ActivationBackward{.dx = outputs(),
                               .dup = outputs(),
                               .dy = inputs(),
                               .x = inputs(),
                               .up = inputs(),
                               .kind = kind});
      }
    }
  }

  std::vector<CallCase> take() { return std::move(cases_); }

 private:
  // Three texts of 9 rows: one begins, one is continued by a row, and one by several.
  TextRows texts() {
    return {.begins = tensor_of(DType::kI32, {4}, std::vector<double>{0, 5, 6, 9}),
            .lengths = tensor_of(DType::kI32, {3}, std::vector<double>{5, 40, 5}),
            .slots = tensor_of(DType::kI32, {3}, std::vector<double>{3, 0, 4})};
  }

  // Rows of queries and keys have length 1 in the delta rule. In a state space they are as long as
  // the root of their channels, and so are the terms of sums, which differ in sign.
  static std::int64_t terms_of(StateRule rule, const Rows& rows, std::int64_t keys) {
    const double size =
        rule == StateRule::kDelta ? 1 : 1 + 3 * std::sqrt(static_cast<double>(keys));
    return static_cast<std::int64_t>(size) * (8 + std::min<std::int64_t>(rows.length, 32) + keys);
  }

  static Tensor segments_of(const Rows& rows) {
    if (rows.documents.empty()) return {};
    std::vector<double> ids;
    for (std::int64_t sample = 0; sample < rows.samples; ++sample) {
      for (std::size_t i = 0; i < rows.documents.size(); ++i)
        ids.insert(ids.end(), static_cast<std::size_t>(rows.documents[i]), static_cast<double>(i));
    }
    return tensor_of(DType::kI32, {std::ssize(ids)}, ids);
  }

  void add(const Rows& rows, std::pair<std::int64_t, std::int64_t> sizes, bool biased, bool silu) {
    const auto [c, w] = sizes;
    const std::string detail = fmt::format("{}, c {} w {}{}{}", rows.name, c, w,
                                           biased ? ", biased" : "", silu ? "" : ", sums");
    const std::int64_t n = rows.samples * rows.length;
    const Tensor x = source_.normal_rows(dtype_, {n, c});
    const Tensor weight = source_.normal(dtype_, {c, w});
    const Tensor bias = biased ? source_.normal(dtype_, {c}) : Tensor();
    const Tensor segments = segments_of(rows);
    add("forward, " + detail, w,
        ConvolutionForward{.y = source_.unwritten(dtype_, {n, c}),
                           .x = x,
                           .weight = weight,
                           .bias = bias,
                           .segments = segments,
                           .samples = rows.samples,
                           .silu = silu});
    add("backward, " + detail, std::max(n, w),
        ConvolutionBackward{.dx = source_.unwritten_rows(dtype_, {n, c}),
                            .dweight = c == 7 ? Tensor() : source_.normal(sums_, {c, w}),
                            .dbias = biased && c != 64 ? source_.normal(sums_, {c}) : Tensor(),
                            .dy = source_.normal(dtype_, {n, c}),
                            .x = x,
                            .weight = weight,
                            .bias = bias,
                            .segments = segments,
                            .samples = rows.samples,
                            .silu = silu});
  }

  // Parts of the rows of one projection.
  std::pair<DeltaRuleInput, std::string> input(StateRule rule, const Rows& rows, std::int64_t keys,
                                               std::int64_t values, std::int64_t key_size,
                                               std::int64_t value_size) {
    const bool corrects = rule == StateRule::kDelta;
    const std::int64_t n = rows.samples * rows.length;
    const auto heads = [&](std::int64_t count, std::int64_t d) {
      return source_.normal_rows(dtype_, {n, count * d}).split_dim(1, d);
    };
    return {
        DeltaRuleInput{.q = heads(keys, key_size),
                       .k = heads(keys, key_size),
                       .v = heads(values, value_size),
                       .decay = source_.normal_rows(dtype_, {n, values}),
                       .strength = corrects ? source_.normal_rows(dtype_, {n, values}) : Tensor(),
                       .rate = source_.normal(dtype_, {values}, rows.rate, 0.5),
                       .bias = source_.normal(dtype_, {values}),
                       .skip = corrects ? Tensor() : source_.normal(dtype_, {values}),
                       .segments = segments_of(rows),
                       .samples = rows.samples,
                       .rule = rule},
        fmt::format("{}{}, heads {} and {} of {} and {}", corrects ? "" : "state space, ",
                    rows.name, keys, values, key_size, value_size)};
  }

  template <typename Call>
  void add(const std::string& detail, std::int64_t terms, const Call& call) {
    cases_.push_back(
        {fmt::format("{} {}, {}", Call::kName, detail, name(dtype_)), call, terms, dtype_});
  }

  DType dtype_;
  DType sums_;
  TensorSource source_;
  std::vector<CallCase> cases_;
};

}  // namespace

std::vector<CallCase> recurrent_cases(const CaseOptions& options) {
  RecurrentCases cases(options);
  cases.add_convolutions();
  cases.add_delta_rules(StateRule::kDelta);
  cases.add_delta_rules(StateRule::kStateSpace);
  cases.add_gates(ActivationKind::kSigmoid, "sigmoid gate");
  cases.add_gates(ActivationKind::kIdentity, "products");
  return cases.take();
}

}  // namespace piton::test
