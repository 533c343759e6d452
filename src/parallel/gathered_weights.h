// Weights of ZeRO stage 3: gathered from the parts of all ranks around each use, and prefetched.
//
// The first step after begin_step() records which units are used, in which order. In later steps
// each use starts the gathers for the next kPrefetchDepth uses, so that they run beside compute.
// Every rank of a group runs the same program, so all start the same gathers in the same order. If
// a use is not the one that was recorded (evaluation, another schedule), the position in the record
// moves to the next use of that unit; if there is none, the position stays and the use gathers.
//
// Gathered values, and weights packed from them, are freed when no WeightUse holds them and none of
// the next kPrefetchDepth uses needs them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/weight.h"
#include "parallel/shard_units.h"
#include "parallel/unit_values.h"

namespace piton {

class GatheredWeights {
 public:
  static constexpr std::size_t kPrefetchDepth = 2;

  // Units and where this rank's parts of them are; all outlive this.
  struct Source {
    const std::vector<ShardUnit>* units = nullptr;
    const ShardValues* values = nullptr;
  };
  GatheredWeights(const std::vector<Source>& sources, Kernels& kernels, Arena& arena);

  void begin_step();
  void end_step();  // what follows is neither recorded nor prefetched
  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream);
  // Whole rows apart from the cache; `stream` waits for them.
  Tensor gather_now(Parameter& parameter, Stream& stream);
  // Values have changed: what is gathered is stale. Asserts that nothing is in use.
  void invalidate();

 private:
  struct Place {
    const ShardUnit* unit = nullptr;
    const Tensor* own = nullptr;  // this rank's part
    UnitEntry entry;
  };
  struct Gathered {
    Tensor values;  // [unit size]
    Event ready;
    const Stream* user = nullptr;  // in whose order its memory is used
    int leases = 0;
  };
  Gathered& gathered(const Place& place, Stream& stream);
  Tensor start_gather(const Place& place, Event& ready, Stream& stream);
  static Tensor rows(const Place& place, const Tensor& values);
  void follow_record(const Place& place);
  void prefetch(Stream& stream);
  bool in_window(const ShardUnit* unit) const;
  void release(const ShardUnit* unit, Stream& stream);
  void drop(std::map<const ShardUnit*, Gathered>::iterator one, Stream& stream);

  Arena& arena_;
  PackedForms forms_;
  std::map<const Parameter*, Place> places_;
  std::map<const ShardUnit*, Gathered> gathered_;
  enum class Recording : std::uint8_t { kNotYet, kNow, kDone } recording_ = Recording::kNotYet;
  std::vector<const Place*> record_;
  std::size_t next_ = 0;  // position in record_ after the latest use
};

}  // namespace piton
