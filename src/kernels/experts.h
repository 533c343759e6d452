// Mixtures of experts (Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961):
// which experts a token is sent to, and the sum of what they return.
//
// n tokens with k experts each are n k rows, sorted by expert; rows of one expert are in the order
// of the tokens. Row r is of token sources[r]; the row of token t and its choice j is places[t, j].
// Expert e has rows first_rows[e] .. first_rows[e + 1] - 1. Products of these rows with the
// matrices of the experts are linears with `first_rows` (kernels/linear.h). All sizes depend on n,
// k, the number of experts and their capacity alone, never on the choices.
//
// Of experts that are divided among ranks, m are here. A token chooses each expert once, so they
// get at most r = n min(k, m) rows. The choices decide how many these are, first_rows[m]; the
// others, up to r, are room that no result depends on.
//
// Experts may have a capacity, the most tokens that one takes (Lepikhin et al. 2020,
// arXiv:2006.16668). Choices beyond it are dropped: they become -1, have no row, and add nothing to
// their token.
#pragma once

#include <numeric>
#include <utility>

#include "kernels/linear.h"

namespace piton {

// Where the rows of the tokens are. All are int32 and contiguous.
struct ExpertRows {
  Tensor sources;     // [r]; 0 where a row is of no token
  Tensor places;      // [n, k]; -1: the expert is elsewhere, or the choice is dropped
  Tensor first_rows;  // [m + 1]

  // int32 [1]: how many rows are of a token.
  Tensor used() const { return first_rows.slice(0, first_rows.dim(0) - 1, 1); }
};

// What the scores s of a token are, of its logits.
enum class ScoreKind : std::uint8_t {
  kSoftmax,
  kSigmoid,  // of each logit (DeepSeek-V3, arXiv:2412.19437; GLM-4.5)
};

// The experts in order, divided into groups of equal size. A token can be sent to the experts of
// its best groups alone: those with the largest sums of the largest scores in them (DeepSeek-V2,
// arXiv:2405.04434, has the largest one; DeepSeek-V3 the two largest).
struct ExpertGroups {
  static constexpr std::int64_t kMost = 64;
  std::int64_t count = 1;
  std::int64_t chosen = 1;   // groups of a token
  std::int64_t largest = 1;  // how many scores are summed

  bool divide() const { return count > 1; }
  bool operator==(const ExpertGroups&) const = default;
};

// The k experts that each token is sent to, and with which weights. Chosen are those with the
// largest
//   logits       of a softmax; p among groups, if the weights are not normalized
//   s + bias     of a sigmoid, or with a bias (of a softmax: ERNIE 4.5)
// of the best groups, the largest first, of equal ones the one with the lower number. The weight of
// a choice is `factor` times
//   s of that expert                              Switch, Qwen 2 MoE, OLMoE
//   the same over the sum of the k of the token   `normalized`: Mixtral, Qwen 3 MoE; of a sigmoid
//                                                 over that sum + 1e-20: DeepSeek-V3
// What is NaN is not chosen while there is another; numbers of experts are always valid.
//
// p are the shares of a token: s of a softmax, s / (sum over the experts + 1e-20) of a sigmoid.
// The balance of a layer (Fedus et al. 2021, equations 4 to 6; as in Megatron-LM for several
// choices) is 1 if all experts have the same number of tokens and the same mean probability:
//   L = experts * sum over experts of (share of the n k choices) * (mean p over the n tokens)
struct RouteTokens {
  static constexpr std::string_view kName = "route tokens";
  Tensor weights;  // [n, k]  written; fp32 (fp64)
  Tensor choices;  // int32 [n, k]  written: numbers of experts
  Tensor counts;   // int32 [experts] or empty  written: the choices of each expert
  Tensor balance;  // fp64 [1] or empty, ADDED TO: n L; only together with counts
  Tensor logits;   // [n, experts]  fp32 (fp64)
  bool normalized = false;
  ScoreKind score = ScoreKind::kSoftmax;
  double factor = 1;
  Tensor bias;  // [experts] or empty: 0; dtype of logits
  ExpertGroups groups;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("weights", self.weights, Access::kWrite);
    v("choices", self.choices, Access::kWrite);
    v("counts", self.counts, Access::kWrite);
    v("balance", self.balance, Access::kUpdate);
    v("logits", self.logits, Access::kRead);
    v("bias", self.bias, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// dlogits = gradient of sum of dweights * weights + balance_factor * scale * n L. The choices are
// constants.
struct RouteBackward {
  static constexpr std::string_view kName = "route backward";
  Tensor dlogits;   // [n, experts]  written; fp32 (fp64)
  Tensor dweights;  // [n, k] or empty: no gradient flows to the weights
  Tensor logits;    // [n, experts]
  Tensor choices;   // int32 [n, k]
  Tensor counts;    // int32 [experts], or empty: balance_factor is 0
  Tensor scale;     // fp32 (fp64) [1] on the device, or empty: balance_factor is 0
  double balance_factor = 0;
  bool normalized = false;
  ScoreKind score = ScoreKind::kSoftmax;
  double factor = 1;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dlogits", self.dlogits, Access::kWrite);
    v("dweights", self.dweights, Access::kRead);
    v("logits", self.logits, Access::kRead);
    v("choices", self.choices, Access::kRead);
    v("counts", self.counts, Access::kRead);
    v("scale", self.scale, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// z = log of the sum of exp(logits) of a token. Its square is small where the logits are (the
// z-loss of Zoph et al. 2022, arXiv:2202.08906).
//   sum += sum over tokens of z^2
struct RouterZLoss {
  static constexpr std::string_view kName = "router z-loss";
  Tensor sum;     // fp64 [1]  added to
  Tensor logits;  // [n, experts]  fp32 (fp64)

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("sum", self.sum, Access::kUpdate);
    v("logits", self.logits, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// dlogits = factor * scale * 2 z softmax(logits)
struct RouterZLossBackward {
  static constexpr std::string_view kName = "router z-loss backward";
  Tensor dlogits;  // [n, experts]  written; fp32 (fp64)
  Tensor logits;   // [n, experts]
  Tensor scale;    // fp32 (fp64) [1] on the device
  double factor = 1;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dlogits", self.dlogits, Access::kWrite);
    v("logits", self.logits, Access::kRead);
    v("scale", self.scale, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// The rows of a micro-batch, one sample after another, each of its tokens in order; of several
// context ranks one rank after another, each with its two stretches of every sample
// (comm/sequence_stretches.h). Their ORDER is that of Megatron-core's rows: by the position in the
// sample, then by the sample.
struct SampleRows {
  std::int64_t samples = 1;  // divides the rows; with several ranks, each sample in 2 ranks parts
  std::int64_t ranks = 1;

  // The row that is number i in this order, of n.
  std::int64_t row(std::int64_t i, std::int64_t n) const {
    const std::int64_t position = i / samples, sample = i % samples;
    const std::int64_t sequence = n / samples;
    if (ranks == 1) return sample * sequence + position;
    const std::int64_t stretch = sequence / (2 * ranks), number = position / stretch;
    const bool late = number >= ranks;
    const std::int64_t rank = late ? 2 * ranks - 1 - number : number;
    return (rank * samples + sample) * 2 * stretch + (late ? stretch : 0) + position % stretch;
  }
};

// Which choices stay where no expert takes more than `capacity` tokens: of the choices of an expert
// the first in the order of
//   the largest weight, of equal ones the first row   with weights; one that is NaN counts as 0
//   the first row                                     without weights
// where the first row is that of `rows`. The others become -1.
struct LimitChoices {
  static constexpr std::string_view kName = "limit choices";
  Tensor kept;     // int32 [n, k]  written: the choice, or -1
  Tensor choices;  // int32 [n, k]: 0 .. experts - 1, those of a token different
  Tensor weights;  // [n, k] or empty; fp32 (fp64), not negative
  std::int64_t experts = 1;
  std::int64_t capacity = 1;
  SampleRows rows;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("kept", self.kept, Access::kWrite);
    v("choices", self.choices, Access::kRead);
    v("weights", self.weights, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// What the choices of each expert are above their mean, n k / experts, times experts / g, where g
// is the greatest common divisor of experts and k: whole numbers, whose sums over micro-batches and
// ranks are the same in any order while they are below 2^24.
//   excess[e] += (choices of e) experts / g - n k / g
// Where choices may be -1 (LimitChoices), g is 1 and n k is the number of those that are not.
// The gradient of a bias of choices, of which only the sign counts (SignUpdate, optimizer.h).
struct ExcessChoices {
  static constexpr std::string_view kName = "excess choices";
  Tensor excess;         // fp32 (fp64) [experts]  added to
  Tensor choices;        // int32 [n, k]
  bool limited = false;  // choices may be -1

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("excess", self.excess, Access::kUpdate);
    v("choices", self.choices, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
  // The two factors above: of the choices of an expert, and of n k.
  std::pair<std::int64_t, std::int64_t> factors() const {
    const std::int64_t experts = excess.dim(0), k = choices.dim(1);
    const std::int64_t g = limited ? 1 : std::gcd(experts, k);
    return {experts / g, g};
  }
};

// The rows of experts `first` .. `first` + m - 1 for tokens that choose `choices`, each expert at
// most once. m is that of rows.first_rows.
struct SortByExpert {
  static constexpr std::string_view kName = "sort by expert";
  ExpertRows rows;  // written
  Tensor choices;   // int32 [n, k]
  std::int64_t first = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("sources", self.rows.sources, Access::kWrite);
    v("places", self.rows.places, Access::kWrite);
    v("first rows", self.rows.first_rows, Access::kWrite);
    v("choices", self.choices, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// Of e ranks with n tokens and m experts each: a token goes once to each rank that has at least one
// of its experts, to its own rank too. A rank sends rows in the order of their receivers, those to
// one receiver in the order of the tokens. It receives them in the order of their senders.
struct SortByRank {
  static constexpr std::string_view kName = "sort by rank";
  // All int32; all but `choices` are written.
  Tensor sources;   // [s]: the token of each row that is sent; 0 in the rest of the room
  Tensor places;    // [n, e]: the row of a token to a rank among those sent; -1: it has none
  Tensor received;  // [r, k]: the choices of the tokens that are received; -1 in the rest
  // [e + 1, e]: the rows from rank i to rank j; in the last row the choices of experts here, of the
  // tokens of each rank.
  Tensor counts;
  Tensor sent;     // [1]: how many rows of `sources` count
  Tensor choices;  // [e n, k]: of the tokens of all ranks, one rank after another; -1: dropped
  std::int64_t experts = 1;  // m
  std::int64_t rank = 0;     // this one

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("sources", self.sources, Access::kWrite);
    v("places", self.places, Access::kWrite);
    v("received", self.received, Access::kWrite);
    v("counts", self.counts, Access::kWrite);
    v("sent", self.sent, Access::kWrite);
    v("choices", self.choices, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// y[t] = sum over the choices j of a token of weights[t, j] rows[places[t, j]], rounded once;
// without weights they are 1: the gradient of tokens whose rows were copied to the experts. Choices
// without a place add nothing.
struct CombineExperts {
  static constexpr std::string_view kName = "combine experts";
  Tensor y;        // [n, h]  written; dtype of rows
  Tensor rows;     // [r, h]  contiguous
  Tensor places;   // int32 [n, k]
  Tensor weights;  // [n, k], fp32 (fp64), or empty

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("rows", self.rows, Access::kRead);
    v("places", self.places, Access::kRead);
    v("weights", self.weights, Access::kRead);
  }
  void check() const;
  double flops() const;
};

// drows[places[t, j]] = weights[t, j] dy[t];  dweights[t, j] = dy[t] . rows[places[t, j]], which is
// 0 without a place. Rows that are of no token are neither read nor written.
struct CombineExpertsBackward {
  static constexpr std::string_view kName = "combine experts backward";
  Tensor drows;     // [r, h]  written; dtype of dy
  Tensor dweights;  // [n, k]  written; fp32 (fp64)
  Tensor dy;        // [n, h]
  Tensor rows;      // [r, h]
  Tensor places;    // int32 [n, k]
  Tensor weights;   // [n, k]

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("drows", self.drows, Access::kWrite);
    v("dweights", self.dweights, Access::kWrite);
    v("dy", self.dy, Access::kRead);
    v("rows", self.rows, Access::kRead);
    v("places", self.places, Access::kRead);
    v("weights", self.weights, Access::kRead);
  }
  void check() const;
  double flops() const;
};

// For back ends whose tensors are in host memory: the linears of single experts that a call with
// `first_rows` is made of.
struct PartOfExpert {
  std::int64_t expert = 0;
  std::int64_t begin = 0;  // its rows
  std::int64_t size = 0;
};
LinearForward part_of(const LinearForward& call, const PartOfExpert& part);
LinearBackwardInput part_of(const LinearBackwardInput& call, const PartOfExpert& part);
LinearBackwardWeight part_of(const LinearBackwardWeight& call, const PartOfExpert& part);

// Calls run(part_of(call, ...)) for each expert in order. Asserts that first_rows ascends from 0 to
// at most `rows`.
template <typename Call, typename Run>
void for_each_expert(const Call& call, std::int64_t rows, const Run& run) {
  const auto* first = call.first_rows.template data<std::int32_t>();
  const std::int64_t experts = call.first_rows.dim(0) - 1;
  PITON_ASSERT(first[0] == 0 && first[experts] <= rows, "{}: experts have rows {} to {} of {}",
               Call::kName, first[0], first[experts], rows);
  for (std::int64_t i = 0; i < experts; ++i) {
    PITON_ASSERT(first[i] <= first[i + 1], "{}: expert {} begins at row {}, the next at {}",
                 Call::kName, i, first[i], first[i + 1]);
    run(part_of(call, PartOfExpert{i, first[i], first[i + 1] - first[i]}));
  }
}

}  // namespace piton
