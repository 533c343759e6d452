// Packs whole samples into windows of s tokens, so that little is padding. Each sample is a segment
// with its own positions: in a window it teaches what it teaches alone.
//
// Best fit, decreasing (Johnson 1973): an epoch's samples, the longest first, each go to the window
// with the least room that has enough for them, or to a new one. Before, the samples are shuffled,
// so that those of one length meet others in each epoch; afterwards the windows are. All shuffles
// come from one numpy RandomState(seed). Without shuffling, windows are in the order of their first
// samples. So the windows depend on the samples, the seed and s alone, not on ranks and batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/samples/sample_source.h"

namespace piton {

struct PackRequest {
  std::optional<std::int64_t> windows = {};  // wanted; absent: one epoch
  std::optional<std::int64_t> epochs = {};   // exactly this many; `windows` is then ignored
  std::uint32_t seed = 1234;
  bool shuffle = true;
  bool full_shuffle = false;  // the windows of all epochs once more
  std::int32_t pad = 0;
};

class PackedSamples final : public SampleSource {
 public:
  // Packs samples by longest(): each of `samples` is read once an epoch. Throws Error(kUsage) for
  // more windows than fit into memory. Asserts that there are samples.
  PackedSamples(std::shared_ptr<const SampleSource> samples, const PackRequest& request);

  std::int64_t size() const override { return static_cast<std::int64_t>(order_.size()); }
  std::int64_t sequence() const override { return samples_->sequence(); }
  void sample(std::int64_t index, Sample& window) const override;
  std::int64_t longest(std::int64_t index) const override;
  void announce(std::int64_t index) const override;

  // How many times each sample is read. All epochs have as many windows.
  std::int64_t epochs() const {
    return static_cast<std::int64_t>(members_.size()) / samples_->size();
  }

  // The samples of window `index`, in their order in it.
  std::span<const std::int32_t> members(std::int64_t index) const;

 private:
  void pack_epoch(std::vector<std::int32_t> samples, bool sort_windows);

  std::shared_ptr<const SampleSource> samples_;
  std::int32_t pad_;
  std::vector<std::int32_t> members_;  // of all windows, one after the other
  std::vector<std::int64_t> starts_;   // [windows + 1] first member of each
  std::vector<std::int64_t> order_;    // [windows]
};

}  // namespace piton
