// Weights of stage 3: gathered around each use from the ranks' shards, and prefetched.
//
// The first step that begin_step() opens is recorded: which parameters are used, in which order.
// From then on, each use starts the gathers of the kPrefetchDepth uses after it, so that they
// travel while compute works. Every data rank runs the same program, so all start the same gathers
// in the same order. A use that is not the recorded one (evaluation, another schedule) finds the
// record's next such use, or gathers by itself.
//
// Gathered rows and what is packed from them live until the last lease is released and no use
// within the window wants them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/weight.h"
#include "parallel/flat_layout.h"
#include "parallel/flat_values.h"

namespace piton {

class GatheredWeights {
 public:
  static constexpr std::size_t kPrefetchDepth = 2;

  // Layouts have a shard for each rank of `data`; all outlive this.
  GatheredWeights(std::vector<const FlatLayout*> layouts, std::vector<const ShardValues*> values,
                  Communicator& data, Kernels& kernels, Arena& arena);

  void begin_step();
  void end_step();  // what follows is neither recorded nor prefetched
  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream);
  // Whole rows apart from the cache; `stream` has waited for them.
  Tensor gather_now(Parameter& parameter, Stream& stream);
  // Values have changed: what is gathered is stale. Asserts that nothing is in use.
  void invalidate();

 private:
  struct Gathered {
    Tensor rows;
    Event ready;
    int leases = 0;
    bool awaited = false;
    std::map<WeightForm, Tensor> packed;
  };
  struct Place {
    const FlatLayout* layout = nullptr;
    const ShardValues* values = nullptr;
    FlatEntry entry;
  };
  Gathered& gathered(Parameter& parameter, Stream& stream);
  Tensor start_gather(Parameter& parameter, Event& ready, Stream& stream);
  void follow_record(Parameter& parameter);
  void prefetch(Stream& stream);
  bool in_window(const Parameter& parameter) const;
  void release(Parameter& parameter, Stream& stream);
  WeightView view(Parameter& parameter, Gathered& one, WeightForm form, Stream& stream);

  Communicator& data_;
  Kernels& kernels_;
  Arena& arena_;
  std::map<const Parameter*, Place> places_;
  std::map<Parameter*, Gathered> gathered_;
  enum class Recording : std::uint8_t { kNotYet, kNow, kDone } recording_ = Recording::kNotYet;
  std::vector<Parameter*> record_;
  std::size_t next_ = 0;  // position in record_ behind the latest use
};

}  // namespace piton
