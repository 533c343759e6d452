#include "ops/experts/row_exchange.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/recompute.h"

namespace piton {
namespace {

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

// Of uniform choices; nobody has made any.
HostCounts expected_counts(const Sizes& sizes, const ExchangedExperts& experts) {
  HostCounts counts{RowCounts(sizes.e), {}};
  RowCounts& pairs = counts.pairs;
  for (int to = 0; to < sizes.e; ++to) {
    const double share = share_of_tokens(experts.rules, experts.experts, {to * sizes.m, sizes.m});
    const auto expected = std::llround(share * static_cast<double>(sizes.n));
    for (int from = 0; from < sizes.e; ++from)
      pairs.at(from, to) = std::min<std::int64_t>(expected, sizes.pair);
  }
  // Room for all that is sent, and received, is not exceeded, but for rounding.
  while (pairs.sent(sizes.rank) > sizes.sent()) --pairs.at(sizes.rank, sizes.rank);
  counts.used.tokens = pairs.received(sizes.rank);
  counts.used.rows = std::min({sizes.n * sizes.k, counts.used.tokens * std::min(sizes.k, sizes.m),
                               sizes.e * sizes.m * experts.most});
  return counts;
}

// Of SortByRank::counts.
HostCounts read_counts(const Sizes& sizes, const std::vector<std::int32_t>& numbers) {
  HostCounts counts{RowCounts(sizes.e), {}};
  auto number = numbers.begin();
  for (int from = 0; from < sizes.e; ++from) {
    for (int to = 0; to < sizes.e; ++to) counts.pairs.at(from, to) = *number++;
  }
  counts.used = {.tokens = counts.pairs.received(sizes.rank),
                 .rows = std::accumulate(number, numbers.end(), std::int64_t{0})};
  const std::int64_t sent = counts.pairs.sent(sizes.rank);
  PITON_ASSERT(counts.used.tokens <= sizes.received() && sent <= sizes.sent(),
               "{} rows to send and {} to receive, with room for {} and {}", sent,
               counts.used.tokens, sizes.sent(), sizes.received());
  return counts;
}

// x [n, h], `sources` int32 [s], of which those in `used` -> [s, h].
Tensor rows_to_send(const Context& context, const Tensor& x, const Tensor& sources,
                    const Tensor& used) {
  const Tensor y = context.activation(x.dtype(), {sources.dim(0), x.dim(1)});
  context.kernels.run(EmbeddingForward{.y = y, .table = x, .ids = sources, .used = used},
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
  std::shared_ptr<ExchangeCounts> known;
  std::int64_t sent, room;  // rows of the tensors here, and at the experts

  explicit Ways(const RowExchange& exchange)
      : ranks(exchange.ranks),
        known(exchange.known),
        sent(exchange.sources.dim(0)),
        room(exchange.choices.dim(0)) {}

  // x [n, w] -> [room, w]. `sources`, `used`: of the exchange. The rows are packed before the host
  // waits for their numbers.
  Traveling to_experts(const Context& context, const Tensor& x, const Tensor& sources,
                       const Tensor& used) const {
    const Tensor rows = rows_to_send(context, x, sources, used);
    return moved(context, *ranks, rows, room, known->get().pairs);
  }
  // x [room, w] -> [sent, w].
  Traveling from_experts(const Context& context, const Tensor& x) const {
    return moved(context, *ranks, x, sent, known->get().pairs.reversed());
  }
};

// rows [s, w], `places` of the exchange -> [n, w]: what the ranks have for each token, added up.
Tensor added_up(const Context& context, const Tensor& rows, const Tensor& places) {
  const Tensor y = context.activation(rows.dtype(), {places.dim(0), rows.dim(1)});
  context.kernels.run(CombineExperts{.y = y, .rows = rows, .places = places}, context.stream);
  return y;
}

// What reads SortByRank::counts when it is asked for; in a replay what the first pass has read.
std::shared_ptr<ExchangeCounts> known_counts(const Context& context, const Communicator& ranks,
                                             const Tensor& counts, const Sizes& sizes,
                                             const ExchangedExperts& experts) {
  using Known = std::shared_ptr<ExchangeCounts>;
  if (context.facts != nullptr && context.facts->replayed()) return context.facts->next<Known>();
  Stream& reader = experts.reader != nullptr ? *experts.reader : context.stream;
  const auto read = [sizes, counts, ready = context.stream.record(), &reader,
                     &device = context.device] {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(counts.elements()));
    reader.wait(ready);
    device.download(counts, numbers.data(), reader);
    return read_counts(sizes, numbers);
  };
  // The memory of the counts is held as long.
  const auto expected = [sizes, experts, counts] { return expected_counts(sizes, experts); };
  const Known known = ranks.real() ? std::make_shared<ExchangeCounts>(read)
                                   : std::make_shared<ExchangeCounts>(expected);
  if (context.facts != nullptr) context.facts->add(known);
  return known;
}

}  // namespace

const HostCounts& ExchangeCounts::get() {
  if (read_) {
    known_ = read_();
    read_ = {};
  }
  return *known_;
}

RowExchange exchanged_rows(Context& context, Communicator& ranks, const Tensor& choices,
                           const ExchangedExperts& experts) {
  const Sizes sizes = sizes_of(ranks, choices, experts);
  const auto integers = [&](const Shape& shape) { return context.activation(DType::kI32, shape); };
  const SortByRank sort{.sources = integers({sizes.sent()}),
                        .places = integers({sizes.n, sizes.e}),
                        .received = integers({sizes.received(), sizes.k}),
                        .counts = integers({sizes.e + 1, sizes.e}),
                        .sent = integers({1}),
                        .choices = choices,
                        .experts = sizes.m,
                        .rank = sizes.rank};
  context.kernels.run(sort, context.stream);
  return {.ranks = &ranks,
          .known = known_counts(context, ranks, sort.counts, sizes, experts),
          .sources = sort.sources,
          .places = sort.places,
          .sent = sort.sent,
          .choices = sort.received};
}

UnderWay start_sent_rows(Context& context, const Value& x, const RowExchange& exchange) {
  const Ways ways(exchange);
  const Traveling there = ways.to_experts(context, x.tensor, exchange.sources, exchange.sent);
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
  return UnderWay([ways, rows, back, sources = exchange.sources, sent = exchange.sent,
                   places = exchange.places](Context& context) -> Value {
    context.await(rows.ready);
    const Tensor y = added_up(context, rows.tensor, places);
    if (context.tape == nullptr) return {y};
    Value result = context.tape->output(y);
    context.tape->record([id = result.id, ways, back, sources = context.tape->keep(sources),
                          sent = context.tape->keep(sent)](Backward& backward) {
      const Tensor dy = backward.take(id);
      if (!dy.defined()) return;
      *back = ways.to_experts(backward.context(), dy, sources.get(), sent.get());
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
