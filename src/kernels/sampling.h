// Drawing one token a row from logits: two calls.
//
//   change logits  penalties, and ids that may not come
//   draw tokens    temperature, then filters, then a number by coordinates chooses an id
//
// Logits are [parts, n, columns], as ranks that split the vocabulary gather them: id i of a row is
// column i mod columns of part i / columns. Ids from `vocabulary` on are padding.
//
// The ids of a row are ordered by their logits, the largest first, and the lower id first on ties.
// With T the temperature, the weight of an id is exp((x - max x) / T). Filters leave a beginning of
// this order: the first k ids; of these the fewest that have the share p of their weight (Holtzman
// et al. 2020, arXiv:1904.09751); of these the ones with a weight of at least min_p and above 0,
// and always the first. Ids whose logit is -infinity are never drawn. The id that is drawn is the
// first at which the sum of weights is above u * (sum of all that are left). All of this is in
// fp64; back ends may add weights in any order.
//
// u in [0, 1): the first 53 bits of Philox4x32 (base/random/philox.h) with a key of the request's
// seed and the counter {place of the token, draw low, draw high, 2}.
#pragma once

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
  Tensor logits;   // [parts, n, columns]  fp32 (fp64)
  Tensor filters;  // fp64 [n, 4]: T > 0; k from 1 to vocabulary; 0 < p <= 1; 0 <= min_p <= 1
  Tensor places;   // int32 [n, 5], as bits: low and high word of the key; the place of the token;
                   // low and high word of the draw
  std::int64_t vocabulary = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("ids", self.ids, Access::kWrite);
    v("logits", self.logits, Access::kRead);
    v("filters", self.filters, Access::kRead);
    v("places", self.places, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// u of a row of `places`.
inline double drawn_share(const std::int32_t* place) {
  const auto word = [place](int i) { return static_cast<std::uint32_t>(place[i]); };
  const PhiloxBlock block =
      philox({.low = word(0), .high = word(1)}, {word(2), word(3), word(4), 2});
  const std::uint64_t bits = (std::uint64_t{block[0]} << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace piton
