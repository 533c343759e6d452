// Attention with explicit rows of the probability matrix, one query at a time.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/calls.h"
#include "kernels/reference/mask.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

// The keys that a query sees, and their bias.
class Visibility {
 public:
  explicit Visibility(const AttentionMask& mask)
      : mask_(mask),
        positions_(Values::read(mask.query_positions)),
        key_positions_(Values::read(mask.key_positions)),
        query_reach_(Values::read(mask.query_reach)),
        key_lengths_(Values::read(mask.key_lengths)),
        query_segments_(Values::read(mask.query_segments)),
        key_segments_(Values::read(mask.key_segments)),
        slopes_(Values::read(mask.slopes)),
        bias_(Values::read(mask.bias)) {}

  std::int64_t position(std::int64_t batch, std::int64_t query) const {
    if (!positions_.given()) return mask_.query_begin + query;
    return static_cast<std::int64_t>(positions_(batch, query));
  }

  std::int64_t key_position(std::int64_t batch, std::int64_t key) const {
    if (!key_positions_.given()) return key;
    return static_cast<std::int64_t>(key_positions_(batch, key));
  }

  // The last key position that a query of a causal mask sees, unless its own is later.
  std::int64_t reach(std::int64_t batch, std::int64_t query) const {
    if (!query_reach_.given()) return position(batch, query);
    return static_cast<std::int64_t>(query_reach_(batch, query));
  }

  bool visible(std::int64_t batch, std::int64_t query, std::int64_t key) const {
    const std::int64_t i = position(batch, query);
    const std::int64_t j = key_position(batch, key);
    if (mask_.causal && j > std::max(i, reach(batch, query))) return false;
    if (mask_.window_before && i - j > *mask_.window_before) return false;
    if (mask_.window_after && j - i > *mask_.window_after) return false;
    if (key_lengths_.given() && static_cast<double>(key) >= key_lengths_(batch)) return false;
    return !query_segments_.given() || query_segments_(batch, query) == key_segments_(batch, key);
  }

  double bias(std::int64_t head, std::int64_t batch, std::int64_t query, std::int64_t key) const {
    double sum = 0;
    if (slopes_.given()) {
      sum = slopes_(head) * static_cast<double>(key_position(batch, key) - position(batch, query));
    }
    if (bias_.given()) sum += bias_(head, bias_column(query, key));
    return sum;
  }

  // Of a visible pair.
  std::int64_t bias_column(std::int64_t query, std::int64_t key) const {
    return key - mask_.query_begin - query + mask_.bias_origin;
  }

 private:
  const AttentionMask& mask_;
  Values positions_;
  Values key_positions_;
  Values query_reach_;
  Values key_lengths_;
  Values query_segments_;
  Values key_segments_;
  Values slopes_;
  Values bias_;
};

// A soft-capped score, and its derivative with respect to the uncapped score.
struct Score {
  double value = 0;
  double slope = 1;
};

Score capped(double score, double cap) {
  if (cap == 0) return {score};
  const double tanh = std::tanh(score / cap);
  return {cap * tanh, 1 - tanh * tanh};
}

double dot(const Values& x, const Values& y, std::int64_t batch, std::int64_t row_x,
           std::int64_t head_x, std::int64_t row_y, std::int64_t head_y) {
  double sum = 0;
  for (std::int64_t c = 0; c < x.shape()[3]; ++c) {
    sum += x(batch, row_x, head_x, c) * y(batch, row_y, head_y, c);
  }
  return sum;
}

}  // namespace

void execute(const AttentionForward& call) {
  const Values q = Values::read(call.q);
  const Values k = Values::read(call.k);
  const Values v = Values::read(call.v);
  const Visibility sight(call.mask);
  const MaskDraws draws(call.dropout);
  const std::int64_t sk = call.k.dim(1);
  const std::int64_t heads = call.q.dim(2);
  const std::int64_t queries_per_key = heads / call.k.dim(2);
  Values out(call.out.shape());
  Values lse(call.lse.shape());
  Values scores(Shape{sk});
  for (std::int64_t batch = 0; batch < call.q.dim(0); ++batch) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t group = head / queries_per_key;
      for (std::int64_t query = 0; query < call.q.dim(1); ++query) {
        double largest = -kInfinity;
        for (std::int64_t key = 0; key < sk; ++key) {
          scores(key) =
              sight.visible(batch, query, key)
                  ? capped(call.scale * dot(q, k, batch, query, head, key, group), call.soft_cap)
                            .value +
                        sight.bias(head, batch, query, key)
                  : -kInfinity;
          largest = std::fmax(largest, scores(key));
        }
        lse(batch, head, query) = -kInfinity;
        if (largest == -kInfinity) continue;  // nothing is visible: out stays 0
        double sum = 0;
        for (std::int64_t key = 0; key < sk; ++key) sum += std::exp(scores(key) - largest);
        lse(batch, head, query) = largest + std::log(sum);
        for (std::int64_t key = 0; key < sk; ++key) {
          if (scores(key) == -kInfinity) continue;
          const double p = std::exp(scores(key) - largest) / sum *
                           draws.factor(batch, call.head_begin + head, sight.position(batch, query),
                                        sight.key_position(batch, key));
          for (std::int64_t c = 0; c < call.v.dim(3); ++c) {
            out(batch, query, head, c) += p * v(batch, key, group, c);
          }
        }
      }
    }
  }
  out.write(call.out);
  lse.write(call.lse);
}

// With P from q, k and lse, mask factors M, and D_i = dout_i . out_i:
//   dv_j = sum_i M P dout_i     dS = P (M (dout_i . v_j) - D_i), times the derivative of a soft cap
//   dq_i = scale sum_j dS k_j   dk_j = scale sum_i dS q_i
// and dbias of a distance is the sum of dS of its pairs, without that derivative.
void execute(const AttentionBackward& call) {
  const Values dout = Values::read(call.dout);
  const Values out = Values::read(call.out);
  const Values lse = Values::read(call.lse);
  const Values q = Values::read(call.q);
  const Values k = Values::read(call.k);
  const Values v = Values::read(call.v);
  const Visibility sight(call.mask);
  const MaskDraws draws(call.dropout);
  const std::int64_t heads = call.q.dim(2);
  const std::int64_t queries_per_key = heads / call.k.dim(2);
  Values dq(call.dq.shape());
  Values dk(call.dk.shape());
  Values dv(call.dv.shape());
  Values dbias(call.dbias.defined() ? call.dbias.shape() : Shape{0});
  for (std::int64_t batch = 0; batch < call.q.dim(0); ++batch) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t group = head / queries_per_key;
      for (std::int64_t query = 0; query < call.q.dim(1); ++query) {
        if (lse(batch, head, query) == -kInfinity) continue;  // sees no key
        const double dout_out = dot(dout, out, batch, query, head, query, head);
        for (std::int64_t key = 0; key < call.k.dim(1); ++key) {
          if (!sight.visible(batch, query, key)) continue;
          const Score score =
              capped(call.scale * dot(q, k, batch, query, head, key, group), call.soft_cap);
          const double p =
              std::exp(score.value + sight.bias(head, batch, query, key) - lse(batch, head, query));
          const double factor =
              draws.factor(batch, call.head_begin + head, sight.position(batch, query),
                           sight.key_position(batch, key));
          const double dbiased =
              p * (factor * dot(dout, v, batch, query, head, key, group) - dout_out);
          const double ds = score.slope * dbiased;
          if (call.dbias.defined()) dbias(batch, head, sight.bias_column(query, key)) += dbiased;
          for (std::int64_t c = 0; c < call.q.dim(3); ++c) {
            dv(batch, key, group, c) += factor * p * dout(batch, query, head, c);
            dq(batch, query, head, c) += call.scale * ds * k(batch, key, group, c);
            dk(batch, key, group, c) += call.scale * ds * q(batch, query, head, c);
          }
        }
      }
    }
  }
  dq.write(call.dq);
  dk.write(call.dk);
  dv.write(call.dv);
  if (call.dbias.defined()) dbias.write(call.dbias);
}

}  // namespace piton::reference
