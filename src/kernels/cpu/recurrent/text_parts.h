// The rows of samples, or of texts that are continued, as the loops of recurrent layers read them.
#pragma once

#include <vector>

#include "kernels/recurrent/text_rows.h"

namespace piton::cpu {

struct TextPart {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  std::int64_t slot = -1;  // of the state; -1: there is none
  bool continues = false;  // the state has its rows of before
};

inline std::vector<TextPart> text_parts(const TextRows& texts, std::int64_t samples,
                                        std::int64_t n) {
  std::vector<TextPart> parts;
  if (!texts.given()) {
    for (std::int64_t i = 0; i < samples; ++i)
      parts.push_back({.begin = i * (n / samples), .rows = n / samples});
    return parts;
  }
  const auto* begins = texts.begins.data<std::int32_t>();
  const auto* lengths = texts.lengths.data<std::int32_t>();
  const auto* slots = texts.slots.data<std::int32_t>();
  for (std::int64_t i = 0; i < texts.slots.dim(0); ++i) {
    const std::int64_t rows = begins[i + 1] - begins[i];
    parts.push_back(
        {.begin = begins[i], .rows = rows, .slot = slots[i], .continues = lengths[i] > rows});
  }
  return parts;
}

// Whether a row is the first of its segment, of a part without a state.
inline bool begins_segment(const TextPart& part, const Tensor& segments, std::int64_t row) {
  if (row == 0) return !part.continues;
  if (!segments.defined()) return false;
  const auto* of_row = segments.data<std::int32_t>() + part.begin;
  return of_row[row] != of_row[row - 1];
}

}  // namespace piton::cpu
