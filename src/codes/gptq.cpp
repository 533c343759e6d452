#include "codes/gptq.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::int64_t kPanel = 64;  // rows of a factor that are finished together
constexpr std::int64_t kTile = 8;    // rows of a matrix that are quantized together

// to[j] -= factor * from[j]
void subtract(double factor, const double* from, double* to, std::int64_t count) {
  for (std::int64_t j = 0; j < count; ++j) to[j] -= factor * from[j];
}

// Some rows of a matrix, quantized together: a row of U is read once for all of them.
class Rows {
 public:
  Rows(const IntegerFormat& format, const GptqFactor& factor, const std::string& where)
      : format_(format), factor_(factor), where_(where), in_(factor.in()) {}

  void quantize(std::span<const float> values, const WeightCodes& codes, std::int64_t first) {
    const std::int64_t rows = std::ssize(values) / in_;
    rest_.assign(values.begin(), values.end());
    whole_.assign(values.begin(), values.end());
    scales_.resize(static_cast<std::size_t>(rows));
    const std::int64_t group = format_.group > 0 ? format_.group : in_;
    for (std::int64_t i = 0; i < in_; ++i) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const CodedRow to = row_of(codes, first + row);
        if (i % group == 0) begin_group(row, i, group, to);
        round_one(row, i, to);
      }
    }
  }

 private:
  void begin_group(std::int64_t row, std::int64_t column, std::int64_t group, const CodedRow& to) {
    const std::int64_t end = std::min(column + group, in_);
    for (std::int64_t j = column; j < end; ++j)
      whole_[at(row, j)] = static_cast<float>(rest_[at(row, j)]);
    const IntegerScale scale =
        integer_scale(format_, ValueRange::of(std::span(whole_).subspan(
                                   at(row, column), static_cast<std::size_t>(end - column))));
    if (!std::isfinite(scale.scale)) refuse_scale(where_);
    scales_[static_cast<std::size_t>(row)] = scale;
    const std::int64_t index = column / group;
    std::memcpy(to.scales + index * 4, &scale.scale, 4);
    if (to.zeros != nullptr) to.zeros[index] = scale.zero;
  }

  void round_one(std::int64_t row, std::int64_t i, const CodedRow& to) {
    double* rest = rest_.data() + row * in_;
    const IntegerScale& scale = scales_[static_cast<std::size_t>(row)];
    const auto s = static_cast<double>(scale.scale);
    const std::int32_t code = integer_code(format_, scale, static_cast<float>(rest[i] / s));
    if (format_.bits == 8) {
      to.codes[i] = static_cast<std::byte>(code);
    } else if (i % 2 == 0) {
      to.codes[i / 2] = static_cast<std::byte>(code);
    } else {
      to.codes[i / 2] |= static_cast<std::byte>(code << 4);
    }
    const double* u = factor_.row(i);
    const double error = (rest[i] - s * (static_cast<double>(code) - scale.zero)) / u[i];
    subtract(error, u + i + 1, rest + i + 1, in_ - i - 1);
  }

  std::size_t at(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * in_ + column);
  }

  const IntegerFormat& format_;
  const GptqFactor& factor_;
  const std::string& where_;
  std::int64_t in_;
  std::vector<double> rest_;  // what is left of the columns that are not rounded yet
  std::vector<float> whole_;  // of a group, when it begins
  std::vector<IntegerScale> scales_;
};

}  // namespace

GptqFactor::GptqFactor(std::span<const float> squares, std::int64_t in, double damping,
                       const std::string& where, ThreadPool& threads)
    : in_(in), upper_(static_cast<std::size_t>(in * in)) {
  PITON_ASSERT(std::ssize(squares) == in * in, "{} squares of {} inputs", squares.size(), in);
  double sum = 0;
  for (std::int64_t i = 0; i < in; ++i) sum += squares[static_cast<std::size_t>(i * in + i)];
  if (!std::isfinite(sum)) {
    throw Error(Fault::kData, "{}: its inputs on the calibration text are not finite", where);
  }
  const double added = damping * sum / static_cast<double>(in);
  // In reverse, so that the factor is that of the inverse (invert()).
  threads.run(in, [&](std::int64_t i) {
    for (std::int64_t j = i; j < in; ++j) {
      const std::int64_t from = (in - 1 - j) * in + in - 1 - i;
      upper_[static_cast<std::size_t>(i * in + j)] = squares[static_cast<std::size_t>(from)];
    }
    double& own = upper_[static_cast<std::size_t>(i * in + i)];
    own = own == 0 ? 1 : own + added;
  });
  factorize(where, threads);
  invert(threads);
}

// A = R^T R with an upper R in the place of A: a panel of rows, then what it changes in the others.
void GptqFactor::factorize(const std::string& where, ThreadPool& threads) {
  const auto at = [&](std::int64_t i) { return upper_.data() + i * in_; };
  for (std::int64_t begin = 0; begin < in_; begin += kPanel) {
    const std::int64_t end = std::min(begin + kPanel, in_);
    for (std::int64_t k = begin; k < end; ++k) {
      for (std::int64_t p = begin; p < k; ++p) subtract(at(p)[k], at(p) + k, at(k) + k, in_ - k);
      const double square = at(k)[k];
      if (!(square > 0)) {
        throw Error(Fault::kData,
                    "{}: the squares of its inputs on the calibration text are not positive "
                    "definite; wanted a longer text, or a larger --damping",
                    where);
      }
      const double root = std::sqrt(square);
      for (std::int64_t j = k; j < in_; ++j) at(k)[j] /= root;
    }
    threads.run(in_ - end, [&](std::int64_t index) {
      const std::int64_t i = end + index;
      for (std::int64_t k = begin; k < end; ++k) subtract(at(k)[i], at(k) + i, at(i) + i, in_ - i);
    });
  }
}

// With J the reversal of rows, H = J A J = (J R^T J) (J R J) = L' L'^T for the upper L' = J R^T J,
// so H^-1 = U^T U with U = L'^-1, which is upper.
void GptqFactor::invert(ThreadPool& threads) {
  std::vector<double> turned(upper_.size());
  const auto at = [&](std::vector<double>& of, std::int64_t i) { return of.data() + i * in_; };
  threads.run(in_, [&](std::int64_t i) {
    for (std::int64_t j = i; j < in_; ++j) at(turned, i)[j] = at(upper_, in_ - 1 - j)[in_ - 1 - i];
  });
  threads.run((in_ + kTile - 1) / kTile, [&](std::int64_t tile) {
    const std::int64_t first = tile * kTile;
    const std::int64_t last = std::min(first + kTile, in_);
    for (std::int64_t i = first; i < last; ++i) {
      std::fill(at(upper_, i), at(upper_, i) + in_, 0.0);
      at(upper_, i)[i] = 1;
    }
    for (std::int64_t k = first; k < in_; ++k) {
      const double* row = at(turned, k);
      for (std::int64_t i = first; i < std::min(last, k + 1); ++i) {
        double* own = at(upper_, i);
        own[k] /= row[k];
        subtract(own[k], row + k + 1, own + k + 1, in_ - k - 1);
      }
    }
  });
}

void gptq(const IntegerFormat& format, const GptqFactor& factor, const GptqMatrix& matrix,
          ThreadPool& threads) {
  const std::span<const float> values = matrix.values;
  const std::int64_t in = factor.in();
  const std::int64_t rows = std::ssize(values) / in;
  PITON_ASSERT(!format.whole_tensor && std::ssize(values) == rows * in, "{} values, {} columns",
               values.size(), in);
  threads.run((rows + kTile - 1) / kTile, [&](std::int64_t tile) {
    const std::int64_t first = tile * kTile;
    const std::int64_t count = std::min(kTile, rows - first);
    Rows(format, factor, matrix.name)
        .quantize(values.subspan(static_cast<std::size_t>(first * in),
                                 static_cast<std::size_t>(count * in)),
                  matrix.codes, first);
  });
}

}  // namespace piton
