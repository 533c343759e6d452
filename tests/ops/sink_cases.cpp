// Sinks of rows that see keys and of some that see none, log-sum-exps of a cache, gates within a
// bound, and biases of experts, of which some have no rows.
#include "sink_cases.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "support/tensors.h"

namespace piton::test {
namespace {

class SinkCases {
 public:
  explicit SinkCases(const CaseOptions& options)
      : dtype_(options.dtype),
        sums_(options.dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        source_(0x51, options.awkward) {}

  void add_sinks() {
    for (const Shape& s :
         {Shape{2, 13, 4, 10}, Shape{1, 150, 3, 64}, Shape{0, 3, 2, 8}, Shape{3, 1, 6, 33}}) {
      add_sink(s, dtype_, dtype_);
      add_sink(s, sums_, dtype_);
      const Tensor dout = source_.normal_rows(dtype_, {s[0] * s[1] * s[2], s[3]});
      add(fmt::format("of {} queries", s[1]), s[0] * s[1] * s[3],
          AttentionSinkBackward{.dsinks = source_.normal(sums_, {s[2]}),
                                .dout = dout.split_dim(0, s[2]).split_dim(0, s[1]),
                                .out = source_.normal(dtype_, s),
                                .lse = source_.normal(sums_, {s[0], s[2], s[1]}, 4, 0.5),
                                .sinks = source_.normal(dtype_, {s[2]}, 0, 2)});
    }
  }

  // Several samples, a prompt in two tiles, and a window.
  void add_cached() {
    for (const auto& [name, rows, keys] :
         {std::tuple{"decoding", std::vector<double>{1, 1}, std::vector<double>{63, 200}},
          {"mixed", {1, 70, 5}, {1, 130, 64}},
          {"short", {2, 1}, {40, 5}}}) {
      for (const std::int64_t d : {9, 64}) {
        std::vector<double> begins{0}, table;
        for (const double one : rows) begins.push_back(begins.back() + one);
        for (std::size_t i = 0; i < rows.size(); ++i)
          for (const double page : {2.0, 0.0, 3.0, 1.0}) table.push_back(page);
        const auto n = static_cast<std::int64_t>(begins.back());
        const auto b = std::ssize(rows);
        const auto cache = [&] {
          return source_.normal_rows(dtype_, {4, 2, kCachePage, d}).swap_dims(1, 2);
        };
        const bool window = d == 9;
        CachedAttention call{.out = source_.unwritten(dtype_, {n, 6, d}),
                             .lse = source_.unwritten(sums_, {6, n}),
                             .q = source_.normal_rows(dtype_, {n, 6 * d}).split_dim(1, d),
                             .keys = cache(),
                             .values = cache(),
                             .begins = tensor_of(DType::kI32, {b + 1}, begins),
                             .lengths = tensor_of(DType::kI32, {b}, keys),
                             .table = tensor_of(DType::kI32, {b, 4}, table),
                             .scale = 1 / std::sqrt(static_cast<double>(d)),
                             .pairs = 1};
        if (window) call.window_before = 66;
        add(fmt::format("with sums, {}, d {}", name, d), d + 256, call, dtype_);
      }
    }
  }

  void add_gates() {
    for (const std::int64_t n : {0, 1, 9}) {
      for (const std::int64_t f : {6, 40, 67}) {
        for (const GateRule rule : {GateRule{0.8, 1}, GateRule{1.5, 0}, GateRule{0, 1}}) {
          const std::string detail =
              fmt::format("n {} f {} bound {} offset {}", n, f, rule.bound, rule.offset);
          const Shape shape{n, f};
          const auto inputs = [&] { return source_.normal_rows(dtype_, shape); };
          add(detail, 1,
              ActivationForward{.y = source_.unwritten_rows(dtype_, shape),
                                .x = inputs(),
                                .up = inputs(),
                                .kind = ActivationKind::kGeluFast,
                                .gate = rule});
          add(detail, 1,
              ActivationBackward{.dx = source_.unwritten_rows(dtype_, shape),
                                 .dup = source_.unwritten_rows(dtype_, shape),
                                 .dy = inputs(),
                                 .x = inputs(),
                                 .up = inputs(),
                                 .kind = ActivationKind::kGeluFast,
                                 .gate = rule});
        }
      }
    }
  }

  void add_experts() {
    for (const std::vector<std::int64_t>& counts :
         {std::vector<std::int64_t>{3, 0, 5}, {1}, {0, 0}, {70, 2, 0, 130}}) {
      for (const auto& [out, in] : {std::pair{33, 20}, {64, 32}, {7, 130}}) {
        const std::int64_t m = std::ssize(counts);
        const std::int64_t n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        std::vector<double> first{0};
        for (const std::int64_t count : counts)
          first.push_back(first.back() + static_cast<double>(count));
        const Tensor first_rows = tensor_of(DType::kI32, {m + 1}, first);
        const WeightView weight{.tensor = source_.normal(dtype_, {m * out, in}),
                                .out = out,
                                .in = in,
                                .dtype = dtype_,
                                .matrices = m};
        const std::string detail = fmt::format("experts with {} rows and biases, out {} in {}",
                                               fmt::join(counts, " "), out, in);
        for (const DType outside : {dtype_, sums_}) {
          add(detail, in + 1,
              LinearForward{.y = source_.unwritten_rows(outside, {n, out}),
                            .x = source_.normal_rows(dtype_, {n, in}),
                            .weight = weight,
                            .bias = source_.normal(dtype_, {m * out}),
                            .first_rows = first_rows});
        }
        add(detail, std::max<std::int64_t>(n, 1),
            LinearBackwardWeight{.dweight = source_.normal(sums_, {m * out, in}),
                                 .dbias = source_.normal(sums_, {m * out}),
                                 .dy = source_.normal_rows(dtype_, {n, out}),
                                 .x = source_.normal_rows(dtype_, {n, in}),
                                 .first_rows = first_rows});
      }
    }
  }

  std::vector<CallCase> take() { return std::move(cases_); }

 private:
  template <typename Call>
  void add(const std::string& detail, std::int64_t terms, Call call,
           DType narrowest = DType::kF64) {
    cases_.push_back({.name = fmt::format("{}, {}, {}", Call::kName, name(dtype_), detail),
                      .call = std::move(call),
                      .terms = std::max<std::int64_t>(terms, 1),
                      .narrowest = narrowest});
  }

  // Some rows have seen no key; one head has no sink to speak of, one little else.
  void add_sink(const Shape& s, DType out, DType of_sinks) {
    for (const bool learned : {true, false}) {
      AttentionSink call{.out = source_.normal(out, s),
                         .lse = source_.normal(sums_, {s[0], s[2], s[1]}, 0, 2),
                         .sinks = learned ? source_.normal(of_sinks, {s[2]}, 0, 2) : Tensor()};
      if (learned) {
        set_value(call.sinks, 0, -200);
        set_value(call.sinks, 1, 150);
      }
      for (std::int64_t i = 0; i < call.lse.elements(); i += 7)
        set_value(call.lse, i, -std::numeric_limits<double>::infinity());
      add(fmt::format("of {} queries in {}, learned {}", s[1], name(out), learned), 4, call);
    }
  }

  DType dtype_;
  DType sums_;
  TensorSource source_;
  std::vector<CallCase> cases_;
};

}  // namespace

std::vector<CallCase> sink_cases(const CaseOptions& options) {
  SinkCases list(options);
  list.add_sinks();
  list.add_cached();
  list.add_gates();
  list.add_experts();
  return list.take();
}

}  // namespace piton::test
