// Parameter values in flat buffers, one for each dtype: whole (stages 0 to 2), or this rank's shard
// alone (stage 3). A buffer keeps the order of the layout; with one dtype its positions are the
// layout's.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "parallel/flat_layout.h"

namespace piton {

// All ranks hold all rows; Parameter::value is a view.
class WholeValues {
 public:
  // Allocates (kParameters), zeroes, and sets Parameter::value of every entry.
  WholeValues(const FlatLayout& layout, Device& device, Arena& arena, Stream& stream);

  Tensor part(const FlatSpan& span) const;  // [size]
  // Each rank's shard to all ranks; `stream` has waited when it returns.
  void gather_shards(Communicator& data, Arena& arena, Stream& stream);

 private:
  struct Buffer {
    Tensor flat;
    std::vector<std::int64_t> cuts;  // of the shards in this buffer
  };
  std::map<DType, Buffer> buffers_;
};

// This rank holds its shard.
class ShardValues {
 public:
  ShardValues(const FlatLayout& layout, int rank, Device& device, Arena& arena, Stream& stream);

  // The run of `parameter` that lies in this shard, [size]; undefined if none does.
  Tensor own(const Parameter& parameter) const;
  std::int64_t own_offset(const Parameter& parameter) const;  // of its first element

 private:
  struct Own {
    Tensor values;
    std::int64_t offset = 0;
  };
  std::map<const Parameter*, Own> own_;
};

}  // namespace piton
