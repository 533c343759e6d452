#include "train/run/batch_sizes.h"

#include <algorithm>

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {

BatchSizes::BatchSizes(std::int64_t whole, const std::vector<std::int64_t>& ramp,
                       std::int64_t share)
    : whole_(whole) {
  if (ramp.size() != 3) {
    throw Error(Fault::kUsage,
                "--rampup-batch-size: got {} numbers, wanted 3: the first batch, the increment and "
                "the samples of the ramp-up",
                ramp.size());
  }
  start_ = ramp[0];
  increment_ = ramp[1];
  ramp_samples_ = ramp[2];
  check_range("--rampup-batch-size: the first batch", start_, 1, whole - 1);
  check_range("--rampup-batch-size: the increment", increment_, 1, whole - start_);
  check_range("--rampup-batch-size: the samples of the ramp-up", ramp_samples_, 1);
  if ((whole - start_) % increment_ != 0) {
    throw Error(Fault::kUsage,
                "--rampup-batch-size: increments of {} lead from {} past --global-batch-size {}; "
                "wanted a divisor of {}",
                increment_, start_, whole, whole - start_);
  }
  if (start_ % share != 0 || increment_ % share != 0) {
    throw Error(Fault::kUsage,
                "--rampup-batch-size: got batches of {} and {} more, wanted multiples of {} "
                "(--micro-batch-size x data-parallel ranks)",
                start_, increment_, share);
  }
  const std::int64_t increments = (whole - start_) / increment_;
  increment_samples_ = static_cast<double>(ramp_samples_) / static_cast<double>(increments);
}

std::int64_t BatchSizes::at(std::int64_t consumed) const {
  if (ramp_samples_ == 0 || consumed > ramp_samples_) return whole_;
  const auto increments =
      static_cast<std::int64_t>(static_cast<double>(consumed) / increment_samples_);
  return start_ + increments * increment_;
}

std::vector<std::int64_t> BatchSizes::all() const {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = start_; grows() && size < whole_; size += increment_) {
    sizes.push_back(size);
  }
  sizes.push_back(whole_);
  return sizes;
}

std::int64_t BatchSizes::updates(std::int64_t samples) const {
  std::int64_t updates = 0;
  std::int64_t consumed = 0;
  const std::int64_t end = std::min(ramp_samples_ + 1, samples);
  while (grows() && consumed < end) {
    const std::int64_t batch = at(consumed);
    // Well before the next increment many updates are alike.
    const double next =
        (static_cast<double>((batch - start_) / increment_) + 1) * increment_samples_;
    const double room = std::min(next, static_cast<double>(end)) - static_cast<double>(consumed);
    const std::int64_t alike =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(room) / batch - 1);
    consumed += alike * batch;
    updates += alike;
  }
  return samples > consumed ? updates + (samples - consumed) / whole_ : updates;
}

}  // namespace piton
