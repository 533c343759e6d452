#include "ops/linear/shared_rows.h"

#include <algorithm>

namespace piton {
namespace {

constexpr int kCounters = 64;  // of a member
constexpr int kSigns = 3;
constexpr int kTilesOfMember = 8;  // at most, of its share of the rows

std::vector<RowRange> tiles_of(const Context& context, std::int64_t rows) {
  return cut_rows(rows, kTilesOfMember, context.kernels.row_tile());
}

std::int64_t row_bytes(const Tensor& tensor) { return tensor.dim(1) * size_bytes(tensor.dtype()); }

}  // namespace

SharedRows::SharedRows(Communicator& group, Device& device, std::int64_t bytes)
    : group_(group), rank_(group.rank()), size_(group.size()), bytes_(bytes) {
  const DeviceKind kind = device.place().kind;
  if (kind != DeviceKind::kHost && kind != DeviceKind::kMeta) {
    throw Error(Fault::kUsage,
                "--fused-linears: {} has no memory that other ranks can read; leave the flag out",
                device.name());
  }
  if (size_ * kSigns > kCounters) {
    throw Error(Fault::kUsage,
                "--fused-linears: {} tensor ranks, wanted at most {}; leave the flag out", size_,
                kCounters / kSigns);
  }
  memory_ = group.allocate_symmetric(bytes);
  for (int member = 0; member < size_; ++member) {
    if (memory_->peer(member).defined()) continue;
    throw Error(Fault::kUsage,
                "--fused-linears: the tensor ranks are on several hosts and share no memory; start "
                "them on one host, or leave the flag out (--num-slices overlaps between hosts)");
  }
  waited_.assign(static_cast<std::size_t>(size_ * kSigns), 0);
}

void SharedRows::signal(int member, Sign sign, std::int64_t bytes) {
  memory_->signal(member, slot(sign, rank_), bytes);
}

void SharedRows::wait(int member, Sign sign) {
  const int counter = slot(sign, member);
  memory_->wait(counter, ++waited_[static_cast<std::size_t>(counter)]);
}

// Waits until no other member reads this buffer.
void SharedRows::begin(Context& context) {
  context.stream.synchronize();
  for (int member = 0; member < size_ && shown_; ++member) {
    if (!is_own(member)) wait(member, Sign::kReleased);
  }
  shown_ = true;
}

void SharedRows::release_all() {
  for (int member = 0; member < size_; ++member) {
    if (!is_own(member)) signal(member, Sign::kReleased);
  }
}

Tensor SharedRows::at(int member, DType dtype, const Shape& shape) const {
  const Tensor buffer = is_own(member) ? memory_->mine() : memory_->peer(member);
  return Tensor(buffer.storage(), 0, dtype, shape);
}

void SharedRows::gather(Context& context, const Tensor& mine, const Tensor& all, const Tile& use) {
  const std::int64_t rows = mine.dim(0);
  const std::vector<RowRange> tiles = tiles_of(context, rows);
  begin(context);
  const Tensor shown = at(rank_, mine.dtype(), mine.shape());
  for (const RowRange& tile : tiles) {
    context.kernels.run(Copy{.dst = shown.slice(0, tile.begin, tile.size),
                             .src = mine.slice(0, tile.begin, tile.size)},
                        context.stream);
    context.stream.synchronize();
    for (int k = 1; k < size_; ++k) {
      signal((rank_ + k) % size_, Sign::kReady, tile.size * row_bytes(mine));
    }
  }
  for (int k = 0; k < size_; ++k) {
    const int member = (rank_ + k) % size_;
    const Tensor theirs = k == 0 ? mine : at(member, mine.dtype(), mine.shape());
    for (const RowRange& tile : tiles) {
      if (k > 0) wait(member, Sign::kReady);
      Tensor part = theirs.slice(0, tile.begin, tile.size);
      const RowRange place{member * rows + tile.begin, tile.size};
      if (all.defined()) {
        const Tensor copy = all.slice(0, place.begin, place.size);
        context.kernels.run(Copy{.dst = copy, .src = part}, context.stream);
        part = copy;
      }
      use(place, part);
    }
    context.stream.synchronize();
    if (k > 0) signal(member, Sign::kReleased);
  }
  const std::int64_t sent = mine.bytes() * (size_ - 1);
  group_.count({.all_gather_bytes = sent, .received_bytes = sent, .collectives = 1});
}

// out = the sum of the rows `tile` of every member's [n, w]; `whole`: this member's.
void SharedRows::sum_own_tile(const Tensor& whole, const RowRange& tile, const Tensor& out) {
  for (int k = 1; k < size_; ++k) wait((rank_ + size_ - k) % size_, Sign::kReady);
  memory_->sum(out, tile.begin * row_bytes(whole));
}

void SharedRows::reduce_scatter(Context& context, const Tile& compute, const Tensor& mine) {
  const std::int64_t rows = mine.dim(0);
  begin(context);
  const Tensor shown = at(rank_, mine.dtype(), {rows * size_, mine.dim(1)});
  for (int k = 1; k <= size_; ++k) {
    const int owner = (rank_ + k) % size_;
    for (const RowRange& tile : tiles_of(context, rows)) {
      const RowRange place{owner * rows + tile.begin, tile.size};
      compute(place, shown.slice(0, place.begin, place.size));
      context.stream.synchronize();
      if (is_own(owner)) {
        sum_own_tile(shown, place, mine.slice(0, tile.begin, tile.size));
      } else {
        signal(owner, Sign::kReady, tile.size * row_bytes(mine));
      }
    }
  }
  release_all();
  const std::int64_t sent = mine.bytes() * (size_ - 1);
  group_.count({.reduce_scatter_bytes = sent, .received_bytes = sent, .collectives = 1});
}

void SharedRows::all_reduce(Context& context, const Tile& compute, const Tensor& data) {
  begin(context);
  const Tensor shown = at(rank_, data.dtype(), data.shape());
  // Member o sums the tiles o, o + t, ...: all members have as many, but for the last ones.
  const std::vector<RowRange> tiles =
      cut_rows(data.dim(0), std::int64_t{kTilesOfMember} * size_, context.kernels.row_tile());
  const int count = static_cast<int>(tiles.size());
  std::int64_t own_bytes = 0;
  for (int round = 0; round < count; round += size_) {
    for (int k = 1; k <= size_; ++k) {
      const int owner = (rank_ + k) % size_;
      if (round + owner >= count) continue;
      const RowRange& tile = tiles[static_cast<std::size_t>(round + owner)];
      compute(tile, shown.slice(0, tile.begin, tile.size));
      context.stream.synchronize();
      const std::int64_t bytes = tile.size * row_bytes(data);
      if (!is_own(owner)) {
        signal(owner, Sign::kReady, bytes);
        continue;
      }
      // In place: no other member reads this product, and all read the sum.
      sum_own_tile(shown, tile, shown.slice(0, tile.begin, tile.size));
      own_bytes += bytes;
      for (int m = 1; m < size_; ++m) signal((rank_ + m) % size_, Sign::kSummed, bytes);
    }
  }
  for (int k = 0; k < size_; ++k) {
    const int owner = (rank_ + k) % size_;
    const Tensor theirs = at(owner, data.dtype(), data.shape());
    for (int i = owner; i < count; i += size_) {
      const RowRange& tile = tiles[static_cast<std::size_t>(i)];
      if (!is_own(owner)) wait(owner, Sign::kSummed);
      context.kernels.run(Copy{.dst = data.slice(0, tile.begin, tile.size),
                               .src = theirs.slice(0, tile.begin, tile.size)},
                          context.stream);
    }
  }
  context.stream.synchronize();
  release_all();
  const std::int64_t sent = data.bytes() - own_bytes + own_bytes * (size_ - 1);
  group_.count({.all_reduce_bytes = sent, .received_bytes = sent, .collectives = 1});
}

}  // namespace piton
