#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

// The state of each span starts at a multiple of 16 elements: 64 bytes of fp32, one cache line.
constexpr std::int64_t kAlignment = 16;

// Elements of offloaded state that pass through a buffer at a time: 4 MiB of each tensor, enough
// for the full speed of a disk, and three such pieces of AdamW's state are 36 MiB.
constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;

// Elements of whole matrices that Muon updates together: 32 MiB of directions in fp32. That is a
// layer of GPT-2 124M; larger matrices have enough work for all threads.
constexpr std::int64_t kRoundElements = std::int64_t{1} << 23;

std::int64_t aligned(std::int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

// The moments of a rule, without memory.
std::vector<Moment> moments_of(OptimizerKind rule, const OptimizerOptions& options) {
  std::vector<Moment> moments;
  if (rule == OptimizerKind::kAdam) {
    moments = {{.name = "exp_avg", .dtype = options.first_moment},
               {.name = "exp_avg_sq", .dtype = options.second_moment}};
  } else if (rule == OptimizerKind::kCadam) {
    moments = {{.name = "exp_avg", .dtype = DType::kF16},
               {.name = "exp_avg_scale", .each_row = true}};
  } else if (rule == OptimizerKind::kMuon ||
             (rule == OptimizerKind::kSgd && options.sgd_momentum > 0)) {
    moments = {{.name = "momentum_buffer"}};
  }
  if (options.average_decay) moments.push_back({.name = kAverageMoment});
  return moments;
}

std::int64_t elements_of(const Moment& moment, const UpdateSpan& span) {
  const std::int64_t size = span.gradient.elements();
  return moment.each_row ? rows_of(*span.parameter, span.offset, size) : size;
}

}  // namespace

std::vector<std::pair<std::int64_t, bool>> decay_runs(const Parameter& parameter,
                                                      std::int64_t begin, std::int64_t size) {
  PITON_ASSERT(begin >= 0 && size >= 0 && begin + size <= parameter.elements());
  // The rule can only change at the first row of a piece.
  std::vector<std::pair<std::int64_t, bool>> changes;  // first row, decays
  for (const Piece& piece : parameter.pieces) {
    if (piece.extent.elements() > 0) changes.emplace_back(piece.local_row, piece.decays);
  }
  std::sort(changes.begin(), changes.end());
  const std::int64_t rows = parameter.shape.ndim() == 0 ? 1 : parameter.shape[0];
  const std::int64_t row_size = rows == 0 ? 0 : parameter.elements() / rows;
  std::vector<std::pair<std::int64_t, bool>> runs;
  std::int64_t at = begin;
  const std::int64_t end = begin + size;
  for (std::size_t i = 0; i < std::max<std::size_t>(changes.size(), 1) && at < end; ++i) {
    const bool decays = !changes.empty() && changes[i].second;
    const std::int64_t stop =
        i + 1 < changes.size() ? std::min(end, changes[i + 1].first * row_size) : end;
    if (stop <= at) continue;
    if (!runs.empty() && runs.back().second == decays) {
      runs.back().first += stop - at;
    } else {
      runs.emplace_back(stop - at, decays);
    }
    at = stop;
  }
  return runs;
}

Optimizer::Optimizer(const OptimizerOptions& options, std::vector<UpdateSpan> spans, Mesh& mesh,
                     const ComputeContext& compute, const OptimizerSetup& setup)
    : options_(options),
      spans_(std::move(spans)),
      ranks_(&mesh.group(kAllAxes)),
      kernels_(&compute.kernels),
      device_(&compute.device),
      arena_(&compute.arena),
      squares_(spans_, setup.norm_block, mesh, compute) {
  const auto& [kernels, device, arena, stream] = compute;
  options_.check();
  for (const UpdateSpan& span : spans_) {
    PITON_ASSERT(span.gradient.ndim() == 1 && span.value.shape() == span.gradient.shape(),
                 "{}: value {}, gradient {}", span.parameter->name, to_string(span.value),
                 to_string(span.gradient));
    PITON_ASSERT(span.gradient.dtype() == DType::kF32, "{}: gradient {}", span.parameter->name,
                 to_string(span.gradient));
    PITON_ASSERT(!span.parameter->sign_rate || span.value.dtype() == DType::kF32, "{}: value {}",
                 span.parameter->name, to_string(span.value));
  }
  if (options_.kind == OptimizerKind::kMuon) {
    muon_ = std::make_unique<Muon>(options_.muon, mesh, kernels, device, arena);
  }
  if (setup.offload != nullptr)
    transfer_ = std::make_unique<StateTransfer>(device, arena, *setup.offload);
  make_state(stream);
  plan_updates();
  make_scalars(stream);
  if (options_.kind == OptimizerKind::kCadam) {
    cadam_ = std::make_unique<Cadam>(options_.cadam, cadam_spans(), mesh, compute);
  }
  counts_ = arena.allocate(DType::kF64, {kUpdateCounts}, MemoryKind::kOptimizer, stream);
  device.zero(counts_, stream);
  progress_.loss_scale =
      options_.loss_scale.value_or(options_.fp16 ? options_.initial_loss_scale : 1);
  progress_.hysteresis_left = options_.hysteresis;
  if (options_.spike_sigmas) {
    const std::int64_t size = kSpikeRings + 2 * options_.spike_window;
    history_ = arena.allocate(DType::kF64, {size}, MemoryKind::kOptimizer, stream);
    progress_.history.resize(static_cast<std::size_t>(size));
  }
}

void Optimizer::make_scalars(Stream& stream) {
  const auto make = [&] {
    Tensor scalars = arena_->allocate(DType::kF32, {kStepScalars}, MemoryKind::kOptimizer, stream);
    device_->zero(scalars, stream);
    return scalars;
  };
  scalars_ = make();
  for (const RateGroup group : options_.separate_rates) separate_scalars_[group] = make();
}

const Tensor& Optimizer::scalars_of(const UpdateSpan& span) const {
  const auto separate = separate_scalars_.find(span.parameter->rate_group);
  return separate == separate_scalars_.end() ? scalars_ : separate->second;
}

void Optimizer::make_state(Stream& stream) {
  std::int64_t mains = 0;
  using Kind = std::pair<std::string_view, DType>;  // of moments
  std::map<Kind, std::int64_t> sizes;               // elements over all spans
  for (const UpdateSpan& span : spans_) {
    for (const Moment& moment : moments_of(rule_of(span), options_)) {
      sizes[{moment.name, moment.dtype}] += aligned(elements_of(moment, span));
    }
    if (span.value.dtype() != DType::kF32) mains += aligned(span.gradient.elements());
  }
  Arena& home = transfer_ ? transfer_->target().arena() : *arena_;
  std::map<Kind, Tensor> buffers;
  for (const auto& [kind, size] : sizes) {
    buffers[kind] = home.allocate(kind.second, {size}, MemoryKind::kOptimizer, stream);
    if (transfer_) {
      transfer_->target().zero_new(buffers[kind], stream);
    } else {
      device_->zero_new(buffers[kind], stream);
    }
  }
  Tensor main;
  if (mains > 0) main = home.allocate(DType::kF32, {mains}, MemoryKind::kOptimizer, stream);
  std::map<Kind, std::int64_t> next;
  std::int64_t main_at = 0;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const UpdateSpan& span = spans_[i];
    const std::int64_t size = span.gradient.elements();
    OptimizerState state{.parameter = span.parameter,
                         .offset = span.offset,
                         .rule = rule_of(span),
                         .main_is_value = span.value.dtype() == DType::kF32};
    for (Moment& moment : state.moments = moments_of(state.rule, options_)) {
      const Kind kind{moment.name, moment.dtype};
      const std::int64_t elements = elements_of(moment, span);
      moment.values = buffers.at(kind).slice(0, next[kind], elements);
      next[kind] += aligned(elements);
    }
    if (state.main_is_value) {
      state.main = span.value;
    } else {
      state.main = main.slice(0, main_at, size);
      main_at += aligned(size);
    }
    state_.push_back(std::move(state));
  }
}

void Optimizer::plan_updates() {
  std::vector<CutMatrix> matrices;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (state_[i].rule == OptimizerKind::kMuon) {
      matrices.push_back({i, spans_[i].parameter->elements(), spans_[i].cut});
    } else if (state_[i].rule != OptimizerKind::kCadam) {
      add_updates(i);
    }
  }
  rounds_ = make_matrix_rounds(matrices, transfer_ ? 1 : kRoundElements);
  connect_holders(rounds_, matrices);
}

std::vector<Cadam::Span> Optimizer::cadam_spans() const {
  PITON_ASSERT(!transfer_, "CAdam's state stays on the device");
  std::vector<Cadam::Span> spans;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const OptimizerState& state = state_[i];
    if (state.rule != OptimizerKind::kCadam) continue;
    spans.push_back({.parameter = state.parameter,
                     .offset = state.offset,
                     .main = state.main,
                     .copy = state.main_is_value ? Tensor() : spans_[i].value,
                     .momentum = state.moments[0].values,
                     .scales = state.moments[1].values,
                     .gradient = spans_[i].gradient,
                     .scalars = scalars_of(spans_[i])});
  }
  return spans;
}

void Optimizer::add_updates(std::size_t span) {
  const UpdateSpan& of = spans_[span];
  std::int64_t begin = 0;
  for (const auto& [run, decays] : decay_runs(*of.parameter, of.offset, state_[span].size())) {
    const std::int64_t most = transfer_ ? kPieceElements : run;
    for (std::int64_t at = 0; at < run; at += most) {
      updates_.push_back({span, begin + at, std::min(most, run - at), decays});
    }
    begin += run;
  }
}

OptimizerKind Optimizer::rule_of(const UpdateSpan& span) const {
  if (span.parameter->sign_rate) return OptimizerKind::kSign;
  const bool other = options_.kind == OptimizerKind::kMuon && !span.parameter->is_matrix();
  return span.rule.value_or(other ? OptimizerKind::kAdam : options_.kind);
}

void Optimizer::reset_main(Stream& stream) {
  std::vector<StateTransfer::Job> jobs;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const OptimizerState& state = state_[i];
    const std::int64_t most = transfer_ ? kPieceElements : state.size();
    for (std::int64_t at = 0; at < state.size(); at += most) {
      const auto part = [&, size = std::min(most, state.size() - at)](const Tensor& tensor) {
        return tensor.slice(0, at, size);
      };
      std::vector<Tensor> copies;
      if (!state.main_is_value) copies.push_back(part(state.main));
      if (options_.average_decay) copies.push_back(part(state.moments.back().values));
      const auto fill = [this, &stream,
                         value = part(spans_[i].value)](const std::vector<Tensor>& here) {
        for (const Tensor& copy : here) kernels_->run(Copy{.dst = copy, .src = value}, stream);
      };
      if (transfer_) {
        jobs.push_back({.state = copies, .reads = false, .update = fill});
      } else {
        fill(copies);
      }
    }
  }
  if (transfer_) transfer_->run(jobs, stream);
}

void Optimizer::set_rates(const StepRates& rates, Stream& stream) {
  if (!squares_.sums().defined()) return;
  if (std::exchange(counts_are_set_, false)) {
    double counts[kUpdateCounts] = {};
    counts[kUpdates] = static_cast<double>(progress_.steps);
    counts[kSkipped] = static_cast<double>(progress_.skipped);
    counts[kLossScale] = progress_.loss_scale;
    counts[kGoodUpdates] = static_cast<double>(progress_.good_updates);
    counts[kHysteresisLeft] = static_cast<double>(progress_.hysteresis_left);
    device_->upload(counts, counts_, stream);
    if (history_.defined()) device_->upload(progress_.history.data(), history_, stream);
  }
  if (history_.defined()) {
    device_->upload(&rates.loss, history_.slice(0, kSpikeLoss, 1), stream);
  }
  const auto put = [&](const Tensor& scalars, StepScalar place, double value) {
    const auto narrow = static_cast<float>(value);
    device_->upload(&narrow, scalars.slice(0, place, 1), stream);
  };
  put(scalars_, kLearningRate, rates.learning_rate.base);
  put(scalars_, kWeightDecay, rates.weight_decay);
  for (const auto& [group, scalars] : separate_scalars_)
    put(scalars, kLearningRate, rates.learning_rate.of(group));
}

void Optimizer::update(Stream& stream) {
  if (!squares_.sums().defined()) return;
  squares_.sum(stream);
  kernels_->run(
      BeginUpdate{.scalars = scalars_,
                  .counts = counts_,
                  .sums = squares_.sums(),
                  .beta1 = options_.beta1,
                  .beta2 = options_.beta2,
                  .clip = options_.clip_grad,
                  .scaling = options_.scaling(),
                  .spikes = {.history = history_, .sigmas = options_.spike_sigmas.value_or(0)}},
      stream);
  constexpr int kNext = kLearningRate + 1;
  for (const auto& [group, scalars] : separate_scalars_) {
    kernels_->run(Copy{.dst = scalars.slice(0, kNext, kStepScalars - kNext),
                       .src = scalars_.slice(0, kNext, kStepScalars - kNext)},
                  stream);
  }
  run_updates(stream);
}

void Optimizer::run_updates(Stream& stream) {
  if (cadam_) {
    cadam_->update(stream);
    std::vector<std::vector<Tensor>> places;
    for (const OptimizerState& state : state_) {
      if (state.rule != OptimizerKind::kCadam) continue;
      places.push_back({state.moments.back().values, state.main});
    }
    run_averages(places, stream);
  }
  if (!transfer_) {
    std::vector<CallChain> chains;
    chains.reserve(updates_.size());
    for (const Update& update : updates_) chains.push_back(calls_of(update, stored(update)));
    kernels_->run_chains(chains, stream);
    for (const MatrixRound& round : rounds_) run(round, stored(round), stream);
    return;
  }
  std::vector<StateTransfer::Job> jobs;
  jobs.reserve(updates_.size() + rounds_.size());
  const auto add = [&](const auto& of) {
    jobs.push_back(
        {.state = stored(of), .update = [this, &of, &stream](const std::vector<Tensor>& here) {
           run(of, here, stream);
         }});
  };
  for (const Update& update : updates_) add(update);
  for (const MatrixRound& round : rounds_) add(round);
  transfer_->run(jobs, stream);
}

// What of the state one update reads and writes: the moments, then the main copy if it is not the
// value.
std::vector<Tensor> Optimizer::stored(const Update& update) const {
  const OptimizerState& state = state_[update.span];
  std::vector<Tensor> tensors;
  for (const Moment& moment : state.moments) {
    tensors.push_back(moment.values.slice(0, update.begin, update.size));
  }
  if (!state.main_is_value) tensors.push_back(state.main.slice(0, update.begin, update.size));
  return tensors;
}

// stored() of the matrices of the round, one after another.
std::vector<Tensor> Optimizer::stored(const MatrixRound& round) const {
  std::vector<Tensor> tensors;
  for (const MatrixOfRound& matrix : round) {
    const std::vector<Tensor> more = stored(whole(matrix.span));
    tensors.insert(tensors.end(), more.begin(), more.end());
  }
  return tensors;
}

// `here`: stored(update), where kernels reach it.
CallChain Optimizer::calls_of(const Update& update, std::vector<Tensor> here) const {
  const OptimizerState& state = state_[update.span];
  if (state.main_is_value) here.push_back(state.main.slice(0, update.begin, update.size));
  CallChain calls{update_call(update, here)};
  if (options_.average_decay) calls.emplace_back(average_call(here));
  return calls;
}

void Optimizer::run(const Update& update, const std::vector<Tensor>& here, Stream& stream) {
  for (const KernelCall& call : calls_of(update, here)) kernels_->run(call, stream);
}

// `here`: stored(round), where kernels reach it.
void Optimizer::run(const MatrixRound& round, const std::vector<Tensor>& here, Stream& stream) {
  std::vector<std::vector<Tensor>> parts;  // of `here`, with the main copy last
  std::vector<Muon::Span> matrices;
  auto next = here.begin();
  for (const auto& [i, owner] : round) {
    const OptimizerState& state = state_[i];
    const UpdateSpan& span = spans_[i];
    const auto count =
        static_cast<std::ptrdiff_t>(state.moments.size()) + (state.main_is_value ? 0 : 1);
    parts.emplace_back(next, next + count);
    next += count;
    if (state.main_is_value) parts.back().push_back(state.main);
    matrices.push_back({.parameter = span.parameter,
                        .offset = span.offset,
                        .cut = span.cut,
                        .owner = owner,
                        .main = parts.back().back(),
                        .copy = state.main_is_value ? Tensor() : span.value,
                        .buffer = parts.back().front(),
                        .gradient = span.gradient,
                        .scalars = scalars_of(span)});
  }
  muon_->update(matrices, stream);
  run_averages(parts, stream);
}

// `here` ends with the average and the main copy.
MovingAverage Optimizer::average_call(const std::vector<Tensor>& here) const {
  return {.average = here[here.size() - 2],
          .main = here.back(),
          .scalars = scalars_,
          .decay = *options_.average_decay};
}

// Likewise each of `places`.
void Optimizer::run_averages(const std::vector<std::vector<Tensor>>& places, Stream& stream) {
  if (!options_.average_decay) return;
  std::vector<CallChain> chains;
  chains.reserve(places.size());
  for (const std::vector<Tensor>& here : places) chains.push_back({average_call(here)});
  kernels_->run_chains(chains, stream);
}

StepResult Optimizer::result(Stream& stream) {
  double counts[kUpdateCounts] = {};
  device_->download(counts_, counts, stream);
  const auto skipped = static_cast<std::int64_t>(counts[kSkipped]);
  StepResult result{.grad_norm = counts[kGradientNorm], .skipped = skipped > progress_.skipped};
  progress_ = {.steps = static_cast<std::int64_t>(counts[kUpdates]),
               .skipped = skipped,
               .loss_scale = counts[kLossScale],
               .good_updates = static_cast<std::int64_t>(counts[kGoodUpdates]),
               .hysteresis_left = static_cast<std::int64_t>(counts[kHysteresisLeft]),
               .history = std::move(progress_.history)};
  if (history_.defined()) {
    device_->download(history_, progress_.history.data(), stream);
    progress_.history[kSpikeLoss] = 0;  // may be NaN; every step sets its own loss
  }
  return result;
}

// `here`: the moments, then the main copy.
KernelCall Optimizer::update_call(const Update& update, const std::vector<Tensor>& here) const {
  const OptimizerState& state = state_[update.span];
  const UpdateSpan& span = spans_[update.span];
  const auto part = [&](const Tensor& tensor) {
    return tensor.slice(0, update.begin, update.size);
  };
  const Tensor copy = state.main_is_value ? Tensor() : part(span.value);
  const double decay = update.decays ? 1 : 0;
  if (state.rule == OptimizerKind::kSign) {
    return SignUpdate{.main = here.back(),
                      .gradient = part(span.gradient),
                      .scalars = scalars_of(span),
                      .rate = *span.parameter->sign_rate};
  }
  if (state.rule == OptimizerKind::kSgd) {
    return SgdUpdate{.main = here.back(),
                     .buffer = options_.sgd_momentum > 0 ? here.front() : Tensor(),
                     .copy = copy,
                     .gradient = part(span.gradient),
                     .scalars = scalars_of(span),
                     .momentum = options_.sgd_momentum,
                     .decay_multiplier = decay};
  }
  return AdamwUpdate{.main = here.back(),
                     .first = here[0],
                     .second = here[1],
                     .copy = copy,
                     .gradient = part(span.gradient),
                     .scalars = scalars_of(span),
                     .beta1 = options_.beta1,
                     .beta2 = options_.beta2,
                     .eps = options_.eps,
                     .decay_multiplier = decay};
}

void Optimizer::set_progress(const OptimizerProgress& progress) {
  PITON_ASSERT(progress.steps >= 0 && progress.skipped >= 0);
  const double constant = progress_.loss_scale;
  const std::size_t history = progress_.history.size();
  progress_ = progress;
  progress_.history.resize(history);  // saved without --skip-spikes: start with an empty history
  if (!options_.scaling().dynamic) progress_.loss_scale = constant;
  counts_are_set_ = true;
}

}  // namespace piton
