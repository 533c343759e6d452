// Rows of tokens on their way to the ranks of their experts: which ones are sent, against counts by
// hand, and results and gradients against the gathered rows, bit for bit.
#include "ops/experts/row_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "comm/virtual/world.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "ops/activation.h"
#include "ops/linear/rank_rows.h"
#include "ops/recompute.h"
#include "support/tensors.h"
#include "support/thread_world.h"

namespace piton {
namespace {

constexpr std::int64_t kTokens = 7, kWidth = 5;

struct Mixture {
  std::string name;
  int ranks = 3;
  std::int64_t experts = 6;  // of all ranks
  std::int64_t choices = 2;
  std::int64_t last = 0;  // experts from this one on are not chosen; 0: all are
  bool drops = false;

  std::int64_t here() const { return experts / ranks; }
};

std::vector<Mixture> mixtures() {
  return {{.name = "two choices"},
          {.name = "more choices than experts of a rank", .choices = 3},
          {.name = "all experts", .choices = 6},
          {.name = "a rank without tokens", .last = 4},
          {.name = "one choice", .ranks = 2, .choices = 1},
          {.name = "dropped choices", .ranks = 2, .choices = 3, .drops = true}};
}

// The same on every rank: the choices of all tokens, each expert once for a token.
std::vector<std::int32_t> choices_of(const Mixture& mixture) {
  std::vector<std::int32_t> all;
  const std::int64_t open = mixture.last == 0 ? mixture.experts : mixture.last;
  for (std::int64_t t = 0; t < mixture.ranks * kTokens; ++t) {
    const std::int64_t first = t * t * 5 + t / 3, step = open % 2 == 0 && t % 2 == 0 ? open - 1 : 1;
    for (std::int64_t j = 0; j < mixture.choices; ++j) {
      const bool dropped = mixture.drops && (t + j) % 4 == 0;
      all.push_back(dropped ? -1 : static_cast<std::int32_t>((first + j * step) % open));
    }
  }
  return all;
}

// Whether the token, of all ranks, has an expert of this rank.
bool goes_to(const Mixture& mixture, std::int64_t token, int rank) {
  const auto all = choices_of(mixture);
  for (std::int64_t j = 0; j < mixture.choices; ++j) {
    const std::int32_t choice = all[static_cast<std::size_t>(token * mixture.choices + j)];
    if (choice >= 0 && choice / mixture.here() == rank) return true;
  }
  return false;
}

class Rank {
 public:
  Rank(World& world, const Mixture& mixture)
      : mixture_(mixture), group_(make_group_of_all(world, "expert")) {
    test::TensorSource source(5 + static_cast<std::uint64_t>(world.rank()));
    x = source.normal(DType::kF32, {kTokens, kWidth});
    weights = source.normal(DType::kF32, {kTokens, mixture.choices});
    dy = source.normal(DType::kF32, {kTokens, kWidth});
    const auto all = choices_of(mixture);
    choices = host_tensor(DType::kI32, {mixture.ranks * kTokens, mixture.choices});
    std::ranges::copy(all, choices.data<std::int32_t>());
  }

  Communicator& group() { return *group_; }
  Context context(Tape* tape) {
    return {.kernels = *kernels_,
            .stream = *stream_,
            .device = device_,
            .arena = arena_,
            .weights = weights_,
            .tape = tape};
  }
  ExpertRange here() const { return {group_->rank() * mixture_.here(), mixture_.here()}; }
  RowExchange exchange(Context& context) {
    return exchanged_rows(context, *group_, choices,
                          {.experts = mixture_.experts,
                           .here = here(),
                           .most = kTokens,
                           .rules = {.choices = mixture_.choices}});
  }

  struct Result {
    std::vector<double> y, dx, dweights;
    bool operator==(const Result&) const = default;
  };
  // Experts that square their rows: of exchanged rows, or of gathered ones.
  Result of(bool exchanges) {
    Tape tape;
    Context taped = context(&tape);
    const Value x_leaf = tape.leaf(x), weights_leaf = tape.leaf(weights);
    std::optional<RowExchange> exchange;
    if (exchanges) exchange = this->exchange(taped);
    const auto at_experts = [&](const Value& value) {
      return exchanges ? sent_rows(taped, value, *exchange)
                       : rows_of_ranks(taped, value, *group_, true);
    };
    const CountedRows* const used = exchanges ? &exchange->used() : nullptr;
    const Value there = at_experts(x_leaf), weights_there = at_experts(weights_leaf);
    const ExpertRows rows = sorted_rows(taped, exchanges ? exchange->choices : choices, here(),
                                        mixture_.ranks * kTokens, used);
    const Value inner = dispatched(taped, there, rows, used);
    const Value squares = activation_of(taped, inner, ActivationKind::kSquaredRelu, rows.used());
    const Value outer = combined(taped, squares, weights_there, rows.places, used);
    const Value y = exchanges ? returned_rows(taped, outer, *exchange)
                              : sum_over_ranks(taped, outer, *group_, true);
    Result result{.y = test::values(y.tensor)};
    tape.seed(y, dy);
    tape.backward(taped, Tape::Mode::kWhole);
    result.dx = test::values(tape.take_gradient(x_leaf, taped));
    result.dweights = test::values(tape.take_gradient(weights_leaf, taped));
    return result;
  }

  Tensor x, weights, dy, choices;

 private:
  Mixture mixture_;
  std::unique_ptr<Communicator> group_;
  HostDevice device_;
  Arena arena_{device_};
  ThreadPool threads_{1};
  std::unique_ptr<Kernels> kernels_ = make_cpu_kernels(threads_);
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  ResidentWeights weights_{*kernels_, arena_};
};

TEST(RowExchange, SendsATokenOnceToEachRankOfItsExperts) {
  for (const Mixture& mixture : mixtures()) {
    SCOPED_TRACE(mixture.name);
    test::run_ranks(mixture.ranks, [&](World& world) {
      Rank rank(world, mixture);
      Context context = rank.context(nullptr);
      const RowExchange exchange = rank.exchange(context);
      const int self = world.rank();
      // The number of each token, of all ranks.
      const Tensor numbers = host_tensor(DType::kF32, {kTokens, 2});
      for (std::int64_t i = 0; i < numbers.elements(); ++i)
        test::set_value(numbers, i, static_cast<double>(self * kTokens + i / 2));
      const std::int64_t before = rank.group().traffic().all_to_all_bytes;
      const Tensor received = sent_rows(context, {numbers}, exchange).tensor;
      std::int64_t sent = 0, row = 0, rows = 0;
      for (std::int64_t t = 0; t < mixture.ranks * kTokens; ++t) {
        const auto from = static_cast<int>(t / kTokens);
        if (from == self) {
          for (int to = 0; to < mixture.ranks; ++to)
            sent += to != self && goes_to(mixture, t, to) ? 1 : 0;
        }
        if (!goes_to(mixture, t, self)) continue;
        ASSERT_LT(row, received.dim(0));
        EXPECT_EQ(test::value_at(received, 2 * row + 1), t);
        for (std::int64_t j = 0; j < mixture.choices; ++j) {
          const double choice = test::value_at(rank.choices, t * mixture.choices + j);
          EXPECT_EQ(test::value_at(exchange.choices, row * mixture.choices + j), choice);
          rows += choice >= 0 && static_cast<int>(choice) / mixture.here() == self ? 1 : 0;
        }
        ++row;
      }
      EXPECT_EQ(exchange.used().tokens, row);
      EXPECT_EQ(exchange.used().rows, rows);
      for (std::int64_t i = row * mixture.choices; i < exchange.choices.elements(); ++i)
        EXPECT_EQ(test::value_at(exchange.choices, i), -1);
      EXPECT_EQ(rank.group().traffic().all_to_all_bytes - before, sent * 2 * 4);
      EXPECT_EQ(received.dim(0), mixture.ranks * kTokens);
    });
  }
}

TEST(RowExchange, GivesTheBitsOfGatheredRows) {
  for (const Mixture& mixture : mixtures()) {
    SCOPED_TRACE(mixture.name);
    test::run_ranks(mixture.ranks, [&](World& world) {
      Rank rank(world, mixture);
      const Rank::Result gathered = rank.of(false);
      EXPECT_TRUE(rank.of(true) == gathered);
      double sum = 0;
      for (const double one : gathered.dx) sum += std::abs(one);
      for (const double one : gathered.dweights) sum += std::abs(one);
      EXPECT_GT(sum, 1);
    });
  }
}

// The host reads what a replay sends and gets in the first pass alone.
TEST(RowExchange, HasTheCountsOfTheFirstPassInAReplay) {
  const Mixture mixture = mixtures()[0];
  test::run_ranks(mixture.ranks, [&](World& world) {
    Rank rank(world, mixture);
    std::vector<std::shared_ptr<ExchangeCounts>> known;
    const auto gradient = [&](bool replays) {
      Tape tape;
      Context taped = rank.context(&tape);
      const Value x = tape.leaf(rank.x);
      const auto segment = [&](Context& context, const std::vector<Value>& inputs) {
        const RowExchange exchange = rank.exchange(context);
        known.push_back(exchange.known);
        const Value there = sent_rows(context, inputs[0], exchange);
        const Value squares = activation_of(context, there, ActivationKind::kSquaredRelu);
        return std::vector<Value>{returned_rows(context, squares, exchange)};
      };
      const Value y = replays ? recomputed(taped, {x}, segment)[0] : segment(taped, {x})[0];
      tape.seed(y, rank.dy);
      tape.backward(taped, Tape::Mode::kWhole);
      return test::values(tape.take_gradient(x, taped));
    };
    const auto kept = gradient(false);
    EXPECT_EQ(gradient(true), kept);
    ASSERT_EQ(known.size(), 3U);
    EXPECT_NE(known[0], known[1]);
    EXPECT_EQ(known[1], known[2]);
  });
}

// All choices that the rules allow, one after another.
double counted_share(std::int64_t experts, const RoutingRules& rules, const ExpertRange& here) {
  const std::int64_t size = experts / rules.groups.count;
  double all = 0, some = 0;
  for (std::uint32_t groups = 0; groups < 1U << rules.groups.count; ++groups) {
    if (std::popcount(groups) != rules.groups.chosen) continue;
    double these = 0, found = 0;
    for (std::uint32_t set = 0; set < 1U << experts; ++set) {
      if (std::popcount(set) != rules.choices) continue;
      bool allowed = true, is_here = false;
      for (std::int64_t e = 0; e < experts; ++e) {
        if ((set >> e & 1) == 0) continue;
        allowed = allowed && (groups >> (e / size) & 1) != 0;
        is_here = is_here || (e >= here.first && e < here.first + here.count);
      }
      these += allowed ? 1 : 0;
      found += allowed && is_here ? 1 : 0;
    }
    all += 1;
    some += found / these;
  }
  return some / all;
}

TEST(ShareOfTokens, IsThatOfUniformChoices) {
  EXPECT_NEAR(share_of_tokens({.choices = 2}, 8, {0, 4}), 1 - 6.0 / 28, 1e-12);
  EXPECT_EQ(share_of_tokens({.choices = 5}, 8, {0, 4}), 1);
  for (const std::int64_t k : {1, 2, 3}) {
    for (const auto& [count, chosen] : {std::pair{1, 1}, {2, 1}, {3, 2}, {6, 3}}) {
      const RoutingRules rules{.choices = k, .groups = {.count = count, .chosen = chosen}};
      if (k > chosen * 12 / count) continue;
      for (const std::int64_t here : {2, 3, 4, 6}) {
        for (std::int64_t first = 0; first < 12; first += here) {
          EXPECT_NEAR(share_of_tokens(rules, 12, {first, here}),
                      counted_share(12, rules, {first, here}), 1e-12)
              << k << " choices in " << chosen << " of " << count << " groups, " << here
              << " experts from " << first;
        }
      }
    }
  }
}

// The other ranks are only planned.
TEST(RowExchange, CountsUniformChoicesWhereNobodyChooses) {
  const auto world = make_virtual_world(1, 3);
  const Mixture mixture{.choices = 2};
  Rank rank(*world, mixture);
  Context context = rank.context(nullptr);
  const RowExchange exchange = rank.exchange(context);
  // Of 15 pairs of experts 6 have none here.
  const auto expected = std::llround(kTokens * 9.0 / 15);
  for (int to = 0; to < 3; ++to) EXPECT_EQ(exchange.counts().at(1, to), expected);
  EXPECT_EQ(sent_rows(context, {rank.x}, exchange).tensor.dim(0), 3 * kTokens);
  EXPECT_EQ(rank.group().traffic().all_to_all_bytes, 2 * expected * kWidth * 4);
}

}  // namespace
}  // namespace piton
