// Few and many tokens, choices and experts, with ties and with experts that have no token; products
// of experts with no row, few rows, and more than a tile of rows. All of it also of a part of the
// experts, with room for rows that are of none: NaN where it must not be read, and numbers where it
// must not be written.
#include "expert_cases.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "call_runner.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

struct Routing {
  std::int64_t n, experts, k;
};

// How the logits of a case are made.
enum class LogitKind {
  kNormal,
  kTies,    // three values
  kUneven,  // all tokens prefer the last experts
  kNever,   // some are -infinity
};

class ExpertCaseList {
 public:
  explicit ExpertCaseList(const CaseOptions& options)
      : dtype_(options.dtype),
        sums_(options.dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        codes_(options.codes),
        source_(0xE4, options.awkward) {}

  std::vector<CallCase> take() { return std::move(cases_); }

  void add_routings() {
    for (const Routing& size :
         {Routing{0, 4, 2}, Routing{1, 1, 1}, Routing{1, 4, 1}, Routing{7, 4, 2}, Routing{3, 60, 8},
          Routing{37, 60, 4}, Routing{9, 128, 8}, Routing{1200, 8, 2}}) {
      for (const bool normalized : {false, true}) {
        for (const bool balance : {false, true}) {
          // Each kind with and without the rest, over the sizes.
          const auto kind = static_cast<LogitKind>(number_++ % 4);
          add_routing(size, kind, normalized, balance);
        }
      }
    }
    add_routing({70, 4, 4}, LogitKind::kTies, true, true);
    add_routing({5, 600, 3}, LogitKind::kNormal, true, true);  // more than a block has threads
    add_rules();
  }

  // Sigmoids, with and without a bias; groups, as many as there are rules for, and of one expert.
  void add_rules() {
    const Routing one{1, 4, 1}, few{7, 12, 4}, many{37, 60, 4}, deep{9, 256, 8}, all{5, 64, 3};
    const Rules sigmoid{.score = ScoreKind::kSigmoid, .factor = 2.5};
    Rules biased = sigmoid;
    biased.bias = true;
    Rules grouped = biased;
    for (const bool normalized : {false, true}) {
      add_routing(one, LogitKind::kNormal, normalized, true, sigmoid);
      add_routing(many, LogitKind::kTies, normalized, true, sigmoid);
      add_routing(many, LogitKind::kNever, normalized, false, biased);
      add_routing({70, 4, 4}, LogitKind::kNormal, normalized, true, biased);
      grouped.groups = {4, 2, 2};
      add_routing(few, LogitKind::kNormal, normalized, true, grouped);
      grouped.groups = {8, 4, 2};
      add_routing(deep, LogitKind::kNormal, normalized, true, grouped);
      Rules softmax{.factor = 16, .groups = {4, 2, 1}};
      add_routing(few, LogitKind::kUneven, normalized, true, softmax);
      add_routing(few, LogitKind::kTies, normalized, false, softmax);
      const Rules ernie{.factor = 2, .bias = true};
      add_routing(many, LogitKind::kNormal, normalized, true, ernie);
      add_routing(few, LogitKind::kTies, normalized, false, ernie);
      softmax.groups = {64, 7, 1};
      add_routing(all, LogitKind::kNormal, normalized, true, softmax);
    }
  }

  void add_excesses() {
    for (const Routing& size : {Routing{0, 4, 2}, Routing{1, 1, 1}, Routing{37, 60, 8},
                                Routing{5, 600, 3}, Routing{1200, 8, 2}}) {
      add(fmt::format("n {} k {} experts {}", size.n, size.k, size.experts), 2,
          ExcessChoices{.excess = source_.normal(sums_, {size.experts}, 0, 100),
                        .choices = routed(size, LogitKind::kUneven).choices});
    }
  }

  // Of weights that differ, that are equal, and that are NaN; none, all and some choices stay.
  void add_limits() {
    for (const Routing& size : {Routing{0, 4, 2}, Routing{1, 1, 1}, Routing{16, 4, 2},
                                Routing{36, 60, 8}, Routing{4, 600, 3}, Routing{1200, 8, 2}}) {
      for (const std::int64_t capacity : {std::int64_t{1}, size.n / 3 + 1, size.n + 1}) {
        for (const SampleRows rows : {SampleRows{1, 1}, SampleRows{4, 1}, SampleRows{2, 2}}) {
          if (size.n % (rows.samples * (rows.ranks == 1 ? 1 : 4)) != 0) continue;
          for (const LogitKind kind : {LogitKind::kUneven, LogitKind::kTies}) {
            add_limit(limit(size, kind, capacity, rows));
          }
          LimitChoices first = limit(size, LogitKind::kUneven, capacity, rows);
          first.weights = {};
          add_limit(first);
        }
      }
      // What reads choices that are dropped: a sort with room for the others alone.
      const Tensor kept = limited(size, 2).kept;
      add(fmt::format("n {} k {} experts {} limited", size.n, size.k, size.experts), 2,
          ExcessChoices{.excess = source_.normal(sums_, {size.experts}, 0, 100),
                        .choices = kept,
                        .limited = true});
      SortByExpert few = sort(kept, {0, size.experts});
      const std::int64_t room = std::min(few.rows.sources.dim(0), 2 * size.experts);
      few.rows.sources = source_.integers({room}, -9, -9);
      add(fmt::format("n {} k {} experts {} limited", size.n, size.k, size.experts), 1, few);
    }
    LimitChoices bad = limit({16, 4, 2}, LogitKind::kUneven, 2, {2, 1});
    for (std::int64_t i = 0; i < bad.weights.elements(); i += 3)
      set_value(bad.weights, i, std::numeric_limits<double>::quiet_NaN());
    add_limit(bad);
  }

  void add_z_losses() {
    for (const Routing& size : {Routing{0, 4, 1}, Routing{1, 1, 1}, Routing{37, 60, 1},
                                Routing{5, 600, 1}, Routing{1200, 8, 1}}) {
      const std::string detail = fmt::format("n {} experts {}", size.n, size.experts);
      const Tensor logits = source_.normal(sums_, {size.n, size.experts}, 0, 3);
      add(detail, size.n + size.experts,
          RouterZLoss{.sum = source_.normal(DType::kF64, {1}), .logits = logits}, sums_);
      add(detail, size.experts,
          RouterZLossBackward{.dlogits = source_.unwritten(sums_, {size.n, size.experts}),
                              .logits = logits,
                              .scale = source_.normal(sums_, {1}),
                              .factor = 0.3});
    }
  }

  void add_sorts() {
    for (const Routing& size : {Routing{0, 4, 2}, Routing{1, 1, 1}, Routing{7, 4, 2},
                                Routing{3, 60, 8}, Routing{37, 60, 4}, Routing{1200, 8, 2}}) {
      const Tensor choices = routed(size, LogitKind::kUneven).choices;
      for (const Part part :
           {Part{0, size.experts}, Part{0, 1}, Part{size.experts / 2, 1},
            Part{size.experts - size.experts / 2, size.experts / 2}, Part{size.experts, 3}}) {
        if (part.count == 0) continue;
        add(fmt::format("n {} k {} experts {} from {} of {}", size.n, size.k, part.count,
                        part.first, size.experts),
            1, sort(choices, part));
      }
    }
  }

  // More tokens than a block looks at together, and more ranks than it has threads.
  void add_rank_sorts() {
    for (const Routing& size : {Routing{0, 4, 2}, Routing{3, 3, 1}, Routing{8, 4, 2},
                                Routing{6, 60, 8}, Routing{36, 12, 4}, Routing{2400, 8, 2}}) {
      for (const std::int64_t ranks : {1, 2, 3, 4}) {
        if (size.n % ranks != 0 || size.experts % ranks != 0) continue;
        add_rank_sort(size, ranks, routed(size, LogitKind::kUneven).choices, "");
        if (size.n > 0) add_rank_sort(size, ranks, limited(size, 2).kept, " limited");
      }
    }
    const Routing wide{300, 600, 3};
    add_rank_sort(wide, 300, routed(wide, LogitKind::kNormal).choices, "");
  }

  // Rows of no token: inputs that nothing may read, outputs that stay.
  void add_used_rows() {
    constexpr std::int64_t kRows = 37;
    for (const std::int64_t used : {0, 5, 37}) {
      for (const std::int64_t f : {1, 24, 67, 264}) {
        const auto input = [&] {
          const Tensor rows = source_.normal_rows(dtype_, {kRows, f});
          fill_spare(rows, used, kUnread);
          return rows;
        };
        const auto contiguous_input = [&] {
          const Tensor rows = source_.normal(dtype_, {kRows, f});
          fill_spare(rows, used, kUnread);
          return rows;
        };
        const auto output = [&](bool gaps) {
          const Tensor rows = gaps ? source_.unwritten_rows(dtype_, {kRows, f})
                                   : source_.unwritten(dtype_, {kRows, f});
          fill_spare(rows, used, kKept);
          return rows;
        };
        const Tensor count = tensor_of(DType::kI32, {1}, std::vector{static_cast<double>(used)});
        const std::string detail = fmt::format("{} of {} rows of {}", used, kRows, f);
        for (const bool gated : {false, true}) {
          const Tensor up = gated ? input() : Tensor();
          add(fmt::format("{} gated {}", detail, gated), 4,
              ActivationForward{.y = output(true),
                                .x = input(),
                                .up = up,
                                .kind = ActivationKind::kSilu,
                                .used = count});
          add(fmt::format("{} gated {}", detail, gated), 4,
              ActivationBackward{.dx = output(true),
                                 .dup = gated ? output(true) : Tensor(),
                                 .dy = input(),
                                 .x = input(),
                                 .up = up,
                                 .kind = ActivationKind::kSilu,
                                 .used = count});
        }
        add(detail, 1,
            Scale{.y = output(false), .x = contiguous_input(), .factor = 0.7, .used = count});
        add(detail, 1,
            EmbeddingForward{.y = output(false),
                             .table = source_.normal(dtype_, {9, f}),
                             .ids = source_.integers({kRows}, 0, 8),
                             .used = count});
      }
    }
  }

  void add_combinations() {
    for (const Routing& size :
         {Routing{0, 4, 2}, Routing{1, 1, 1}, Routing{7, 4, 2}, Routing{37, 16, 8}}) {
      for (const std::int64_t h : {1, 24, 67, 264}) {
        for (const Part part : {Part{0, size.experts}, Part{size.experts / 2, size.experts / 4}})
          if (part.count > 0) add_combination(size, part, h);
      }
    }
  }

  void add_gated_sums() {
    for (const std::int64_t n : {0, 1, 77}) {
      for (const std::int64_t h : {1, 24, 67, 264}) {
        const std::string detail = fmt::format("n {} h {}", n, h);
        GatedSumForward forward{.y = source_.unwritten(dtype_, {n, h}),
                                .a = source_.normal(dtype_, {n, h}),
                                .x = source_.normal(dtype_, {n, h}),
                                .gate = source_.normal(sums_, {n, 1}, 0, 3)};
        add(detail, 2, forward);
        forward.y = forward.a;
        add(detail + " in place", 2, forward);
        add(detail, h,
            GatedSumBackward{.dx = source_.unwritten(dtype_, {n, h}),
                             .dgate = source_.unwritten(sums_, {n, 1}),
                             .dy = source_.normal(dtype_, {n, h}),
                             .x = source_.normal(dtype_, {n, h}),
                             .gate = source_.normal(sums_, {n, 1}, 0, 3)});
      }
    }
  }

  void add_linears() {
    using Counts = std::vector<std::int64_t>;
    struct Matrix {
      std::int64_t out, in;
    };
    for (const Counts& counts : {Counts{0, 0}, Counts{3}, Counts{0, 5, 0, 3, 1}, Counts{9, 0, 0},
                                 Counts{0, 0, 7}, Counts{1, 2, 130, 33, 0, 64}}) {
      for (const Matrix size : {Matrix{1, 1}, Matrix{7, 5}, Matrix{40, 72}}) {
        add_linear(counts, size.out, size.in, dtype_, /*overwrites=*/size.out == 7);
        if (dtype_ != sums_)
          add_linear(counts, size.out, size.in, sums_, /*overwrites=*/size.out != 7);
      }
      const bool none = std::ranges::all_of(counts, [](std::int64_t count) { return count == 0; });
      add_linear(counts, 7, 5, dtype_, /*overwrites=*/true, /*room=*/none ? 2 : 70);
      add_ends(counts, 33, 20, dtype_);
      if (dtype_ != sums_) add_ends(counts, 33, 20, sums_);
      if (!codes_) continue;
      for (const CodeKind kind : {CodeKind::kInt8, CodeKind::kInt4, CodeKind::kNf4}) {
        add_coded(counts, 70, 96, kind);
        add_coded(counts, 5, 35, kind);
        add_coded(counts, 20, 768, kind);  // one span and a half
      }
    }
    add_linear({2, 150}, 150, 40, dtype_, /*overwrites=*/false);  // several tiles of columns
    add_linear({40, 3}, 20, 290, dtype_, /*overwrites=*/true);
  }

 private:
  // Of RouteTokens.
  struct Rules {
    ScoreKind score = ScoreKind::kSoftmax;
    double factor = 1;
    bool bias = false;
    ExpertGroups groups = {};
  };

  // Experts that are here.
  struct Part {
    std::int64_t first, count;
  };

  template <typename Call>
  void add(const std::string& detail, std::int64_t terms, Call call, DType narrowest = DType::kF64,
           std::int64_t rounded_terms = 1) {
    cases_.push_back({.name = fmt::format("{}, {}, {}", Call::kName, name(dtype_), detail),
                      .call = std::move(call),
                      .terms = terms,
                      .narrowest = narrowest,
                      .rounded_terms = rounded_terms});
  }

  Tensor logits(const Routing& size, LogitKind kind) {
    const Tensor x = source_.normal(sums_, {size.n, size.experts}, 0, 2);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const std::int64_t expert = i % size.experts;
      if (kind == LogitKind::kTies) set_value(x, i, static_cast<double>(i % 7 % 3));
      if (kind == LogitKind::kUneven && expert < size.experts / 2)
        set_value(x, i, value_at(x, i) - 15);
      // As many numbers as choices are left.
      if (kind == LogitKind::kNever && expert >= size.k && i % 2 == 1)
        set_value(x, i, -std::numeric_limits<double>::infinity());
    }
    return x;
  }

  // With outputs that show what is not written.
  RouteTokens routing(const Routing& size, LogitKind kind) {
    const auto unwritten = [&](const Shape& shape) { return source_.integers(shape, -9, -9); };
    return {.weights = source_.unwritten(sums_, {size.n, size.k}),
            .choices = unwritten({size.n, size.k}),
            .counts = unwritten({size.experts}),
            .logits = logits(size, kind)};
  }

  RouteTokens routed(const Routing& size, LogitKind kind) {
    return std::get<RouteTokens>(run_reference(routing(size, kind)));
  }

  LimitChoices limit(const Routing& size, LogitKind kind, std::int64_t capacity,
                     const SampleRows& rows) {
    const RouteTokens of = routed(size, kind);
    return {.kept = source_.integers({size.n, size.k}, -9, -9),
            .choices = of.choices,
            .weights = of.weights,
            .experts = size.experts,
            .capacity = capacity,
            .rows = rows};
  }

  LimitChoices limited(const Routing& size, std::int64_t capacity) {
    return std::get<LimitChoices>(
        run_reference(limit(size, LogitKind::kUneven, capacity, SampleRows())));
  }

  void add_limit(const LimitChoices& call) {
    add(fmt::format("n {} k {} experts {} capacity {} samples {} ranks {} weights {} {}",
                    call.choices.dim(0), call.choices.dim(1), call.experts, call.capacity,
                    call.rows.samples, call.rows.ranks, call.weights.defined(), number_++),
        1, call);
  }

  SortByExpert sort(const Tensor& choices, const Part& part) {
    const auto unwritten = [&](const Shape& shape) { return source_.integers(shape, -9, -9); };
    const std::int64_t room = choices.dim(0) * std::min(choices.dim(1), part.count);
    return {.rows = {.sources = unwritten({room}),
                     .places = unwritten(choices.shape()),
                     .first_rows = unwritten({part.count + 1})},
            .choices = choices,
            .first = part.first};
  }

  void add_rank_sort(const Routing& size, std::int64_t ranks, const Tensor& choices,
                     const char* kind) {
    const auto unwritten = [&](const Shape& shape) { return source_.integers(shape, -9, -9); };
    const std::int64_t n = size.n / ranks;
    for (std::int64_t rank = 0; rank < ranks; rank += std::max<std::int64_t>(ranks - 1, 1)) {
      add(fmt::format("n {} k {} experts {} rank {} of {}{}", n, size.k, size.experts, rank, ranks,
                      kind),
          1,
          SortByRank{.sources = unwritten({n * std::min(size.k, ranks)}),
                     .places = unwritten({n, ranks}),
                     .received = unwritten({size.n, size.k}),
                     .counts = unwritten({ranks + 1, ranks}),
                     .sent = unwritten({1}),
                     .choices = choices,
                     .experts = size.experts / ranks,
                     .rank = rank});
    }
  }

  // What rows that are of no expert hold: of inputs what nothing may read, of outputs what stays.
  static constexpr double kUnread = std::numeric_limits<double>::quiet_NaN();
  static constexpr double kKept = 7;

  static void fill_spare(const Tensor& rows, std::int64_t used, double number) {
    for (std::int64_t row = used; row < rows.dim(0); ++row) {
      const Tensor one = rows.slice(0, row, 1);
      for (std::int64_t i = 0; i < rows.dim(1); ++i) set_value(one, i, number);
    }
  }

  void add_combination(const Routing& size, const Part& part, std::int64_t h) {
    const auto sorted =
        std::get<SortByExpert>(run_reference(sort(routed(size, LogitKind::kNormal).choices, part)));
    const Tensor& places = sorted.rows.places;
    const std::int64_t room = sorted.rows.sources.dim(0);
    const auto used = static_cast<std::int64_t>(value_at(sorted.rows.first_rows, part.count));
    const std::string detail =
        fmt::format("n {} k {} h {} experts {} of {}", size.n, size.k, h, part.count, size.experts);
    for (const bool weighted : {false, true}) {
      const Tensor rows = source_.normal(dtype_, {room, h});
      const Tensor y = source_.unwritten(dtype_, {size.n, h});
      fill_spare(rows, used, kUnread);
      add(fmt::format("{} weighted {}", detail, weighted), size.k,
          CombineExperts{.y = y,
                         .rows = rows,
                         .places = places,
                         .weights = weighted ? source_.normal(sums_, {size.n, size.k}) : Tensor()});
    }
    const Tensor rows = source_.normal(dtype_, {room, h});
    const Tensor drows = source_.unwritten(dtype_, {room, h});
    fill_spare(rows, used, kUnread);
    fill_spare(drows, used, kKept);
    add(detail, h,
        CombineExpertsBackward{.drows = drows,
                               .dweights = source_.unwritten(sums_, {size.n, size.k}),
                               .dy = source_.normal(dtype_, {size.n, h}),
                               .rows = rows,
                               .places = places,
                               .weights = source_.normal(sums_, {size.n, size.k})});
  }

  void add_routing(const Routing& size, LogitKind kind, bool normalized, bool balance) {
    add_routing(size, kind, normalized, balance, Rules());
  }

  void add_routing(const Routing& size, LogitKind kind, bool normalized, bool balance,
                   const Rules& rules) {
    std::string detail =
        fmt::format("n {} experts {} k {} logits {} normalized {} balance {}", size.n, size.experts,
                    size.k, static_cast<int>(kind), normalized, balance);
    if (rules.factor != 1) {
      detail += fmt::format(", scores {} bias {} groups {}", static_cast<int>(rules.score),
                            rules.bias, rules.groups.count);
    }
    RouteTokens forward = routing(size, kind);
    forward.normalized = normalized;
    forward.score = rules.score;
    forward.factor = rules.factor;
    forward.groups = rules.groups;
    if (rules.bias) forward.bias = source_.normal(sums_, {size.experts}, 0, 0.3);
    if (balance) forward.balance = source_.normal(DType::kF64, {1});
    add(detail, size.experts, forward, sums_);
    const RouteTokens after =
        rules.factor == 1 ? routed(size, kind) : std::get<RouteTokens>(run_reference(forward));
    const Tensor scale = tensor_of(sums_, {1}, std::vector{0.3});
    for (const bool weights : {true, false}) {
      add(fmt::format("{} dweights {}", detail, weights), size.experts,
          RouteBackward{.dlogits = source_.unwritten(sums_, {size.n, size.experts}),
                        .dweights = weights ? source_.normal(sums_, {size.n, size.k}) : Tensor(),
                        .logits = after.logits,
                        .choices = after.choices,
                        .counts = balance || normalized ? after.counts : Tensor(),
                        .scale = balance || normalized ? scale : Tensor(),
                        .balance_factor = balance ? 0.7 : 0,
                        .normalized = normalized,
                        .score = rules.score,
                        .factor = rules.factor});
    }
  }

  static Tensor first_rows(const std::vector<std::int64_t>& counts) {
    std::vector<double> first{0};
    for (const std::int64_t count : counts) first.push_back(first.back() + count);
    return tensor_of(DType::kI32, {std::ssize(first)}, first);
  }

  WeightView weight(std::int64_t matrices, std::int64_t out, std::int64_t in) {
    return {.tensor = source_.normal(dtype_, {matrices * out, in}),
            .out = out,
            .in = in,
            .dtype = dtype_,
            .matrices = matrices};
  }

  static std::string detail_of(const std::vector<std::int64_t>& counts, std::int64_t out,
                               std::int64_t in) {
    return fmt::format("experts with {} rows, out {} in {}", fmt::join(counts, " "), out, in);
  }

  void add_linear(const std::vector<std::int64_t>& counts, std::int64_t out, std::int64_t in,
                  DType outside, bool overwrites, std::int64_t room = 0) {
    const std::int64_t used = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const std::int64_t n = used + room;
    const std::int64_t m = std::ssize(counts);
    const std::string detail =
        fmt::format("{}, {} outside, room {}", detail_of(counts, out, in), name(outside), room);
    LinearForward forward{.y = source_.unwritten_rows(outside, {n, out}),
                          .x = source_.normal_rows(dtype_, {n, in}),
                          .weight = weight(m, out, in),
                          .first_rows = first_rows(counts)};
    fill_spare(forward.x, used, kUnread);
    fill_spare(forward.y, used, kKept);
    add(detail, in, forward);
    LinearBackwardInput input{.dx = source_.unwritten_rows(overwrites ? dtype_ : outside, {n, in}),
                              .dy = source_.normal_rows(outside, {n, out}),
                              .weight = weight(m, out, in),
                              .first_rows = first_rows(counts)};
    fill_spare(input.dy, used, kUnread);
    fill_spare(input.dx, used, kKept);
    add(detail, out, input, dtype_, outside == dtype_ ? 1 : out);
    const Shape shape{m * out, in};
    LinearBackwardWeight of_weight{
        .dweight = overwrites ? source_.unwritten(sums_, shape) : source_.normal(sums_, shape),
        .dy = source_.normal_rows(outside, {n, out}),
        .x = source_.normal_rows(dtype_, {n, in}),
        .overwrites = overwrites,
        .first_rows = first_rows(counts)};
    fill_spare(of_weight.dy, used, kUnread);
    fill_spare(of_weight.x, used, kUnread);
    // The worst of thousands of sums of few products is far above their average: as if of 4 more.
    add(fmt::format("{} overwrites {}", detail, overwrites), std::max<std::int64_t>(used, 1),
        of_weight, outside == dtype_ ? DType::kF64 : dtype_, used + 4);
  }

  // What may follow the sums.
  void add_ends(const std::vector<std::int64_t>& counts, std::int64_t out, std::int64_t in,
                DType outside) {
    const std::int64_t n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const std::int64_t m = std::ssize(counts);
    const std::string detail =
        fmt::format("{}, {} outside", detail_of(counts, out, in), name(outside));
    add(detail + " activated, kept", in,
        LinearForward{.y = source_.unwritten_rows(outside, {n, out}),
                      .x = source_.normal_rows(dtype_, {n, in}),
                      .weight = weight(m, out, in),
                      .residual = source_.normal_rows(outside, {n, out}),
                      .activation = ActivationKind::kGeluErf,
                      .preactivation = source_.unwritten_rows(outside, {n, out}),
                      .first_rows = first_rows(counts)});
    LinearForward in_place{.x = source_.normal_rows(dtype_, {n, in}),
                           .weight = weight(m, out, in),
                           .first_rows = first_rows(counts)};
    in_place.y = in_place.residual = source_.normal_rows(outside, {n, out});
    add(detail + " over the residual", in, in_place);
    if (outside != dtype_) return;
    LinearBackwardInput dx{.dy = source_.normal_rows(dtype_, {n, out}),
                           .weight = weight(m, out, in),
                           .first_rows = first_rows(counts)};
    dx.dx = dx.residual = source_.normal_rows(dtype_, {n, in});
    add(detail + " dx over the residual", out, dx);
  }

  WeightView coded(CodeKind kind, std::int64_t matrices, std::int64_t out, std::int64_t in) {
    const std::int64_t group = 32;
    const std::int64_t groups = (in + group - 1) / group;
    const double size = kind == CodeKind::kInt8 ? 160 : kind == CodeKind::kInt4 ? 20 : 1;
    const Tensor scales = source_.normal(DType::kF32, {matrices * out, groups});
    for (std::int64_t i = 0; i < scales.elements(); ++i)
      set_value(scales, i, std::clamp(value_at(scales, i), -1.0, 1.0) / size);
    const auto numbers = [&](bool given) {
      return given ? source_.normal(DType::kF32, {matrices * out, groups}, 0, 0.5) : Tensor();
    };
    return {.form = WeightForm::kCodes,
            .out = out,
            .in = in,
            .dtype = dtype_,
            .codes = {.kind = kind,
                      .group = group,
                      .codes = source_.integers({matrices * out, code_bytes(kind, in)}, 0, 255,
                                                DType::kU8),
                      .scales = scales,
                      .zeros = numbers(kind == CodeKind::kInt4),
                      .minima = numbers(kind == CodeKind::kInt8)},
            .matrices = matrices};
  }

  void add_coded(const std::vector<std::int64_t>& counts, std::int64_t out, std::int64_t in,
                 CodeKind kind) {
    const std::int64_t n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const WeightView weight = coded(kind, std::ssize(counts), out, in);
    const std::string detail =
        fmt::format("{}, code {}", detail_of(counts, out, in), static_cast<int>(kind));
    // Few rows are rounded to 16-bit integers on the way.
    add(detail, in,
        LinearForward{.y = source_.unwritten_rows(dtype_, {n, out}),
                      .x = source_.normal_rows(dtype_, {n, in}),
                      .weight = weight,
                      .first_rows = first_rows(counts)},
        size_bytes(dtype_) == 4 ? DType::kF16 : dtype_, in);
    add(detail, out,
        LinearBackwardInput{.dx = source_.unwritten_rows(dtype_, {n, in}),
                            .dy = source_.normal_rows(dtype_, {n, out}),
                            .weight = weight,
                            .residual = source_.normal_rows(dtype_, {n, in}),
                            .first_rows = first_rows(counts)},
        dtype_, out);
  }

  DType dtype_;
  DType sums_;
  bool codes_;
  int number_ = 0;
  TensorSource source_;
  std::vector<CallCase> cases_;
};

}  // namespace

std::vector<CallCase> expert_cases(const CaseOptions& options) {
  ExpertCaseList list(options);
  list.add_routings();
  list.add_sorts();
  list.add_rank_sorts();
  list.add_used_rows();
  list.add_combinations();
  list.add_gated_sums();
  list.add_linears();
  list.add_rules();
  list.add_excesses();
  list.add_z_losses();
  list.add_limits();
  return list.take();
}

}  // namespace piton::test
