#include "ops/experts/row_exchange.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

namespace piton {
namespace {

using Integers = std::vector<std::int32_t>;

// What the host computes of the choices.
struct HostRows {
  RowCounts counts;
  Integers sources, places, choices;
  CountedRows used;
};

// The sizes of an exchange, with the letters of the header.
struct Sizes {
  int e, rank;
  std::int64_t n, k, m;
  std::int64_t pair;  // the most rows from a rank to another one

  std::int64_t sent() const {
    return std::min<std::int64_t>(n * std::min<std::int64_t>(k, e), e * pair);
  }
  std::int64_t received() const { return e * pair; }
};

Sizes sizes_of(const Communicator& ranks, const Tensor& choices, const ExchangedExperts& experts) {
  Sizes sizes{.e = ranks.size(),
              .rank = ranks.rank(),
              .n = choices.dim(0) / ranks.size(),
              .k = choices.dim(1),
              .m = experts.here.count,
              .pair = 0};
  sizes.pair = std::min(sizes.n, sizes.m * experts.most);
  return sizes;
}

// The ranks of the experts that a token chooses, each once.
class RanksOfToken {
 public:
  explicit RanksOfToken(const Sizes& sizes)
      : sizes_(sizes), seen_(static_cast<std::size_t>(sizes.e), -1) {}

  // Calls use(rank) for each of them.
  template <typename Use>
  void visit(std::int64_t token, const std::int32_t* choices, const Use& use) {
    for (std::int64_t j = 0; j < sizes_.k; ++j) {
      if (choices[j] < 0) continue;
      const std::int64_t rank = choices[j] / sizes_.m;
      std::int64_t& seen = seen_[static_cast<std::size_t>(rank)];
      if (std::exchange(seen, token) != token) use(static_cast<int>(rank));
    }
  }

 private:
  const Sizes& sizes_;
  std::vector<std::int64_t> seen_;  // the last token
};

HostRows empty_rows(const Sizes& sizes) {
  const auto filled = [](std::int64_t size, std::int32_t with) {
    return Integers(static_cast<std::size_t>(size), with);
  };
  return {.counts = RowCounts(sizes.e),
          .sources = filled(sizes.sent(), 0),
          .places = filled(sizes.n * sizes.e, -1),
          .choices = filled(sizes.received() * sizes.k, -1),
          .used = {}};
}

// In one pass over the choices for the counts and one for the rows.
HostRows rows_of(const Sizes& sizes, const Integers& all) {
  HostRows rows = empty_rows(sizes);
  RanksOfToken ranks(sizes), again(sizes);
  const std::int64_t tokens = sizes.e * sizes.n;
  for (std::int64_t t = 0; t < tokens; ++t) {
    ranks.visit(t, all.data() + t * sizes.k,
                [&](int to) { ++rows.counts.at(static_cast<int>(t / sizes.n), to); });
  }
  std::vector<std::int64_t> next;  // row to each rank
  for (int to = 0; to < sizes.e; ++to) next.push_back(rows.counts.first_sent(sizes.rank, to));
  const auto is_here = [&](std::int32_t choice) {
    return choice >= 0 && choice / sizes.m == sizes.rank;
  };
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t* choices = all.data() + t * sizes.k;
    again.visit(t, choices, [&](int to) {
      if (t / sizes.n == sizes.rank) {
        const std::int64_t token = t % sizes.n, place = next[static_cast<std::size_t>(to)]++;
        rows.sources[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(token);
        rows.places[static_cast<std::size_t>(token * sizes.e + to)] =
            static_cast<std::int32_t>(place);
      }
      if (to != sizes.rank) return;
      std::copy_n(choices, sizes.k, rows.choices.data() + rows.used.tokens++ * sizes.k);
      rows.used.rows += std::count_if(choices, choices + sizes.k, is_here);
    });
  }
  return rows;
}

// Of uniform choices; nobody has made any.
HostRows expected_rows(const Sizes& sizes, const ExchangedExperts& experts) {
  HostRows rows = empty_rows(sizes);
  for (int to = 0; to < sizes.e; ++to) {
    const double share = share_of_tokens(experts.rules, experts.experts, {to * sizes.m, sizes.m});
    const auto expected = std::llround(share * static_cast<double>(sizes.n));
    for (int from = 0; from < sizes.e; ++from)
      rows.counts.at(from, to) = std::min<std::int64_t>(expected, sizes.pair);
  }
  // Room for all that is sent, and received, is not exceeded, but for rounding.
  while (rows.counts.sent(sizes.rank) > sizes.sent()) --rows.counts.at(sizes.rank, sizes.rank);
  rows.used.tokens = rows.counts.received(sizes.rank);
  rows.used.rows = std::min({sizes.n * sizes.k, rows.used.tokens * std::min(sizes.k, sizes.m),
                             sizes.e * sizes.m * experts.most});
  return rows;
}

// x [n, h], sources int32 [s], of which `count` -> [s, h].
Tensor rows_to_send(const Context& context, const Tensor& x, const Tensor& sources,
                    std::int64_t count) {
  const Tensor y = context.activation(x.dtype(), {sources.dim(0), x.dim(1)});
  context.kernels.run(
      EmbeddingForward{.y = y.slice(0, 0, count), .table = x, .ids = sources.slice(0, 0, count)},
      context.stream);
  return y;
}

// [room, w]: what all_to_all_rows gives.
Traveling moved(const Context& context, Communicator& ranks, const Tensor& mine, std::int64_t room,
                const RowCounts& counts) {
  const Tensor out = context.activation(mine.dtype(), {room, mine.dim(1)});
  const Event ready = ranks.all_to_all_rows(out, mine, counts, context.stream);
  for (const Tensor& tensor : {out, mine}) context.arena.hold(tensor, ready.fence());
  return {out, ready};
}

// What both ways of an exchange need, without its tensors.
struct Ways {
  Communicator* ranks;
  RowCounts counts;         // of the way to the experts
  std::int64_t sent, room;  // rows of the tensors here, and at the experts

  explicit Ways(const RowExchange& exchange)
      : ranks(exchange.ranks),
        counts(exchange.counts),
        sent(exchange.sources.dim(0)),
        room(exchange.choices.dim(0)) {}

  // x [n, w] -> [room, w]. `sources`: of the exchange.
  Traveling to_experts(const Context& context, const Tensor& x, const Tensor& sources) const {
    const Tensor rows = rows_to_send(context, x, sources, counts.sent(ranks->rank()));
    return moved(context, *ranks, rows, room, counts);
  }
  // x [room, w] -> [sent, w].
  Traveling from_experts(const Context& context, const Tensor& x) const {
    return moved(context, *ranks, x, sent, counts.reversed());
  }
};

// rows [s, w], `places` of the exchange -> [n, w]: what the ranks have for each token, added up.
Tensor added_up(const Context& context, const Tensor& rows, const Tensor& places) {
  const Tensor y = context.activation(rows.dtype(), {places.dim(0), rows.dim(1)});
  context.kernels.run(CombineExperts{.y = y, .rows = rows, .places = places}, context.stream);
  return y;
}

}  // namespace

RowExchange exchanged_rows(Context& context, Communicator& ranks, const Tensor& choices,
                           const ExchangedExperts& experts) {
  const Sizes sizes = sizes_of(ranks, choices, experts);
  const auto found = [&] {
    if (!ranks.real()) return expected_rows(sizes, experts);
    Integers all(static_cast<std::size_t>(choices.elements()));
    context.device.download(choices, all.data(), context.stream);
    return rows_of(sizes, all);
  };
  const HostRows rows = found();
  PITON_ASSERT(rows.used.tokens <= sizes.received() && rows.counts.sent(sizes.rank) <= sizes.sent(),
               "{} rows to send and {} to receive, with room for {} and {}",
               rows.counts.sent(sizes.rank), rows.used.tokens, sizes.sent(), sizes.received());
  const auto uploaded = [&](const Shape& shape, const Integers& numbers) {
    const Tensor tensor = context.activation(DType::kI32, shape);
    context.device.upload(numbers.data(), tensor, context.stream);
    return tensor;
  };
  return {.ranks = &ranks,
          .counts = rows.counts,
          .sources = uploaded({sizes.sent()}, rows.sources),
          .places = uploaded({sizes.n, sizes.e}, rows.places),
          .choices = uploaded({sizes.received(), sizes.k}, rows.choices),
          .used = rows.used};
}

UnderWay start_sent_rows(Context& context, const Value& x, const RowExchange& exchange) {
  const Ways ways(exchange);
  const Traveling there = ways.to_experts(context, x.tensor, exchange.sources);
  const auto back = std::make_shared<Traveling>();
  const bool wants = x.wants_gradient();
  if (context.tape != nullptr && wants) {
    context.tape->record(
        [x_id = x.id, back, places = context.tape->keep(exchange.places)](Backward& backward) {
          const Traveling rows = std::exchange(*back, {});
          if (!rows.tensor.defined()) return;
          backward.context().await(rows.ready);
          backward.give(x_id, added_up(backward.context(), rows.tensor, places.get()));
        });
  }
  return UnderWay([ways, there, back, wants](Context& context) -> Value {
    context.await(there.ready);
    if (context.tape == nullptr) return {there.tensor};
    Value result = context.tape->output(there.tensor);
    if (!wants) return result;
    context.tape->record([id = result.id, ways, back](Backward& backward) {
      const Tensor dy = backward.take(id);
      if (dy.defined()) *back = ways.from_experts(backward.context(), dy);
    });
    return result;
  });
}

Value sent_rows(Context& context, const Value& x, const RowExchange& exchange) {
  return start_sent_rows(context, x, exchange).finish(context);
}

UnderWay start_returned_rows(Context& context, const Value& x, const RowExchange& exchange) {
  const Ways ways(exchange);
  const Traveling rows = ways.from_experts(context, x.tensor);
  const auto back = give_when_back(context, x.id);
  return UnderWay([ways, rows, back, sources = exchange.sources,
                   places = exchange.places](Context& context) -> Value {
    context.await(rows.ready);
    const Tensor y = added_up(context, rows.tensor, places);
    if (context.tape == nullptr) return {y};
    Value result = context.tape->output(y);
    context.tape->record(
        [id = result.id, ways, back, kept = context.tape->keep(sources)](Backward& backward) {
          const Tensor dy = backward.take(id);
          if (dy.defined()) *back = ways.to_experts(backward.context(), dy, kept.get());
        });
    return result;
  });
}

Value returned_rows(Context& context, const Value& x, const RowExchange& exchange) {
  return start_returned_rows(context, x, exchange).finish(context);
}

double share_of_tokens(const RoutingRules& rules, std::int64_t experts, const ExpertRange& here) {
  const std::int64_t size = experts / rules.groups.count;  // of a group
  const std::int64_t end = here.first + here.count;
  // ways[i][s]: of choosing i groups that have s experts here.
  std::vector<std::vector<double>> ways(
      static_cast<std::size_t>(rules.groups.chosen) + 1,
      std::vector<double>(static_cast<std::size_t>(here.count) + 1));
  ways[0][0] = 1;
  for (std::int64_t group = 0; group < rules.groups.count; ++group) {
    const std::int64_t begin = group * size;
    const std::int64_t both = std::clamp<std::int64_t>(
        std::min(end, begin + size) - std::max(here.first, begin), 0, size);
    for (std::size_t i = ways.size() - 1; i > 0; --i) {
      for (std::int64_t s = here.count; s >= both; --s)
        ways[i][static_cast<std::size_t>(s)] += ways[i - 1][static_cast<std::size_t>(s - both)];
    }
  }
  const std::int64_t open = rules.groups.chosen * size;  // experts that a token may choose
  double all = 0, none = 0;
  for (std::int64_t s = 0; s <= here.count; ++s) {
    double missed = 1;  // the probability that all k choices are elsewhere
    for (std::int64_t j = 0; j < rules.choices; ++j)
      missed *= static_cast<double>(std::max<std::int64_t>(open - s - j, 0)) /
                static_cast<double>(open - j);
    all += ways.back()[static_cast<std::size_t>(s)];
    none += ways.back()[static_cast<std::size_t>(s)] * missed;
  }
  return 1 - none / all;
}

}  // namespace piton
