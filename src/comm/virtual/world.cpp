#include "comm/virtual/world.h"

#include <algorithm>

#include "comm/virtual/symmetric.h"

namespace piton {
namespace {

class Done final : public Fence {
 public:
  bool complete() const override { return true; }
  void wait() override {}
};

class VirtualCommunicator final : public Communicator {
 public:
  VirtualCommunicator(const VirtualGroup& group, std::string name, TrafficCounts* total)
      : group_(group), size_(group.size), name_(std::move(name)), total_(total) {}

  int rank() const override { return group_.rank; }
  int size() const override { return size_; }
  std::string name() const override { return name_; }
  bool real() const override { return false; }

  // Bytes sent by one member of a ring, in as many steps as it has other members.
  Event all_reduce(const Tensor& data, Reduction, const After& after) override {
    const std::int64_t bytes = 2 * data.bytes() * (size_ - 1) / size_;
    return sent({.all_reduce_bytes = bytes, .collectives = 1}, after, bytes, 2 * (size_ - 1));
  }
  Event all_gather(const Tensor& out, const Tensor&, const After& after) override {
    const std::int64_t bytes = out.bytes() * (size_ - 1) / size_;
    return sent({.all_gather_bytes = bytes, .collectives = 1}, after, bytes, size_ - 1);
  }
  Event reduce_scatter(const Tensor&, const Tensor& all, const After& after) override {
    const std::int64_t bytes = all.bytes() * (size_ - 1) / size_;
    return sent({.reduce_scatter_bytes = bytes, .collectives = 1}, after, bytes, size_ - 1);
  }
  Event all_to_all(const Tensor& out, const Tensor&, const After& after) override {
    const std::int64_t bytes = out.bytes() * (size_ - 1) / size_;
    return sent({.all_to_all_bytes = bytes, .collectives = 1}, after, bytes, size_ - 1);
  }
  Event all_to_all_rows(const Tensor& out, const Tensor& mine, const RowCounts& counts,
                        const After& after) override {
    check_rows(*this, out, mine, counts);
    TrafficCounts moved = traffic_of_rows(*this, counts, out.dim(1) * size_bytes(out.dtype()));
    moved.received_bytes = 0;  // of no kind here
    return sent(moved, after, moved.all_to_all_bytes, size_ - 1);
  }
  Event broadcast(const Tensor& data, int, const After& after) override {
    return sent({.broadcast_bytes = data.bytes(), .collectives = 1}, after, data.bytes(), 1);
  }
  Event send(const Tensor& data, int, int, Stream& after) override {
    return sent({.point_to_point_bytes = data.bytes(), .collectives = 1}, after, data.bytes(), 1);
  }
  Event receive(const Tensor& data, int, int, Stream& after) override {
    return reached(after, data.bytes(), 1);
  }

  std::vector<std::string> gather_bytes(const std::string& mine) override {
    return std::vector<std::string>(static_cast<std::size_t>(size_), mine);
  }
  void barrier() override {}
  std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t bytes) override {
    return std::make_unique<VirtualSymmetricMemory>(group_, bytes);
  }
  void count(const TrafficCounts& carried) override {
    own_ += carried;
    *total_ += carried;
  }
  TrafficCounts traffic() const override { return own_; }

 private:
  // Complete when all work in `after` is, and then `bytes` in `messages` are transferred. The event
  // always has a fence, like that of a real collective, so that the arena makes the same decisions.
  Event reached(const After& after, std::int64_t bytes, int messages) {
    if (group_.clock != nullptr && size_ > 1) {
      LinkClock::Time ready = group_.clock->now();  // the work of a host's stream is done
      for (const Event& event : after.events) {
        if (const auto* timed = dynamic_cast<const TimedFence*>(event.fence().get())) {
          ready = std::max(ready, timed->end());
        }
      }
      return Event(std::make_shared<TimedFence>(
          *group_.clock,
          group_.clock->transfer(group_.link, static_cast<double>(bytes), messages, ready)));
    }
    for (const Event& event : after.events) after.stream.wait(event);
    Event event = after.stream.record();
    return event.fence() ? event : Event(std::make_shared<Done>());
  }

  Event sent(const TrafficCounts& counts, const After& after, std::int64_t bytes, int messages) {
    count(counts);
    return reached(after, bytes, messages);
  }

  VirtualGroup group_;
  int size_;
  std::string name_;
  TrafficCounts own_;
  TrafficCounts* total_;
};

class VirtualWorld final : public World {
 public:
  VirtualWorld(int rank, int size, LinkClock* clock) : rank_(rank), size_(size), clock_(clock) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int host_rank() const override { return rank_; }
  int host_size() const override { return size_; }

  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override {
    const auto self = std::find(ranks.begin(), ranks.end(), rank_);
    PITON_ASSERT(self != ranks.end(), "rank {} is not in group {}", rank_, name);
    VirtualGroup group{.rank = static_cast<int>(self - ranks.begin()),
                       .size = static_cast<int>(ranks.size()),
                       .clock = clock_};
    if (clock_ != nullptr) {
      const int share = clock_->links().ranks_of_host;
      if (ranks.front() / share != ranks.back() / share) group.link = LinkClass::kBetweenHosts;
    }
    return std::make_unique<VirtualCommunicator>(group, name, &traffic_);
  }

  [[noreturn]] void abort(int code) override {
    throw Error(Fault::kPeer, "virtual ranks: ended with code {}", code);
  }
  TrafficCounts traffic() const override { return traffic_; }

 private:
  int rank_;
  int size_;
  LinkClock* clock_;
  TrafficCounts traffic_;
};

}  // namespace

std::unique_ptr<World> make_virtual_world(int rank, int size, LinkClock* clock) {
  return std::make_unique<VirtualWorld>(rank, size, clock);
}

}  // namespace piton
