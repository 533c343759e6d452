// Rows of texts that are continued, for layers that hold a state of fixed size for each text.
#pragma once

#include "kernels/call.h"

namespace piton {

// Not given: samples of equal length, each from its beginning.
struct TextRows {
  Tensor begins;   // int32 [b + 1]: the first row of each text, and n
  Tensor lengths;  // int32 [b]: tokens of a text up to its last row here; its rows, if it begins
  Tensor slots;    // int32 [b]: which state is that of the text, each a different one

  bool given() const { return begins.defined(); }

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("begins", self.begins, Access::kRead);
    v("lengths", self.lengths, Access::kRead);
    v("slots", self.slots, Access::kRead);
  }
};

// Asserts that all three are given, of b texts, and no segments with them; or samples that divide n
// rows, and segments int32 [n] or none.
void expect_rows(std::string_view call, const TextRows& texts, const Tensor& segments,
                 std::int64_t samples, std::int64_t n);

}  // namespace piton
