#include "optim/muon.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/option_range.h"

namespace piton {
namespace {

// Coefficients of Keller Jordan's Newton-Schulz iteration. They maximize the slope at 0, so that
// small singular values grow fast, while the result stays near 1.
constexpr double kA = 3.4445;
constexpr double kB = -4.7750;
constexpr double kC = 2.0315;
constexpr std::int64_t kMostSteps = 99;  // the limit of torch.optim.Muon

constexpr std::int64_t kSumBlock = 16384;  // elements per partial sum of squares

double scale_of(MuonScale scale, const Shape& shape) {
  const auto rows = static_cast<double>(shape[0]);
  const auto columns = static_cast<double>(shape[1]);
  switch (scale) {
    case MuonScale::kSpectral:
      return std::sqrt(std::max(rows, columns));
    case MuonScale::kUnitRmsNorm:
      return std::sqrt(rows / columns);
    case MuonScale::kShapeScaling:
      return std::sqrt(std::max(1.0, rows / columns));
  }
  return 1;
}

// `matrix` [out, in] as the weight of a linear layer.
WeightView as_weight(const Tensor& matrix) {
  return {.tensor = matrix,
          .out = matrix.dim(0),
          .in = matrix.dim(1),
          .dtype = matrix.dtype(),
          .codes = {}};
}

// The dim that is split over the tensor ranks; -1 if every rank holds the whole parameter.
int split_dim(const Parameter& parameter, const Communicator& ranks) {
  const AxisPlacement& placement = parameter.placement[Axis::kTensor];
  const bool split = placement.kind == AxisPlacement::Kind::kSplit && ranks.size() > 1;
  return split ? placement.dim : -1;
}

}  // namespace

void MuonOptions::check() const {
  if (!(momentum >= 0 && momentum < 1)) {
    throw Error(Fault::kUsage, "optimizer: --muon-momentum: got {}, wanted at least 0 and below 1",
                momentum);
  }
  check_range("optimizer: --muon-num-ns-steps", steps, 1, kMostSteps);
  if (!(extra_scale > 0) || !std::isfinite(extra_scale)) {
    throw Error(Fault::kUsage,
                "optimizer: --muon-extra-scale-factor: got {}, wanted a number above 0",
                extra_scale);
  }
}

Muon::Muon(const MuonOptions& options, Mesh& mesh, Kernels& kernels, Device& device, Arena& arena)
    : options_(options),
      tensor_ranks_(&mesh.group(Axis::kTensor)),
      kernels_(&kernels),
      device_(&device),
      arena_(&arena) {}

Tensor Muon::memory(DType dtype, const Shape& shape, Stream& stream) {
  return arena_->allocate(dtype, shape, MemoryKind::kWorkspace, stream);
}

void Muon::update(const Span& span, const Tensor& scalars, Stream& stream) {
  const Parameter& parameter = *span.parameter;
  PITON_ASSERT(span.gradient.elements() == parameter.elements(),
               "{}: {} of its {} elements are here", parameter.name, span.gradient.elements(),
               parameter.elements());
  const Tensor direction = memory(DType::kF32, {parameter.elements()}, stream);
  kernels_->run(MuonMomentum{.direction = direction,
                             .buffer = span.buffer,
                             .gradient = span.gradient,
                             .scalars = scalars,
                             .momentum = options_.momentum,
                             .nesterov = options_.nesterov},
                stream);
  const std::int64_t columns = parameter.shape[1];
  const DType dtype = parameter.dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
  for (const Piece& piece : parameter.pieces) {
    const std::int64_t first = piece.local_row * columns;
    const std::int64_t size = piece.extent.elements();
    const Tensor local = direction.slice(0, first, size).reshape(piece.extent);
    const Tensor x = orthogonal(whole_direction(parameter, piece, local, stream), dtype, stream);
    kernels_->run(
        MuonUpdate{.main = span.main.slice(0, first, size),
                   .copy = span.copy.defined() ? span.copy.slice(0, first, size) : Tensor(),
                   .direction = own_part(parameter, piece, x, stream).flatten(),
                   .scalars = scalars,
                   .decay_multiplier = piece.decays ? 1.0 : 0.0,
                   .lr_multiplier = scale_of(options_.scale, piece.global) * options_.extra_scale},
        stream);
  }
}

Tensor Muon::whole_direction(const Parameter& parameter, const Piece& piece, const Tensor& local,
                             Stream& stream) {
  const int split = split_dim(parameter, *tensor_ranks_);
  if (split < 0) return local;
  const int ranks = tensor_ranks_->size();
  const Tensor parts = memory(DType::kF32, {ranks * piece.extent[0], piece.extent[1]}, stream);
  const Event gathered = tensor_ranks_->all_gather(parts, local, stream);
  arena_->hold(parts, gathered.fence());
  arena_->hold(local, gathered.fence());
  stream.wait(gathered);
  if (split == 0) return parts;
  Tensor whole = memory(DType::kF32, piece.global, stream);
  for (int rank = 0; rank < ranks; ++rank) {
    kernels_->run(Copy{.dst = whole.slice(1, rank * piece.extent[1], piece.extent[1]),
                       .src = parts.slice(0, rank * piece.extent[0], piece.extent[0])},
                  stream);
  }
  return whole;
}

Tensor Muon::own_part(const Parameter& parameter, const Piece& piece, const Tensor& whole,
                      Stream& stream) {
  const int split = split_dim(parameter, *tensor_ranks_);
  if (split < 0) return whole;
  const Tensor part = whole.slice(split, piece.start[split], piece.extent[split]);
  if (split == 0) return part;
  Tensor rows = memory(whole.dtype(), piece.extent, stream);
  kernels_->run(Copy{.dst = rows, .src = part}, stream);
  return rows;
}

// P = a I + b gram + c gram^2 (muon.h).
Tensor Muon::polynomial(const Tensor& gram, Stream& stream) {
  const Tensor scaled = memory(gram.dtype(), gram.shape(), stream);
  const Tensor rest = memory(gram.dtype(), gram.shape(), stream);
  kernels_->run(MuonTerms{.scaled = scaled, .rest = rest, .gram = gram, .a = kA, .b = kB, .c = kC},
                stream);
  Tensor result = memory(gram.dtype(), gram.shape(), stream);
  // LinearForward multiplies by the transpose of its weight. The Gram matrix is symmetric, so its
  // transpose is the same matrix.
  kernels_->run(
      LinearForward{.y = result, .x = scaled, .weight = as_weight(gram), .residual = rest}, stream);
  return result;
}

Tensor Muon::orthogonal(const Tensor& direction, DType dtype, Stream& stream) {
  const std::int64_t elements = direction.elements();
  const Tensor sums = memory(DType::kF64, {(elements + kSumBlock - 1) / kSumBlock}, stream);
  kernels_->run(SquareSums{.sums = sums, .x = direction.flatten(), .block = kSumBlock}, stream);
  Tensor x = memory(dtype, direction.shape(), stream);
  kernels_->run(MuonNormalize{.x = x.flatten(), .direction = direction.flatten(), .sums = sums},
                stream);
  const bool wide = x.dim(0) <= x.dim(1);
  const std::int64_t n = std::min(x.dim(0), x.dim(1));
  for (std::int64_t step = 0; step < options_.steps; ++step) {
    Tensor gram = memory(dtype, {n, n}, stream);
    Tensor next = memory(dtype, x.shape(), stream);
    if (wide) {
      kernels_->run(LinearForward{.y = gram, .x = x, .weight = as_weight(x)}, stream);
      const Tensor p = polynomial(gram, stream);
      kernels_->run(LinearBackwardInput{.dx = next, .dy = p, .weight = as_weight(x)}, stream);
    } else {
      const Tensor sum = dtype == DType::kF32 ? gram : memory(DType::kF32, {n, n}, stream);
      device_->zero(sum, stream);
      kernels_->run(LinearBackwardWeight{.dweight = sum, .dy = x, .x = x}, stream);
      if (dtype != DType::kF32) kernels_->run(Copy{.dst = gram, .src = sum}, stream);
      const Tensor p = polynomial(gram, stream);
      kernels_->run(LinearForward{.y = next, .x = x, .weight = as_weight(p)}, stream);
    }
    x = next;
  }
  return x;
}

}  // namespace piton
