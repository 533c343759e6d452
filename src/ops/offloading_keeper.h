// Kept tensors that leave the device until their backward (device/offload_target.h).
//
//              time ->
//   forward    block 1   block 2   block 3     what block 1 kept is written while block 2 runs
//   backward   block 3   block 2   block 1     what block 1 needs is read while block 2 runs
//
// What leaves is whole storages of activations, so views of one buffer travel once. Small ones
// stay, and so does what is kept behind the last begin_block(): its backward comes first. The
// memory of a tensor is free when forward holds it no more and it is written.
//
// Which tensors move, and when, depends on the calls alone. Values come back with the same bits.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "device/offload_target.h"
#include "ops/kept.h"

namespace piton {

// The streams of the copies, one for each direction, which all tapes of a stage share.
class OffloadLanes {
 public:
  OffloadLanes(Arena& arena, OffloadTarget& target)
      : arena_(arena),
        target_(target),
        writes_(target.carrier().make_stream()),
        reads_(target.carrier().make_stream()) {}

 private:
  friend class OffloadingKeeper;
  Arena& arena_;  // of the device
  OffloadTarget& target_;
  std::unique_ptr<Stream> writes_;
  std::unique_ptr<Stream> reads_;
};

// The keeper of one tape.
class OffloadingKeeper final : public Keeper {
 public:
  static constexpr std::int64_t kSmallestBytes = std::int64_t{64} << 10;

  // `stream`: compute. Storages of fewer bytes than `smallest` stay, and so does what is kept from
  // layer number `layers` of a chunk on.
  OffloadingKeeper(OffloadLanes& lanes, Stream& stream, std::int64_t smallest = kSmallestBytes,
                   std::int64_t layers = std::numeric_limits<std::int64_t>::max())
      : lanes_(lanes), stream_(stream), smallest_(smallest), layers_(layers) {}

  std::shared_ptr<KeptTensor> keep(const Tensor& tensor) override;
  void begin_block(std::optional<std::int64_t> layer) override;

 private:
  class Moved;
  class View;
  void write(Moved& moved);
  void read(Moved& moved);
  void fetch(std::size_t block);

  OffloadLanes& lanes_;
  Stream& stream_;
  std::int64_t smallest_;
  std::int64_t layers_;
  bool stays_ = false;  // whatever is kept from now on
  std::map<const Storage*, std::weak_ptr<Moved>> known_;
  std::vector<std::vector<std::weak_ptr<Moved>>> blocks_{1};  // what each has kept; the last: open
  std::vector<bool> fetched_{false};                          // by block
};

}  // namespace piton
