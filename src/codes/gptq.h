// GPTQ (Frantar et al. 2022, arXiv:2210.17323): rounds the columns of a matrix one after another,
// and moves the error of each to the columns that follow, so that the sum of squares of
// (W - W') X grows least. X [in, n]: inputs that the matrix had on a calibration text.
//
//   H = X X^T + damping mean(diag(X X^T)) I,   U^T U = H^-1, U upper triangular
//   for each column i:   e = (w_i - w'_i) / U_ii,   w_j -= e U_ij   for j > i
//
// Columns keep their order. Scales of a group are those of its columns as they are when the group
// begins; scales of rows and tensors those of the unchanged matrix. All sums are in fp64, each in
// one order, whatever the number of threads. An input that was always 0 is rounded by itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "codes/integer_codes.h"

namespace piton {

// U for one set of inputs, for all matrices that read them.
class GptqFactor {
 public:
  // `squares` [in, in]: X X^T, symmetric; only its upper half is read. Takes 2 in^2 fp64. Throws
  // Error(kData), beginning with `where`, if it is not finite, or not positive definite with the
  // damping.
  GptqFactor(std::span<const float> squares, std::int64_t in, double damping,
             const std::string& where, ThreadPool& threads);

  std::int64_t in() const { return in_; }
  const double* row(std::int64_t i) const { return upper_.data() + i * in_; }

 private:
  void factorize(const std::string& where, ThreadPool& threads);
  void invert(ThreadPool& threads);

  std::int64_t in_;
  std::vector<double> upper_;
};

struct GptqMatrix {
  const std::string& name;
  std::span<const float> values;  // [out, in]
  const WeightCodes& codes;       // written; of the held format
};

// Quantizes a matrix with scales of rows or groups. Throws Error(kData) with its name for values
// that are not finite or too large for a scale.
void gptq(const IntegerFormat& format, const GptqFactor& factor, const GptqMatrix& matrix,
          ThreadPool& threads);

}  // namespace piton
