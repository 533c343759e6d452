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
// All choices are known to all ranks, and so are all counts. They are read by the host, which waits
// for them. Sizes of tensors depend on n, k, e and m alone: r and s are room, of which the first
// rows are used.
#pragma once

#include "comm/communicator.h"
#include "ops/experts/expert_rows.h"
#include "ops/experts/routing.h"
#include "ops/under_way.h"

namespace piton {

struct RowExchange {
  Communicator* ranks = nullptr;
  RowCounts counts{1};  // of the way to the experts
  // All int32.
  Tensor sources;         // [s]: whose row is sent, by receiver, then token
  Tensor places;          // [n, e]: the row of a token to a rank among those sent; -1: it has none
  Tensor choices;         // [r, k]: of the tokens that are received; -1 in the rest of the room
  CountedRows used = {};  // of the tokens that are received, and of their rows to experts here
};

struct ExchangedExperts {
  std::int64_t experts = 0;  // of the model
  ExpertRange here;
  // How many of the n tokens of a rank an expert takes at most.
  std::int64_t most = 0;
  RoutingRules rules;
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
