// Figures of weights and gradient for the log, computed on the host.

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/gathered_values.h"
#include "optim/optimizer.h"

namespace piton {
namespace {

// Elements on the host at a time: 4 MiB.
constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 20;

// Elements [begin, end) of the local tensor that belong to the model: all but the padding.
std::vector<std::pair<std::int64_t, std::int64_t>> model_rows(const Parameter& parameter) {
  const std::int64_t rows = parameter.shape.ndim() == 0 ? 1 : parameter.shape[0];
  const std::int64_t row_size = rows == 0 ? 0 : parameter.elements() / rows;
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const Piece& piece : parameter.pieces) {
    const std::int64_t begin = piece.local_row * row_size;
    runs.emplace_back(begin, begin + piece.extent.elements());
  }
  return runs;
}

// Of the weights of one rank.
struct RankFigures {
  double squares = 0;
  std::int64_t zeros = 0;
};

// The sum over all ranks, in their order.
OptimizerFigures summed(Communicator& ranks, const RankFigures& own) {
  double squares = 0;
  OptimizerFigures sum;
  for (const RankFigures& one : gathered_values(ranks, own)) {
    squares += one.squares;
    sum.num_zeros += one.zeros;
  }
  sum.params_norm = std::sqrt(squares);
  return sum;
}

}  // namespace

OptimizerFigures Optimizer::figures(Stream& stream) const {
  std::vector<float> host(kElementsAtOnce);
  double squares = 0;
  std::int64_t zeros = 0;
  for (const GradientSquares::Part& part : squares_.parts()) {
    const OptimizerState& state = state_[part.span];
    Device& home = state.main_is_value ? *device_ : state_device();
    const auto runs = model_rows(*state.parameter);
    const std::int64_t size = part.gradient.elements();
    for (std::int64_t at = 0; at < size; at += kElementsAtOnce) {
      const std::int64_t count = std::min(kElementsAtOnce, size - at);
      device_->download(part.gradient.slice(0, at, count), host.data(), stream);
      const std::int64_t first = state.offset + part.begin + at;  // in the local tensor
      for (const auto& [begin, end] : runs) {
        const std::int64_t from = std::clamp<std::int64_t>(begin - first, 0, count);
        const std::int64_t to = std::clamp<std::int64_t>(end - first, 0, count);
        zeros += std::count(host.begin() + from, host.begin() + to, 0.0F);
      }
      home.download(state.main.slice(0, part.begin + at, count), host.data(), stream);
      for (std::int64_t i = 0; i < count; ++i) {
        squares += static_cast<double>(host[static_cast<std::size_t>(i)]) *
                   host[static_cast<std::size_t>(i)];
      }
    }
  }
  return summed(*ranks_, {squares, zeros});
}

std::vector<std::string> Optimizer::parameters_not_finite(Stream& stream) const {
  return squares_.names_not_finite(stream);
}

}  // namespace piton
