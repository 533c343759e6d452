#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/error.h"

namespace piton {
namespace {

// State of spans is laid out one after the other, each at a multiple of 16 elements: 64 bytes of
// fp32.
constexpr std::int64_t kAlignment = 16;

std::int64_t aligned(std::int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

// What tells apart the different parts of the model that share a name: the coordinates on the axes
// that split it. Equal keys are copies of the same numbers.
std::string copy_key(const Parameter& parameter, const Mesh& mesh) {
  std::string key = parameter.name;
  for (int a = 0; a < kAxes; ++a) {
    const Axis axis = static_cast<Axis>(a);
    if (parameter.placement[axis].kind == AxisPlacement::Kind::kSplit) {
      key += fmt::format("@{}{:06}", a, mesh.coordinate(axis));
    }
  }
  return key;
}

std::int64_t ceiling(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The blocks of one parameter and, for each, the lowest rank that holds it.
struct NormEntry {
  std::int64_t first_block = 0;
  std::vector<int> owners;
};

struct HeldBlocks {
  std::string key;
  std::int64_t blocks = 0;  // of the whole parameter
  std::int64_t first = 0;
  std::int64_t count = 0;
};

std::string encode(const std::vector<HeldBlocks>& held) {
  std::string text;
  for (const HeldBlocks& one : held) {
    text += fmt::format("{} {} {} {}\n", one.blocks, one.first, one.count, one.key);
  }
  return text;
}

std::vector<HeldBlocks> decode(const std::string& text) {
  std::vector<HeldBlocks> held;
  std::size_t at = 0;
  const auto number = [&] {
    std::size_t end = text.find(' ', at);
    PITON_ASSERT(end != std::string::npos);
    const std::int64_t value = std::stoll(text.substr(at, end - at));
    at = end + 1;
    return value;
  };
  while (at < text.size()) {
    HeldBlocks one;
    one.blocks = number();
    one.first = number();
    one.count = number();
    const std::size_t end = text.find('\n', at);
    PITON_ASSERT(end != std::string::npos);
    one.key = text.substr(at, end - at);
    at = end + 1;
    held.push_back(std::move(one));
  }
  return held;
}

std::vector<std::string_view> moment_names(const OptimizerOptions& options) {
  if (options.kind == OptimizerKind::kAdam) return {"exp_avg", "exp_avg_sq"};
  if (options.sgd_momentum == 0) return {};
  return {"momentum_buffer"};
}

}  // namespace

void OptimizerOptions::check() const {
  const auto share = [](const char* flag, double value) {
    if (!(value >= 0 && value < 1)) {
      throw Error(Fault::kUsage, "optimizer: {}: got {}, wanted at least 0 and below 1", flag,
                  value);
    }
  };
  share("--sgd-momentum", sgd_momentum);
  share("--adam-beta1", beta1);
  share("--adam-beta2", beta2);
  if (!(eps > 0) || !std::isfinite(eps)) {
    throw Error(Fault::kUsage, "optimizer: --adam-eps: got {}, wanted a number above 0", eps);
  }
  if (!(weight_decay >= 0) || !std::isfinite(weight_decay)) {
    throw Error(Fault::kUsage, "optimizer: --weight-decay: got {}, wanted at least 0",
                weight_decay);
  }
  if (!(clip_grad >= 0) || !std::isfinite(clip_grad)) {
    throw Error(Fault::kUsage, "optimizer: --clip-grad: got {}, wanted at least 0 (0: no limit)",
                clip_grad);
  }
}

std::vector<std::pair<std::int64_t, bool>> decay_runs(const Parameter& parameter,
                                                      std::int64_t begin, std::int64_t size) {
  PITON_ASSERT(begin >= 0 && size >= 0 && begin + size <= parameter.elements());
  // The rule of every row: a change at the first row of each piece.
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

Optimizer::Optimizer(const OptimizerOptions& options, std::vector<UpdateSpan> spans,
                     std::int64_t norm_block, Mesh& mesh, Kernels& kernels, Device& device,
                     Arena& arena, Stream& stream)
    : options_(options),
      spans_(std::move(spans)),
      norm_block_(norm_block),
      ranks_(&mesh.group(kAllAxes)),
      mesh_(&mesh),
      kernels_(&kernels),
      device_(&device),
      arena_(&arena) {
  options_.check();
  PITON_ASSERT(norm_block > 0);
  std::int64_t elements = 0;
  std::int64_t mains = 0;
  for (const UpdateSpan& span : spans_) {
    const std::int64_t size = span.gradient.elements();
    PITON_ASSERT(span.gradient.ndim() == 1 && span.value.shape() == span.gradient.shape(),
                 "{}: value {}, gradient {}", span.parameter->name, to_string(span.value),
                 to_string(span.gradient));
    PITON_ASSERT(span.gradient.dtype() == DType::kF32, "{}: gradient {}", span.parameter->name,
                 to_string(span.gradient));
    PITON_ASSERT(
        span.offset % norm_block == 0 && ((span.offset + size) % norm_block == 0 ||
                                          span.offset + size == span.parameter->elements()),
        "{}: {} elements from {} are not whole blocks of {}", span.parameter->name, size,
        span.offset, norm_block);
    elements += aligned(size);
    if (span.value.dtype() != DType::kF32) mains += aligned(size);
  }
  std::vector<Moment> moments;
  for (const std::string_view moment : moment_names(options_)) {
    if (elements == 0) break;
    moments.push_back({moment, arena.allocate(DType::kF32, {elements}, MemoryKind::kOptimizer)});
    device.zero_new(moments.back().values, stream);
  }
  Tensor main;
  if (mains > 0) main = arena.allocate(DType::kF32, {mains}, MemoryKind::kOptimizer);
  std::int64_t element_at = 0;
  std::int64_t main_at = 0;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const UpdateSpan& span = spans_[i];
    const std::int64_t size = span.gradient.elements();
    OptimizerState state;
    state.parameter = span.parameter;
    state.offset = span.offset;
    state.main_is_value = span.value.dtype() == DType::kF32;
    for (const Moment& moment : moments) {
      state.moments.push_back({moment.name, moment.values.slice(0, element_at, size)});
    }
    element_at += aligned(size);
    if (state.main_is_value) {
      state.main = span.value;
    } else {
      state.main = main.slice(0, main_at, size);
      main_at += aligned(size);
    }
    state_.push_back(std::move(state));
    std::int64_t at = 0;
    for (const auto& [run, decays] : decay_runs(*span.parameter, span.offset, size)) {
      updates_.push_back({i, at, run, decays});
      at += run;
    }
  }
  scalars_ = arena.allocate(DType::kF32, {kStepScalars}, MemoryKind::kOptimizer);
  plan_norm(stream);
}

void Optimizer::plan_norm(Stream& stream) {
  std::vector<HeldBlocks> mine;
  for (const UpdateSpan& span : spans_) {
    if (span.gradient.elements() == 0) continue;
    mine.push_back({copy_key(*span.parameter, *mesh_),
                    ceiling(span.parameter->elements(), norm_block_), span.offset / norm_block_,
                    ceiling(span.gradient.elements(), norm_block_)});
  }
  const std::vector<std::string> all = ranks_->gather_bytes(encode(mine));
  std::map<std::string, NormEntry> entries;  // in the order of names
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    for (const HeldBlocks& held : decode(all[rank])) {
      NormEntry& entry = entries[held.key];
      if (entry.owners.empty()) entry.owners.assign(held.blocks, -1);
      PITON_ASSERT(static_cast<std::int64_t>(entry.owners.size()) == held.blocks,
                   "{}: ranks disagree about its size", held.key);
      for (std::int64_t block = held.first; block < held.first + held.count; ++block) {
        if (entry.owners[block] < 0) entry.owners[block] = rank;
      }
    }
  }
  std::int64_t total = 0;
  for (auto& [key, entry] : entries) {
    entry.first_block = total;
    total += static_cast<std::int64_t>(entry.owners.size());
    PITON_ASSERT(!ranks_->real() ||
                     std::find(entry.owners.begin(), entry.owners.end(), -1) == entry.owners.end(),
                 "{}: a block of it is updated by no rank", key);
  }
  host_sums_.assign(total, 0);
  if (total == 0) return;
  block_sums_ = arena_->allocate(DType::kF64, {total}, MemoryKind::kOptimizer);
  device_->zero(block_sums_, stream);
  for (const UpdateSpan& span : spans_) {
    const std::int64_t size = span.gradient.elements();
    if (size == 0) continue;
    const NormEntry& entry = entries.at(copy_key(*span.parameter, *mesh_));
    const std::int64_t first = span.offset / norm_block_;
    const std::int64_t end = first + ceiling(size, norm_block_);
    for (std::int64_t block = first; block < end;) {
      std::int64_t stop = block;
      while (stop < end && entry.owners[stop] == ranks_->rank()) ++stop;
      if (stop == block) {
        ++block;
        continue;
      }
      const std::int64_t begin = (block - first) * norm_block_;
      const std::int64_t length = std::min(size, (stop - first) * norm_block_) - begin;
      norm_parts_.push_back({span.gradient.slice(0, begin, length),
                             block_sums_.slice(0, entry.first_block + block, stop - block)});
      block = stop;
    }
  }
}

void Optimizer::reset_main(Stream& stream) {
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (state_[i].main_is_value || state_[i].size() == 0) continue;
    kernels_->run(Copy{.dst = state_[i].main, .src = spans_[i].value}, stream);
  }
}

double Optimizer::norm(Stream& stream) {
  if (host_sums_.empty()) return 0;
  // Entries of other owners were left with everyone's sums by the last step.
  device_->zero(block_sums_, stream);
  for (const NormPart& part : norm_parts_) {
    kernels_->run(SquareSums{.sums = part.sums, .x = part.gradient, .block = norm_block_}, stream);
  }
  const Event reduced = ranks_->all_reduce(block_sums_, Reduction::kSum, stream);
  if (reduced.fence()) arena_->hold(block_sums_, reduced.fence());
  stream.wait(reduced);
  device_->download(block_sums_, host_sums_.data(), stream);
  double sum = 0;
  for (const double block : host_sums_) sum += block;
  return std::sqrt(sum);
}

StepResult Optimizer::step(double lr, Stream& stream) {
  StepResult result;
  result.grad_norm = norm(stream);
  result.skipped = !std::isfinite(result.grad_norm);
  double scale = 1;
  if (options_.clip_grad > 0 && !result.skipped) {
    scale = std::min(1.0, options_.clip_grad / (result.grad_norm + 1e-6));
  }
  if (result.skipped) {
    ++skipped_;
  } else {
    ++steps_;
  }
  const double t = static_cast<double>(std::max<std::int64_t>(steps_, 1));
  float values[kStepScalars];
  values[kLearningRate] = static_cast<float>(lr);
  values[kCorrection1] = static_cast<float>(1 - std::pow(options_.beta1, t));
  values[kCorrection2] = static_cast<float>(1 - std::pow(options_.beta2, t));
  values[kGradientScale] = static_cast<float>(scale);
  values[kApply] = result.skipped ? 0.0F : 1.0F;
  device_->upload(values, scalars_, stream);
  for (const Update& update : updates_) kernels_->run(update_call(update), stream);
  return result;
}

KernelCall Optimizer::update_call(const Update& update) const {
  const OptimizerState& state = state_[update.span];
  const UpdateSpan& span = spans_[update.span];
  const auto part = [&](const Tensor& tensor) {
    return tensor.slice(0, update.begin, update.size);
  };
  const Tensor copy = state.main_is_value ? Tensor() : part(span.value);
  const double decay = update.decays ? options_.weight_decay : 0;
  if (options_.kind == OptimizerKind::kSgd) {
    return SgdUpdate{.main = part(state.main),
                     .buffer = state.moments.empty() ? Tensor() : part(state.moments[0].values),
                     .copy = copy,
                     .gradient = part(span.gradient),
                     .scalars = scalars_,
                     .momentum = options_.sgd_momentum,
                     .weight_decay = decay};
  }
  return AdamwUpdate{.main = part(state.main),
                     .first = part(state.moments[0].values),
                     .second = part(state.moments[1].values),
                     .copy = copy,
                     .gradient = part(span.gradient),
                     .scalars = scalars_,
                     .beta1 = options_.beta1,
                     .beta2 = options_.beta2,
                     .eps = options_.eps,
                     .weight_decay = decay};
}

void Optimizer::set_steps(std::int64_t steps, std::int64_t skipped) {
  PITON_ASSERT(steps >= 0 && skipped >= 0);
  steps_ = steps;
  skipped_ = skipped;
}

}  // namespace piton
