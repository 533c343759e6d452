#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

// Iterations of which the polynomials are multiplied before they are applied. In bf16 the rounding
// of the Gram matrix grows by up to a^2 = 12 in each of them; from the fourth on it can exceed 1.
constexpr std::int64_t kMostTogether = 3;

// Whether that saves work: products of squares against products with the whole matrix.
bool is_oblong(const Shape& shape) {
  return 4 * std::max(shape[0], shape[1]) >= 5 * std::min(shape[0], shape[1]);
}

// The dim that is split over the tensor ranks; -1 if every rank holds the whole parameter.
int split_dim(const Parameter& parameter, const Communicator& ranks) {
  const AxisPlacement& placement = parameter.placement[Axis::kTensor];
  const bool split = placement.kind == AxisPlacement::Kind::kSplit && ranks.size() > 1;
  return split ? placement.dim : -1;
}

// Elements that rank `rank` holds of `whole`, the local elements of a cut matrix.
Tensor part_of(const Tensor& whole, const MatrixCut& cut, int rank) {
  const std::int64_t begin = rank * cut.part;
  return whole.slice(0, begin, std::min(cut.part, whole.elements() - begin));
}

// Tags of the messages of matrix `index` of a round.
int direction_tag(int index) { return 2 * index; }
int update_tag(int index) { return 2 * index + 1; }

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

DType Muon::dtype_of(const Parameter& parameter) {
  return parameter.dtype == DType::kF32 ? DType::kF32 : DType::kBF16;
}

void Muon::update(const std::vector<Span>& round, const Tensor& scalars, Stream& stream) {
  std::vector<Work> works;
  works.reserve(round.size());
  for (std::size_t i = 0; i < round.size(); ++i) {
    works.push_back(collect(round[i], static_cast<int>(i), scalars, stream));
  }
  for (std::size_t i = 0; i < round.size(); ++i) {
    if (works[i].whole.defined()) compute(round[i], static_cast<int>(i), works[i], stream);
  }
  for (std::size_t i = 0; i < round.size(); ++i) apply(round[i], works[i], scalars, stream);
  // Every receive of the round is posted before its rank computes, so this is not long.
  for (const Work& work : works) {
    for (const Event& sent : work.sent) stream.wait(sent);
  }
}

Muon::Work Muon::collect(const Span& span, int index, const Tensor& scalars, Stream& stream) {
  const Parameter& parameter = *span.parameter;
  const std::int64_t elements = parameter.elements();
  const std::int64_t mine = span.gradient.elements();
  const int holders = span.cut.holders(elements);
  PITON_ASSERT(holders > 1 || mine == elements, "{}: {} of its {} elements are here",
               parameter.name, mine, elements);
  const bool owner = holders == 1 || span.cut.ranks->rank() == span.owner;
  Work work;
  if (owner) work.whole = memory(DType::kF32, {elements}, stream);
  const Tensor direction =
      owner ? work.whole.slice(0, span.offset, mine) : memory(DType::kF32, {mine}, stream);
  kernels_->run(MuonMomentum{.direction = direction,
                             .buffer = span.buffer,
                             .gradient = span.gradient,
                             .scalars = scalars,
                             .momentum = options_.momentum,
                             .nesterov = options_.nesterov},
                stream);
  if (holders == 1) return work;
  Communicator& ranks = *span.cut.ranks;
  PITON_ASSERT(span.offset == ranks.rank() * span.cut.part, "{}: a part from element {} on rank {}",
               parameter.name, span.offset, ranks.rank());
  if (!owner) {
    const Event sent = ranks.send(direction, span.owner, direction_tag(index), stream);
    arena_->hold(direction, sent.fence());
    work.update = memory(dtype_of(parameter), {mine}, stream);
    work.arrived.push_back(ranks.receive(work.update, span.owner, update_tag(index), stream));
    arena_->hold(work.update, work.arrived.back().fence());
    return work;
  }
  for (int rank = 0; rank < holders; ++rank) {
    if (rank == span.owner) continue;
    const Tensor part = part_of(work.whole, span.cut, rank);
    work.arrived.push_back(ranks.receive(part, rank, direction_tag(index), stream));
    arena_->hold(part, work.arrived.back().fence());
  }
  return work;
}

void Muon::compute(const Span& span, int index, Work& work, Stream& stream) {
  for (const Event& event : work.arrived) stream.wait(event);
  work.arrived.clear();
  const Parameter& parameter = *span.parameter;
  const Tensor update = orthogonal_pieces(parameter, std::exchange(work.whole, {}), stream);
  work.update = update.slice(0, span.offset, span.gradient.elements());
  for (int rank = 0; rank < span.cut.holders(parameter.elements()); ++rank) {
    if (rank == span.owner) continue;
    const Tensor part = part_of(update, span.cut, rank);
    work.sent.push_back(span.cut.ranks->send(part, rank, update_tag(index), stream));
    arena_->hold(part, work.sent.back().fence());
  }
}

void Muon::apply(const Span& span, const Work& work, const Tensor& scalars, Stream& stream) {
  for (const Event& event : work.arrived) stream.wait(event);
  const Parameter& parameter = *span.parameter;
  const std::int64_t columns = parameter.shape[1];
  const std::int64_t end = span.offset + span.gradient.elements();
  for (const Piece& piece : parameter.pieces) {
    const std::int64_t first = std::max(span.offset, piece.local_row * columns);
    const std::int64_t last = std::min(end, piece.local_row * columns + piece.extent.elements());
    if (first >= last) continue;
    const auto part = [&](const Tensor& tensor) {
      return tensor.slice(0, first - span.offset, last - first);
    };
    kernels_->run(
        MuonUpdate{.main = part(span.main),
                   .copy = span.copy.defined() ? part(span.copy) : Tensor(),
                   .direction = part(work.update),
                   .scalars = scalars,
                   .decay_multiplier = piece.decays ? 1.0 : 0.0,
                   .lr_multiplier = scale_of(options_.scale, piece.global) * options_.extra_scale},
        stream);
  }
}

Tensor Muon::orthogonal_pieces(const Parameter& parameter, const Tensor& whole, Stream& stream) {
  Tensor update = memory(dtype_of(parameter), {parameter.elements()}, stream);
  const std::int64_t columns = parameter.shape[1];
  for (const Piece& piece : parameter.pieces) {
    const auto local = [&](const Tensor& tensor) {
      return tensor.slice(0, piece.local_row * columns, piece.extent.elements())
          .reshape(piece.extent);
    };
    const Tensor direction = whole_direction(parameter, piece, local(whole), stream);
    const Tensor x = orthogonal(direction, update.dtype(), stream);
    kernels_->run(Copy{.dst = local(update), .src = own_part(parameter, piece, x)}, stream);
  }
  return update;
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

Tensor Muon::own_part(const Parameter& parameter, const Piece& piece, const Tensor& whole) const {
  const int split = split_dim(parameter, *tensor_ranks_);
  if (split < 0) return whole;
  return whole.slice(split, piece.start[split], piece.extent[split]);
}

// left right, for symmetric matrices that commute: [n, n].
Tensor Muon::product(const Tensor& left, const Tensor& right, Stream& stream) {
  Tensor y = memory(left.dtype(), left.shape(), stream);
  kernels_->run(SymmetricProduct{.y = y, .left = left, .right = right}, stream);
  return y;
}

// The product of the polynomials of `count` iterations from x on (muon.h): [n, n].
Tensor Muon::polynomials(const Tensor& x, std::int64_t count, Stream& stream) {
  const bool wide = x.dim(0) <= x.dim(1);
  const Shape square{std::min(x.dim(0), x.dim(1)), std::min(x.dim(0), x.dim(1))};
  Tensor gram = memory(x.dtype(), square, stream);
  kernels_->run(SymmetricProduct{.y = gram, .left = x, .right = x, .transposed = !wide}, stream);
  Tensor all;
  for (std::int64_t i = 1; i <= count; ++i) {
    const Tensor p = memory(x.dtype(), square, stream);
    kernels_->run(SymmetricProduct{.y = p,
                                   .left = gram,
                                   .right = gram,
                                   .addend = gram,
                                   .factor = kC,
                                   .addend_factor = kB,
                                   .diagonal = kA},
                  stream);
    if (i < count) gram = product(p, product(p, gram, stream), stream);
    all = all.defined() ? product(p, all, stream) : p;
  }
  return all;
}

WeightView Muon::packed(const Tensor& matrix, WeightForm form, Stream& stream) {
  WeightView weight{.tensor = matrix,
                    .out = matrix.dim(0),
                    .in = matrix.dim(1),
                    .dtype = matrix.dtype(),
                    .codes = {}};
  const std::int64_t bytes = kernels_->packed_bytes(form, weight.out, weight.in, weight.dtype);
  if (bytes == 0) return weight;
  weight.tensor = memory(DType::kU8, {bytes}, stream);
  weight.form = form;
  kernels_->run(PackWeight{.packed = weight.tensor, .rows = matrix, .form = form}, stream);
  return weight;
}

Tensor Muon::orthogonal(const Tensor& direction, DType dtype, Stream& stream) {
  const std::int64_t elements = direction.elements();
  const Tensor sums = memory(DType::kF64, {(elements + kSumBlock - 1) / kSumBlock}, stream);
  kernels_->run(SquareSums{.sums = sums, .x = direction.flatten(), .block = kSumBlock}, stream);
  Tensor x = memory(dtype, direction.shape(), stream);
  kernels_->run(MuonNormalize{.x = x.flatten(), .direction = direction.flatten(), .sums = sums},
                stream);
  const bool wide = x.dim(0) <= x.dim(1);
  const std::int64_t most = dtype == DType::kBF16 && is_oblong(x.shape()) ? kMostTogether : 1;
  for (std::int64_t left = options_.steps; left > 0; left -= most) {
    const Tensor p = polynomials(x, std::min(left, most), stream);
    const Tensor next = memory(dtype, x.shape(), stream);
    if (wide) {
      kernels_->run(
          LinearBackwardInput{
              .dx = next, .dy = p, .weight = packed(x, WeightForm::kBackward, stream)},
          stream);
    } else {  // p is its own transpose
      kernels_->run(
          LinearForward{.y = next, .x = x, .weight = packed(p, WeightForm::kForward, stream)},
          stream);
    }
    x = next;
  }
  return x;
}

}  // namespace piton
