#include "optim/gradient_squares.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace piton {
namespace {

// The name of the parameter and this rank's coordinates on the axes that split it. Ranks with equal
// keys hold copies of the same elements.
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

// Elements [begin, end) of a parameter, held by one rank.
struct HeldRun {
  std::string key;            // copy_key()
  std::int64_t elements = 0;  // of the parameter's local tensor
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

std::string encode(const std::vector<HeldRun>& held) {
  std::string text;
  for (const HeldRun& one : held) {
    text += fmt::format("{} {} {} {}\n", one.elements, one.begin, one.end, one.key);
  }
  return text;
}

std::vector<HeldRun> decode(const std::string& text) {
  std::vector<HeldRun> held;
  std::size_t at = 0;
  const auto number = [&] {
    std::size_t end = text.find(' ', at);
    PITON_ASSERT(end != std::string::npos);
    const std::int64_t value = std::stoll(text.substr(at, end - at));
    at = end + 1;
    return value;
  };
  while (at < text.size()) {
    HeldRun one;
    one.elements = number();
    one.begin = number();
    one.end = number();
    const std::size_t end = text.find('\n', at);
    PITON_ASSERT(end != std::string::npos);
    one.key = text.substr(at, end - at);
    at = end + 1;
    held.push_back(std::move(one));
  }
  return held;
}

using Interval = std::pair<std::int64_t, std::int64_t>;  // [begin, end)

// Which rank counts which elements of one key in the norm.
struct NormEntry {
  std::int64_t elements = 0;
  std::int64_t first_block = 0;
  std::map<std::int64_t, std::int64_t> taken;  // begin -> end of elements that have an owner
  std::map<int, std::vector<Interval>> owned;  // by rank: elements that no lower rank holds
};

// Makes `rank` the owner of those elements of [begin, end) that have no owner yet.
void claim(NormEntry& entry, int rank, std::int64_t begin, std::int64_t end) {
  std::vector<Interval> free;
  std::int64_t at = begin;
  for (const auto& [from, to] : entry.taken) {
    if (to <= at) continue;
    if (from >= end) break;
    if (from > at) free.emplace_back(at, from);
    at = std::max(at, to);
  }
  if (at < end) free.emplace_back(at, end);
  for (const Interval& one : free) {
    entry.taken[one.first] = one.second;
    entry.owned[rank].push_back(one);
  }
}

bool is_counted(const UpdateSpan& span) {
  return span.gradient.elements() > 0 && !span.parameter->sign_rate;
}

// The name of the parameter, from its copy_key().
std::string name_in_key(const std::string& key) { return key.substr(0, key.find('@')); }

}  // namespace

GradientSquares::GradientSquares(const std::vector<UpdateSpan>& spans, std::int64_t block,
                                 Mesh& mesh, const ComputeContext& compute)
    : block_(block),
      ranks_(&mesh.group(kAllAxes)),
      kernels_(&compute.kernels),
      device_(&compute.device),
      arena_(&compute.arena) {
  PITON_ASSERT(block > 0);
  std::vector<HeldRun> mine;
  for (const UpdateSpan& span : spans) {
    if (!is_counted(span)) continue;
    const std::int64_t size = span.gradient.elements();
    mine.push_back({copy_key(*span.parameter, mesh), span.parameter->elements(), span.offset,
                    span.offset + size});
  }
  const std::vector<std::string> all = ranks_->gather_bytes(encode(mine));
  std::map<std::string, NormEntry> entries;  // in the order of names
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    for (const HeldRun& held : decode(all[rank])) {
      NormEntry& entry = entries[held.key];
      if (entry.elements == 0) entry.elements = held.elements;
      PITON_ASSERT(entry.elements == held.elements, "{}: ranks disagree about its size", held.key);
      claim(entry, rank, held.begin, held.end);
    }
  }
  std::int64_t blocks = 0;
  for (auto& [key, entry] : entries) {
    entry.first_block = blocks;
    names_.emplace_back(name_in_key(key), blocks);
    blocks += (entry.elements + block_ - 1) / block_;
    std::int64_t counted = 0;
    for (const auto& [begin, end] : entry.taken) counted += end - begin;
    PITON_ASSERT(!ranks_->real() || counted == entry.elements,
                 "{}: {} of its {} elements are updated", key, counted, entry.elements);
  }
  if (blocks == 0) return;
  sums_ = arena_->allocate(DType::kF64, {blocks}, MemoryKind::kOptimizer, compute.stream);
  device_->zero(sums_, compute.stream);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const UpdateSpan& span = spans[i];
    if (!is_counted(span)) continue;
    const NormEntry& entry = entries.at(copy_key(*span.parameter, mesh));
    const auto owned = entry.owned.find(ranks_->rank());
    if (owned == entry.owned.end()) continue;
    for (const auto& [begin, end] : owned->second) {
      const std::int64_t from = std::max(begin, span.offset);
      const std::int64_t to = std::min(end, span.offset + span.gradient.elements());
      if (from < to) add_parts(span, i, from, to, entry.first_block);
    }
  }
}

// Adds elements [begin, end) of the parameter: one part up to the next block boundary, if `begin`
// is inside a block, and one part for all blocks after it.
void GradientSquares::add_parts(const UpdateSpan& span, std::size_t index, std::int64_t begin,
                                std::int64_t end, std::int64_t first_block) {
  while (begin < end) {
    const std::int64_t block = begin / block_;
    const bool at_edge = begin % block_ == 0;
    const std::int64_t stop = at_edge ? end : std::min(end, (block + 1) * block_);
    const std::int64_t blocks = (stop - begin + block_ - 1) / block_;
    parts_.push_back({span.gradient.slice(0, begin - span.offset, stop - begin),
                      sums_.slice(0, first_block + block, blocks), index, begin - span.offset});
    begin = stop;
  }
}

void GradientSquares::sum(Stream& stream) {
  // The all-reduce of the previous step also filled the entries of other ranks, which this rank
  // does not overwrite below.
  device_->zero(sums_, stream);
  std::vector<CallChain> chains;
  chains.reserve(parts_.size());
  for (const Part& part : parts_) {
    chains.push_back({SquareSums{.sums = part.sums, .x = part.gradient, .block = block_}});
  }
  kernels_->run_chains(chains, stream);
  const Event reduced = ranks_->all_reduce(sums_, Reduction::kSum, stream);
  arena_->hold(sums_, reduced.fence());
  stream.wait(reduced);
}

std::vector<std::string> GradientSquares::names_not_finite(Stream& stream) const {
  std::vector<std::string> names;
  if (!sums_.defined()) return names;
  std::vector<double> sums(static_cast<std::size_t>(sums_.elements()));
  device_->download(sums_, sums.data(), stream);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const auto& [name, first] = names_[i];
    const std::int64_t end = i + 1 < names_.size() ? names_[i + 1].second : sums_.elements();
    const bool finite = std::all_of(sums.begin() + first, sums.begin() + end,
                                    [](double sum) { return std::isfinite(sum); });
    if (!finite && (names.empty() || names.back() != name)) names.push_back(name);
  }
  return names;
}

}  // namespace piton
