// Rows of tokens on their way to the ranks that have their experts, and back: in the place of all
// rows of all ranks (ops/linear/rank_rows.h).
//
// Each of e ranks has n tokens, which choose k of all experts, and m experts. A token goes once to
// each rank that has at least one of its experts, to its own too. A rank receives at most r rows,
// those of rank 0 first, each rank's in the order of its tokens: the order of the gathered rows, so
// that experts see the same rows in the same order. Back, a token gets one row from each of these
// ranks. They are added in the order of the ranks, as a reduce-scatter adds them, and rows of zeros
// change no sum: of kernels/cpu, results have the bits of gathered rows, but for signs of zeros.
//
// All choices are known to all ranks, so a kernel counts the rows between all pairs of ranks
// (SortByRank). The host has to know these numbers too, because sizes of messages are the host's:
// it reads them once for each layer and forward pass, e (e + 1) integers, as late as it can. The
// rows of tokens are packed by then, and a read on a separate stream waits for no later work. The
// backward pass has the numbers of forward, and so has a segment that is computed again.
// Messages of the largest size would need no read, but all n tokens of a rank may choose experts of
// one rank: they would have the bytes of gathered rows.
//
// Sizes of tensors depend on n, k, e and m alone: r and s are room, of which the first rows are
// used.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "comm/communicator.h"
#include "ops/experts/expert_rows.h"
#include "ops/experts/routing.h"
#include "ops/under_way.h"

namespace piton {

// What the host knows of an exchange.
struct HostCounts {
  RowCounts pairs;   // of the way to the experts
  CountedRows used;  // of the tokens that are received, and of their rows to experts here
};

// The numbers of an exchange, which the host waits for when it first asks for them.
class ExchangeCounts {
 public:
  explicit ExchangeCounts(std::function<HostCounts()> read) : read_(std::move(read)) {}
  const HostCounts& get();

 private:
  std::function<HostCounts()> read_;
  std::optional<HostCounts> known_;
};

struct RowExchange {
  Communicator* ranks = nullptr;
  std::shared_ptr<ExchangeCounts> known;
  // All int32.
  Tensor sources;  // [s]: whose row is sent, by receiver, then token
  Tensor places;   // [n, e]: the row of a token to a rank among those sent; -1: it has none
  Tensor sent;     // [1]: how many rows are sent
  Tensor choices;  // [r, k]: of the tokens that are received; -1 in the rest of the room

  const RowCounts& counts() const { return known->get().pairs; }
  const CountedRows& used() const { return known->get().used; }
};

struct ExchangedExperts {
  std::int64_t experts = 0;  // of the model
  ExpertRange here;
  // How many of the n tokens of a rank an expert takes at most.
  std::int64_t most = 0;
  RoutingRules rules;
  Stream* reader = nullptr;  // where the host reads numbers of rows; null: the compute stream
};

// `choices` int32 [e n, k]: of the tokens of all ranks, one rank after another; -1: dropped. Where
// the other ranks do not exist (Communicator::real), counts are what is expected of uniform
// choices.
RowExchange exchanged_rows(Context& context, Communicator& ranks, const Tensor& choices,
                           const ExchangedExperts& experts);

// x [n, w] -> [r, w]: the rows of the tokens that have experts here.
Value sent_rows(Context& context, const Value& x, const RowExchange& exchange);
UnderWay start_sent_rows(Context& context, const Value& x, const RowExchange& exchange);

// x [r, w] -> [n, w]: the sum over the ranks of what they have for the tokens of this one.
Value returned_rows(Context& context, const Value& x, const RowExchange& exchange);
UnderWay start_returned_rows(Context& context, const Value& x, const RowExchange& exchange);

// The share of all tokens that have at least one of the experts `here`, if all choices that the
// rules allow are as likely.
double share_of_tokens(const RoutingRules& rules, std::int64_t experts, const ExpertRange& here);

}  // namespace piton
