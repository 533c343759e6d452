// The rows of samples, or of texts that are continued, in device code. Internal to this folder.
#pragma once

#include "kernels/cuda/bisection.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/recurrent/text_rows.h"

namespace piton::cuda {

struct RowsOfText {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t slot;  // of the state
  bool continues;     // the state has its rows of before
};

struct TextPlaces {
  const std::int32_t* begins;  // nullptr: samples of `length` rows
  const std::int32_t* lengths;
  const std::int32_t* slots;
  const std::int32_t* segments;  // or nullptr
  std::int64_t count;
  std::int64_t length;

  __device__ RowsOfText of(std::int64_t text) const {
    if (begins == nullptr) return {text * length, (text + 1) * length, -1, false};
    const std::int64_t begin = begins[text];
    const std::int64_t end = begins[text + 1];
    return {begin, end, slots[text], lengths[text] > end - begin};
  }
  // The text that has a row.
  __device__ std::int64_t text_of(std::int64_t row) const {
    if (begins == nullptr) return row / length;
    return text_of_row(begins, count, row);
  }
  // Whether `other` is a row of the text, and of the segment of `row`.
  __device__ bool sees(const RowsOfText& text, std::int64_t row, std::int64_t other) const {
    if (other < text.begin || other >= text.end) return false;
    return segments == nullptr || segments[other] == segments[row];
  }
  // Whether nothing is before `row`.
  __device__ bool begins_at(const RowsOfText& text, std::int64_t row) const {
    if (row == text.begin) return !text.continues;
    return segments != nullptr && segments[row] != segments[row - 1];
  }
};

inline TextPlaces places_of(const TextRows& texts, const Tensor& segments, std::int64_t samples,
                            std::int64_t n) {
  return {.begins = pointer<const std::int32_t>(texts.begins),
          .lengths = pointer<const std::int32_t>(texts.lengths),
          .slots = pointer<const std::int32_t>(texts.slots),
          .segments = pointer<const std::int32_t>(segments),
          .count = texts.given() ? texts.slots.dim(0) : samples,
          .length = texts.given() ? 0 : n / samples};
}

}  // namespace piton::cuda
