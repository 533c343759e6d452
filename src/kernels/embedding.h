// Lookup of table rows by id, and noise on them. A table that is split over the vocabulary holds
// ids vocabulary_begin
// .. vocabulary_begin + rows - 1; other ids give zeros and no gradient.
#pragma once

#include "kernels/call.h"

namespace piton {

struct EmbeddingForward {
  static constexpr std::string_view kName = "embedding forward";
  Tensor y;      // [n, h]  written; zero rows for ids outside of the table
  Tensor table;  // [rows, h]
  Tensor ids;    // int32 [n]
  std::int64_t vocabulary_begin = 0;
  bool add = false;  // y += instead of y = (for the position table)
  Tensor used = {};  // int32 [1] or empty (rows_used())

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, self.add ? Access::kUpdate : Access::kWrite);
    v("table", self.table, Access::kRead);
    v("ids", self.ids, Access::kRead);
    v("used", self.used, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// dtable[id] += dy, in row order: the sum does not depend on the number of threads.
struct EmbeddingBackward {
  static constexpr std::string_view kName = "embedding backward";
  Tensor dtable;  // [rows, h]  fp32 (fp64), ADDED TO
  Tensor dy;      // [n, h]
  Tensor ids;     // int32 [n]
  std::int64_t vocabulary_begin = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dtable", self.dtable, Access::kUpdate);
    v("dy", self.dy, Access::kRead);
    v("ids", self.ids, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// y[t, i] += bounds[t] u, rounded once. u in [-1, 1) is the random word of the element's global
// coordinates (base/random/philox.h: head 0, column = channel) as a signed integer, over 2^31.
struct AddNoise {
  static constexpr std::string_view kName = "add noise";
  Tensor y;       // [n, h]  ADDED TO
  Tensor bounds;  // fp32 [n], or empty: 1 for each row
  PhiloxKey key;  // site_key(seed, site)
  MaskRows rows;  // first_column 0

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kUpdate);
    v("bounds", self.bounds, Access::kRead);
    v("consumed_samples", self.rows.consumed_samples, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
