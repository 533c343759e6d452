// Weights of ZeRO stage 3: gathered from the parts of all ranks around each use, and prefetched.
//
// The first step, from begin_step() to end_step(), records which units are used, in which order. In
// later steps each use starts the gathers for the next kPrefetchDepth uses, so that they overlap
// with compute. Every rank of a group runs the same program, so all start the same gathers in the
// same order. If a use differs from the record (evaluation, another schedule), the position in the
// record moves to the next use of that unit. If there is none, the position does not move, and the
// unit is gathered when it is used.
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

  // Units and this rank's parts of their values. Both must outlive this object.
  struct Source {
    const std::vector<ShardUnit>* units = nullptr;
    const ShardValues* values = nullptr;
  };
  GatheredWeights(const std::vector<Source>& sources, Kernels& kernels, Arena& arena);

  void begin_step();
  void end_step();  // uses after this are neither recorded nor prefetched
  // The whole weight in the given form; `stream` waits for it. It stays gathered at least as long
  // as the WeightUse exists.
  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream);
  // All local rows in the local shape of the parameter, gathered without the cache. `stream` waits
  // for them.
  Tensor gather_now(Parameter& parameter, Stream& stream);
  // Frees all gathered values. To be called when values change. Asserts that none is in use.
  void invalidate();

 private:
  struct Place {
    const ShardUnit* unit = nullptr;
    const Tensor* own = nullptr;  // this rank's part, [part size]
    UnitEntry entry;
  };
  struct Gathered {
    Tensor values;  // [unit size]
    Event ready;
    const Stream* user = nullptr;  // the stream that `values` was allocated for
    int leases = 0;                // WeightUses that hold it
  };
  Gathered& gathered(const Place& place, Stream& stream);
  Tensor start_gather(const Place& place, Event& ready, Stream& stream);
  // values: [unit size]. Returns the parameter's rows in its local shape.
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
