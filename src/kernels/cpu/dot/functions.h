// Functions of this folder's files; contracts are in table.h.
#pragma once

#include "kernels/cpu/dot/table.h"

namespace piton::cpu::v4_bf16 {

void product(std::int64_t m, std::int64_t n, std::int64_t pairs, const std::uint16_t* a,
             std::int64_t a_row, std::int64_t a_pair, const Pair* b, std::int64_t b_panel,
             std::int64_t first, const DotOutput& c);
void product_columns(std::int64_t m, std::int64_t n, std::int64_t pairs, const std::uint16_t* a,
                     std::int64_t a_row, std::int64_t a_pair, const Pair* b, std::int64_t b_step,
                     const DotOutput& c);
void product_streamed(std::int64_t m, std::int64_t pairs, const std::uint16_t* a,
                      std::int64_t a_row, const Pair* b, const Pair* next, const DotOutput& c);
void product_packed(std::int64_t m, std::int64_t n, std::int64_t pairs, const Pair* a,
                    std::int64_t a_pairs, const Pair* b, std::int64_t b_panel, std::int64_t first,
                    const DotOutput& c);
void pack_rows(Pair* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
void pack_columns(Pair* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
void pack_codes(Pair* panels, const CodedRows& w, std::int64_t begin, std::int64_t n);
void pack_left(Pair* panels, const Matrix& columns, std::int64_t k, std::int64_t m);
void softmax(const ScoreArguments& a, const float* kept, float* bases, float* sums, float* out,
             std::int64_t out_stride, std::int64_t d, std::uint16_t* weights);
void score_gradients(const ScoreArguments& a, const float* kept, const float* lse, const float* dp,
                     const float* delta, Pair* weights, Pair* gradients,
                     std::uint16_t* gradient_rows);
double loop(std::int64_t rounds);

}  // namespace piton::cpu::v4_bf16
