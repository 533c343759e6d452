#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/options/option_range.h"

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

// use(rank) for those that hold parts of a cut matrix, without its owner.
template <typename Use>
void for_others(const Muon::Span& span, Use use) {
  for (int rank = 0; rank < span.cut.holders(span.parameter->elements()); ++rank) {
    if (rank != span.owner) use(rank);
  }
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
  check_positive("optimizer: --muon-extra-scale-factor", extra_scale);
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

void Muon::update(const std::vector<Span>& round, Stream& stream) {
  std::vector<Work> works;
  works.reserve(round.size());
  for (const Span& span : round) works.push_back(begin(span, stream));
  collect(round, works, stream);
  std::vector<CallChain> chains;
  for (std::size_t i = 0; i < round.size(); ++i) {
    if (works[i].whole.defined()) add_chains(round[i], works[i], chains, stream);
  }
  kernels_->run_chains(chains, stream);
  chains.clear();
  distribute(round, works, stream);
  for (std::size_t i = 0; i < round.size(); ++i) {
    if (is_cut(round[i])) apply(round[i], works[i], stream);
  }
  // The others have computed too, so this is not long.
  for (const Work& work : works) {
    for (const Event& sent : work.sent) stream.wait(sent);
  }
}

Muon::Work Muon::begin(const Span& span, Stream& stream) {
  const Parameter& parameter = *span.parameter;
  const std::int64_t elements = parameter.elements();
  const std::int64_t mine = span.gradient.elements();
  const int holders = span.cut.holders(elements);
  PITON_ASSERT(holders > 1 || mine == elements, "{}: {} of its {} elements are here",
               parameter.name, mine, elements);
  Work work;
  if (is_owner(span)) work.whole = memory(DType::kF32, {elements}, stream);
  work.direction = work.whole.defined() ? work.whole.slice(0, span.offset, mine)
                                        : memory(DType::kF32, {mine}, stream);
  if (is_alone(span)) return work;  // with the rest of its chain
  kernels_->run(momentum(work.direction, span.buffer, span.gradient, span.scalars), stream);
  return work;
}

// The matrices of a round that are cut are those of one group.
class Muon::RoundMessages {
 public:
  RoundMessages(Arena& arena, Stream& stream) : arena_(arena), stream_(stream) {}

  void send(const Span& span, const PeerMessage& message, Work& work) {
    add(sends_, work.sent, span, message);
  }
  void receive(const Span& span, const PeerMessage& message, Work& work) {
    add(receives_, work.arrived, span, message);
  }

  // Adds the events to the lists of their spans.
  void exchange() {
    if (ranks_ == nullptr) return;
    const Exchanged events = ranks_->exchange(sends_.messages, receives_.messages, stream_);
    finish(sends_, events.sent);
    finish(receives_, events.received);
  }

 private:
  struct List {
    std::vector<PeerMessage> messages;
    std::vector<std::vector<Event>*> events;
  };

  void add(List& list, std::vector<Event>& events, const Span& span, const PeerMessage& message) {
    PITON_ASSERT(ranks_ == nullptr || ranks_ == span.cut.ranks, "{}: a round of two groups",
                 span.parameter->name);
    ranks_ = span.cut.ranks;
    list.messages.push_back(message);
    list.events.push_back(&events);
  }
  void finish(const List& list, const std::vector<Event>& events) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      arena_.hold(list.messages[i].data, events[i].fence());
      list.events[i]->push_back(events[i]);
    }
  }

  Arena& arena_;
  Stream& stream_;
  Communicator* ranks_ = nullptr;
  List sends_;
  List receives_;
};

void Muon::collect(const std::vector<Span>& round, std::vector<Work>& works, Stream& stream) {
  RoundMessages messages(*arena_, stream);
  for (std::size_t i = 0; i < round.size(); ++i) {
    const Span& span = round[i];
    if (!is_cut(span)) continue;
    const int tag = direction_tag(static_cast<int>(i));
    PITON_ASSERT(span.offset == span.cut.ranks->rank() * span.cut.part,
                 "{}: a part from element {} on rank {}", span.parameter->name, span.offset,
                 span.cut.ranks->rank());
    if (!is_owner(span)) {
      messages.send(span, {works[i].direction, span.owner, tag}, works[i]);
      continue;
    }
    for_others(span, [&](int rank) {
      messages.receive(span, {part_of(works[i].whole, span.cut, rank), rank, tag}, works[i]);
    });
  }
  messages.exchange();
  for (Work& work : works) work.direction = {};
}

// A piece is a separate chain: pieces of all matrices of the round are independent.
void Muon::add_chains(const Span& span, Work& work, std::vector<CallChain>& chains,
                      Stream& stream) {
  for (const Event& event : work.arrived) stream.wait(event);
  work.arrived.clear();
  const Parameter& parameter = *span.parameter;
  const Tensor whole = std::exchange(work.whole, {});
  work.orthogonal = memory(dtype_of(parameter), {parameter.elements()}, stream);
  work.update = work.orthogonal.slice(0, span.offset, span.gradient.elements());
  const bool split = split_dim(parameter, *tensor_ranks_) >= 0;
  for (const Piece& piece : parameter.pieces) {
    const auto local = [&](const Tensor& tensor) {
      return tensor.slice(0, piece.local_row * parameter.shape[1], piece.extent.elements());
    };
    const Tensor own = local(work.orthogonal).reshape(piece.extent);
    CallChain& chain = chains.emplace_back();
    if (is_alone(span)) {
      chain.push_back(
          momentum(local(whole), local(span.buffer), local(span.gradient), span.scalars));
    }
    const Tensor direction =
        whole_direction(parameter, piece, local(whole).reshape(piece.extent), stream);
    const Tensor x = split ? memory(own.dtype(), piece.global, stream) : own;
    orthogonalize(direction, x, chain, stream);
    if (split) chain.push_back(Copy{.dst = own, .src = own_part(parameter, piece, x)});
    if (!is_cut(span)) {
      const std::int64_t first = piece.local_row * parameter.shape[1];
      chain.push_back(applied(span, piece, {first, first + piece.extent.elements()}, work.update));
    }
  }
}

void Muon::distribute(const std::vector<Span>& round, std::vector<Work>& works, Stream& stream) {
  RoundMessages messages(*arena_, stream);
  for (std::size_t i = 0; i < round.size(); ++i) {
    const Span& span = round[i];
    if (!is_cut(span)) continue;
    Work& work = works[i];
    const int tag = update_tag(static_cast<int>(i));
    if (is_owner(span)) {
      for_others(span, [&](int rank) {
        messages.send(span, {part_of(work.orthogonal, span.cut, rank), rank, tag}, work);
      });
      continue;
    }
    work.update = memory(dtype_of(*span.parameter), {span.gradient.elements()}, stream);
    messages.receive(span, {work.update, span.owner, tag}, work);
  }
  messages.exchange();
}

void Muon::apply(const Span& span, const Work& work, Stream& stream) {
  for (const Event& event : work.arrived) stream.wait(event);
  const std::int64_t columns = span.parameter->shape[1];
  const std::int64_t end = span.offset + span.gradient.elements();
  for (const Piece& piece : span.parameter->pieces) {
    const std::int64_t first = std::max(span.offset, piece.local_row * columns);
    const std::int64_t last = std::min(end, piece.local_row * columns + piece.extent.elements());
    if (first < last) kernels_->run(applied(span, piece, {first, last}, work.update), stream);
  }
}

MuonUpdate Muon::applied(const Span& span, const Piece& piece, Elements elements,
                         const Tensor& update) const {
  const auto part = [&](const Tensor& tensor) {
    return tensor.slice(0, elements.begin - span.offset, elements.end - elements.begin);
  };
  return {.main = part(span.main),
          .copy = span.copy.defined() ? part(span.copy) : Tensor(),
          .direction = part(update),
          .scalars = span.scalars,
          .decay_multiplier = piece.decays ? 1.0 : 0.0,
          .lr_multiplier = scale_of(options_.scale, piece.global) * options_.extra_scale};
}

MuonMomentum Muon::momentum(const Tensor& direction, const Tensor& buffer, const Tensor& gradient,
                            const Tensor& scalars) const {
  return {.direction = direction,
          .buffer = buffer,
          .gradient = gradient,
          .scalars = scalars,
          .momentum = options_.momentum,
          .nesterov = options_.nesterov};
}

bool Muon::is_cut(const Span& span) { return span.cut.holders(span.parameter->elements()) > 1; }

bool Muon::is_owner(const Span& span) {
  return !is_cut(span) || span.cut.ranks->rank() == span.owner;
}

bool Muon::is_alone(const Span& span) const {
  return !is_cut(span) && split_dim(*span.parameter, *tensor_ranks_) < 0;
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

// The product of the polynomials of `count` iterations from x on (muon.h): [n, n], one of
// `squares`.
Tensor Muon::polynomials(const Tensor& x, std::int64_t count, std::array<Tensor, 4>& squares,
                         CallChain& chain) {
  auto& [gram, p, other, all] = squares;
  const auto multiply = [&](const Tensor& y, const Tensor& left, const Tensor& right) {
    chain.push_back(SymmetricProduct{.y = y, .left = left, .right = right});
  };
  chain.push_back(
      SymmetricProduct{.y = gram, .left = x, .right = x, .transposed = x.dim(0) > x.dim(1)});
  for (std::int64_t i = 1; i <= count; ++i) {
    chain.push_back(SymmetricProduct{.y = p,
                                     .left = gram,
                                     .right = gram,
                                     .addend = gram,
                                     .factor = kC,
                                     .addend_factor = kB,
                                     .diagonal = kA});
    if (count == 1) return p;  // `other` and `all` may be missing
    if (i < count) {
      multiply(other, p, gram);
      multiply(gram, p, other);
    }
    if (i == 1) {
      std::swap(all, p);
    } else {
      multiply(other, p, all);
      std::swap(all, other);
    }
  }
  return all;
}

// `matrix` [out, in] as the weight of a linear layer, packed into `memory` if it is given.
WeightView Muon::weight(const Tensor& matrix, WeightForm form, const Tensor& memory,
                        CallChain& chain) {
  WeightView weight{.tensor = matrix,
                    .out = matrix.dim(0),
                    .in = matrix.dim(1),
                    .dtype = matrix.dtype(),
                    .codes = {}};
  if (!memory.defined()) return weight;
  weight.tensor = memory;
  weight.form = form;
  chain.push_back(PackWeight{.packed = memory, .rows = matrix, .form = form});
  return weight;
}

// The same few buffers in all iterations: they stay in the caches of the thread that does the
// chain.
void Muon::orthogonalize(const Tensor& direction, const Tensor& y, CallChain& chain,
                         Stream& stream) {
  const std::int64_t elements = direction.elements();
  const Tensor sums = memory(DType::kF64, {(elements + kSumBlock - 1) / kSumBlock}, stream);
  chain.push_back(SquareSums{.sums = sums, .x = direction.flatten(), .block = kSumBlock});
  const DType dtype = y.dtype();
  const bool wide = y.dim(0) <= y.dim(1);
  const std::int64_t n = std::min(y.dim(0), y.dim(1));
  const std::int64_t most =
      std::min(options_.steps, dtype == DType::kBF16 && is_oblong(y.shape()) ? kMostTogether : 1);
  const WeightForm form = wide ? WeightForm::kBackward : WeightForm::kForward;
  const std::int64_t bytes = wide ? kernels_->packed_bytes(form, n, y.dim(1), dtype)
                                  : kernels_->packed_bytes(form, n, n, dtype);
  const Tensor packed = bytes > 0 ? memory(DType::kU8, {bytes}, stream) : Tensor();
  std::array<Tensor, 4> squares;
  for (std::size_t i = 0; i < (most > 1 ? 4 : 2); ++i) squares[i] = memory(dtype, {n, n}, stream);
  // x and next take turns, so that the last product is in y.
  Tensor x = y;
  Tensor next = memory(dtype, y.shape(), stream);
  if ((options_.steps + most - 1) / most % 2 != 0) std::swap(x, next);
  chain.push_back(MuonNormalize{.x = x.flatten(), .direction = direction.flatten(), .sums = sums});
  for (std::int64_t left = options_.steps; left > 0; left -= most) {
    const Tensor p = polynomials(x, std::min(left, most), squares, chain);
    if (wide) {
      chain.push_back(
          LinearBackwardInput{.dx = next, .dy = p, .weight = weight(x, form, packed, chain)});
    } else {  // p is its own transpose
      chain.push_back(LinearForward{.y = next, .x = x, .weight = weight(p, form, packed, chain)});
    }
    std::swap(x, next);
  }
}

}  // namespace piton
