// Heads of latent attention as attention takes them, with widths that are equal: keys with a part
// that all heads have in common, values and outputs with zeros at their end.
#pragma once

#include <utility>

#include "ops/tape.h"

namespace piton {

struct HeadWidths {
  std::int64_t own = 0;     // of a key, without the common part
  std::int64_t value = 0;   // of a value
  std::int64_t padded = 0;  // of both, as attention takes them
};

// rows [n, a * (own + value)]: for each head its key and its value; shared [n, 1, padded - own] ->
// keys and values [n, a, padded].
std::pair<Value, Value> keys_and_values(Context& context, const Value& rows, const Value& shared,
                                        const HeadWidths& widths);

// x [n, a * padded] -> [n, a * value], without the zeros. x itself if there are none.
Value trimmed_heads(Context& context, const Value& x, const HeadWidths& widths);

}  // namespace piton
