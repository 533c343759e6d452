#include "data/samples/packed_samples.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "data/samples/instruction_dataset.h"
#include "data/samples/numpy_random.h"

namespace piton {
namespace {

// 64 GiB of members are a mistake in the request.
constexpr std::int64_t kMostMembers = std::int64_t{1} << 34;

// Appends the first `length` tokens of `part` to `window`, as segments from `segment` on. Returns
// the next segment.
std::int32_t append(const Sample& part, std::int32_t segment, Sample& window) {
  const auto add = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
    to.insert(to.end(), from.begin(), from.begin() + part.length);
  };
  add(part.tokens, window.tokens);
  add(part.labels, window.labels);
  add(part.positions, window.positions);
  for (const Answer& answer : part.answers) {
    window.answers.push_back(
        {answer.role, answer.begin + window.length, answer.end + window.length});
  }
  window.length += part.length;
  if (part.segments.empty()) {
    window.segments.resize(window.tokens.size(), segment);
    return segment + 1;
  }
  std::int32_t last = segment;
  for (std::int64_t i = 0; i < part.length; ++i) {
    const std::int32_t own = part.segments[static_cast<std::size_t>(i)];
    window.segments.push_back(own == kPaddingSegment ? own : segment + own);
    last = std::max(last, window.segments.back());
  }
  return last + 1;
}

}  // namespace

PackedSamples::PackedSamples(std::shared_ptr<const SampleSource> samples,
                             const PackRequest& request)
    : samples_(std::move(samples)), pad_(request.pad), starts_{0} {
  const std::int64_t count = samples_->size();
  PITON_ASSERT(count > 0 && count <= std::numeric_limits<std::int32_t>::max(), "{} samples", count);
  NumpyRandom random(request.seed);
  for (std::int64_t epoch = 0;; ++epoch) {
    const bool enough = request.epochs ? epoch >= *request.epochs
                                       : epoch > 0 && size() >= request.windows.value_or(1);
    if (enough) break;
    if (static_cast<std::int64_t>(members_.size()) > kMostMembers - count) {
      throw Error(Fault::kUsage,
                  "--pack: {} epochs of {} samples; at most {} samples are packed; train for fewer "
                  "steps",
                  epoch + 1, count, kMostMembers);
    }
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    if (request.shuffle) random.shuffle(std::span(numbers));
    const std::size_t first = order_.size();
    pack_epoch(std::move(numbers), !request.shuffle);
    if (request.shuffle) random.shuffle(std::span(order_).subspan(first));
  }
  if (request.full_shuffle) random.shuffle(std::span(order_));
}

void PackedSamples::pack_epoch(std::vector<std::int32_t> samples, bool sort_windows) {
  std::stable_sort(samples.begin(), samples.end(), [&](std::int32_t a, std::int32_t b) {
    return samples_->longest(a) > samples_->longest(b);
  });
  std::vector<std::vector<std::int32_t>> windows;
  std::multimap<std::int64_t, std::size_t> room;  // tokens that are free -> window
  for (const std::int32_t sample : samples) {
    const std::int64_t length = samples_->longest(sample);
    auto best = room.lower_bound(length);
    if (best == room.end()) {
      windows.emplace_back();
      best = room.emplace(sequence(), windows.size() - 1);
    }
    const auto [free, window] = *best;
    room.erase(best);
    windows[window].push_back(sample);
    if (free > length) room.emplace(free - length, window);
  }
  if (sort_windows) {
    for (std::vector<std::int32_t>& window : windows) std::sort(window.begin(), window.end());
    std::sort(windows.begin(), windows.end());
  }
  for (const std::vector<std::int32_t>& window : windows) {
    order_.push_back(static_cast<std::int64_t>(order_.size()));
    members_.insert(members_.end(), window.begin(), window.end());
    starts_.push_back(static_cast<std::int64_t>(members_.size()));
  }
}

std::span<const std::int32_t> PackedSamples::members(std::int64_t index) const {
  PITON_ASSERT(index >= 0 && index < size(), "window {} of {}", index, size());
  const auto window = static_cast<std::size_t>(order_[static_cast<std::size_t>(index)]);
  const auto first = static_cast<std::size_t>(starts_[window]);
  return std::span(members_).subspan(first, static_cast<std::size_t>(starts_[window + 1]) - first);
}

std::int64_t PackedSamples::longest(std::int64_t index) const {
  std::int64_t length = 0;
  for (const std::int32_t sample : members(index)) length += samples_->longest(sample);
  return length;
}

void PackedSamples::announce(std::int64_t index) const {
  for (const std::int32_t sample : members(index)) samples_->announce(sample);
}

void PackedSamples::sample(std::int64_t index, Sample& window) const {
  for (auto* list : {&window.tokens, &window.labels, &window.positions, &window.segments}) {
    list->clear();
  }
  window.answers.clear();
  window.length = 0;
  Sample part;
  std::int32_t segment = 0;
  for (const std::int32_t sample : members(index)) {
    samples_->sample(sample, part);
    segment = append(part, segment, window);
  }
  pad_sample(pad_, sequence(), window);
}

}  // namespace piton
