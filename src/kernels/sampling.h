// Drawing one token a row from logits: two calls.
//
//   change logits  penalties, and ids that may not come
//   draw tokens    temperature, then filters, then a number by coordinates chooses an id
//
// Logits are [parts, n, columns], as ranks that split the vocabulary gather them: id i of a row is
// column i mod columns of part i / columns. Ids from `vocabulary` on are padding.
//
// The ids of a row are ordered by their logits, the largest first, and the lower id first on ties.
// With T the temperature, the weight of an id is exp((x - max x) / T). With a range r above 0 and
// an exponent e, T follows the entropy H of softmax(x) over the n ids that can be drawn
// (llama.cpp's dynamic temperature):
//   low + (T + r - low) * (H / log n)^e,  low = max(0, T - r);  at least kLeastTemperature
// Filters leave a stretch of this order. One after another:
//   sigma    ids with x >= max x - sigma * (deviation of the logits) (Tang et al. 2024,
//            arXiv:2411.07641); 0: all
//   k        the first k ids
//   p        the fewest first ids that have the share p of the weight (Holtzman et al. 2020,
//            arXiv:1904.09751)
//   min_p    ids with a weight of at least min_p and above 0, and the first
//   share    ids with at least this share of the weight and above 0, and the first (Mirostat 2,
//            Basu et al. 2021, arXiv:2007.14966: 2^-mu); 0: all
//   typical  ids whose x / T is nearest to its mean, weighted by the shares, as many as have this
//            share of the weight, and all that are as near as the last of them (Meister et al.
//            2023, arXiv:2202.00666: -log of a share and the entropy are as far apart); 1: all
//   xtc      in a row whose second number v is below the probability: of the ids with a share of at
//            least the threshold all but the last are dropped
// Ids whose logit is -infinity are never drawn. The id that is drawn is the first at which the sum
// of weights is above u * (sum of all that are left). All of this is in fp64; back ends may add
// weights in any order.
//
// u and v in [0, 1): of the first two and of the last two words of Philox4x32
// (base/random/philox.h) the first 53 bits, with a key of the request's seed and the counter {place
// of the token, draw low, draw high, 2}.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/call.h"

namespace piton {

// Changes logits in place. First those of the ids in a text (Keskar et al. 2019,
// arXiv:1909.05858, and the penalties of OpenAI's interface):
//   x = x < 0 ? x * repetition : x / repetition
//   x = x - times * frequency - (times > 0 ? presence : 0)
// in fp64, rounded once. Then those of ids that are not allowed become -infinity.
struct ChangeLogits {
  static constexpr std::string_view kName = "change logits";
  Tensor logits;     // [parts, n, columns]  fp32 (fp64), updated
  Tensor seen;       // int32 [m, 3]: row, id, times it was generated; an id once a row; or empty
  Tensor penalties;  // fp64 [n, 3]: repetition, frequency, presence; given if seen is
  Tensor allowed;    // u8 [n, (vocabulary + 7) / 8]: id i is bit i % 8 of byte i / 8; or empty: all
  std::int64_t vocabulary = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("logits", self.logits, Access::kUpdate);
    v("seen", self.seen, Access::kRead);
    v("penalties", self.penalties, Access::kRead);
    v("allowed", self.allowed, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct DrawTokens {
  static constexpr std::string_view kName = "draw tokens";
  // int32 [n]  written: the ids; -1 where a logit is NaN or +infinity, or all are -infinity
  Tensor ids;
  // fp64 [n]  written: the weight of the id, divided by the sum of those that are left; 0 at id -1
  Tensor shares;
  Tensor logits;  // [parts, n, columns]  fp32 (fp64)
  // fp64 [n, 11]: T > 0, or 0 with a range; k from 1 to vocabulary; 0 < p <= 1; 0 <= min_p <= 1;
  // sigma >= 0; 0 < typical <= 1; probability of xtc (0: never), threshold of xtc > 0; range of T
  // (0: none), exponent of T >= 0; share >= 0. With k 1 the id is the first of the order, with the
  // share 1.
  Tensor filters;
  Tensor places;  // int32 [n, 5], as bits: low and high word of the key; the place of the token;
                  // low and high word of the draw
  std::int64_t vocabulary = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("ids", self.ids, Access::kWrite);
    v("shares", self.shares, Access::kWrite);
    v("logits", self.logits, Access::kRead);
    v("filters", self.filters, Access::kRead);
    v("places", self.places, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

inline constexpr std::int64_t kDrawFilters = 11;

// Divides no logit difference to NaN; all but the largest logits have the weight 0.
inline constexpr double kLeastTemperature = 1e-300;

// Filters of a row, in the order of DrawTokens::filters.
struct DrawFilters {
  double temperature;
  std::int64_t most;  // k
  double share;       // p
  double least;       // min_p
  double sigma;
  double typical;
  double xtc_probability;
  double xtc_threshold;
  double temperature_range;
  double temperature_exponent;
  double least_share;
};
inline DrawFilters draw_filters(const double* row) {
  return {row[0], static_cast<std::int64_t>(row[1]),
          row[2], row[3],
          row[4], row[5],
          row[6], row[7],
          row[8], row[9],
          row[10]};
}

// T of a row with these sums over its `count` ids that can be drawn, d being x - max x: of exp(d)
// and of d exp(d).
inline double followed_temperature(const DrawFilters& filters, double count, double sum,
                                   double product) {
  const double range = filters.temperature_range;
  const double low = std::max(0.0, filters.temperature - range);
  const double share =
      count > 1 ? std::clamp((std::log(sum) - product / sum) / std::log(count), 0.0, 1.0) : 0.0;
  const double spread = filters.temperature + range - low;
  return std::max(low + spread * std::pow(share, filters.temperature_exponent), kLeastTemperature);
}

struct DrawnShares {
  double u;
  double v;
};
// Of a row of `places`.
inline DrawnShares drawn_shares(const std::int32_t* place) {
  const auto word = [place](int i) { return static_cast<std::uint32_t>(place[i]); };
  const PhiloxBlock block =
      philox({.low = word(0), .high = word(1)}, {word(2), word(3), word(4), 2});
  const auto share = [](std::uint64_t high, std::uint64_t low) {
    return static_cast<double>((high << 32 | low) >> 11) * 0x1p-53;
  };
  return {.u = share(block[0], block[1]), .v = share(block[2], block[3])};
}

}  // namespace piton
