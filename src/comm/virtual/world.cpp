#include "comm/virtual/world.h"

#include <algorithm>

namespace piton {
namespace {

class Done final : public Fence {
 public:
  bool complete() const override { return true; }
  void wait() override {}
};

class VirtualCommunicator final : public Communicator {
 public:
  VirtualCommunicator(int rank, int size, std::string name, TrafficCounts* total)
      : rank_(rank), size_(size), name_(std::move(name)), total_(total) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return name_; }
  bool real() const override { return false; }

  // Bytes sent by one member of a ring.
  Event all_reduce(const Tensor& data, Reduction, const After& after) override {
    return count(after, &TrafficCounts::all_reduce_bytes, 2 * data.bytes() * (size_ - 1) / size_);
  }
  Event all_gather(const Tensor& out, const Tensor&, const After& after) override {
    return count(after, &TrafficCounts::all_gather_bytes, out.bytes() * (size_ - 1) / size_);
  }
  Event reduce_scatter(const Tensor&, const Tensor& all, const After& after) override {
    return count(after, &TrafficCounts::reduce_scatter_bytes, all.bytes() * (size_ - 1) / size_);
  }
  Event broadcast(const Tensor& data, int, const After& after) override {
    return count(after, &TrafficCounts::broadcast_bytes, data.bytes());
  }
  Event send(const Tensor& data, int, int, Stream& after) override {
    return count(after, &TrafficCounts::point_to_point_bytes, data.bytes());
  }
  Event receive(const Tensor&, int, int, Stream& after) override { return reached(after); }

  std::vector<std::string> gather_bytes(const std::string& mine) override {
    return std::vector<std::string>(static_cast<std::size_t>(size_), mine);
  }
  void barrier() override {}
  std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t bytes) override {
    throw Error(
        Fault::kUsage,
        "virtual ranks: {} bytes of symmetric memory cannot be shared with ranks that do not exist",
        bytes);
  }
  TrafficCounts traffic() const override { return own_; }

 private:
  // Complete when all work in `after` is. The event always has a fence, like that of a real
  // collective, so that the arena makes the same decisions.
  static Event reached(const After& after) {
    for (const Event& event : after.events) after.stream.wait(event);
    Event event = after.stream.record();
    return event.fence() ? event : Event(std::make_shared<Done>());
  }

  Event count(const After& after, std::int64_t TrafficCounts::*kind, std::int64_t bytes) {
    for (TrafficCounts* counts : {&own_, total_}) {
      counts->*kind += bytes;
      counts->collectives += 1;
    }
    return reached(after);
  }

  int rank_;
  int size_;
  std::string name_;
  TrafficCounts own_;
  TrafficCounts* total_;
};

class VirtualWorld final : public World {
 public:
  VirtualWorld(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int host_rank() const override { return rank_; }
  int host_size() const override { return size_; }

  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override {
    const auto self = std::find(ranks.begin(), ranks.end(), rank_);
    PITON_ASSERT(self != ranks.end(), "rank {} is not in group {}", rank_, name);
    return std::make_unique<VirtualCommunicator>(static_cast<int>(self - ranks.begin()),
                                                 static_cast<int>(ranks.size()), name, &traffic_);
  }

  [[noreturn]] void abort(int code) override {
    throw Error(Fault::kPeer, "virtual ranks: ended with code {}", code);
  }
  TrafficCounts traffic() const override { return traffic_; }

 private:
  int rank_;
  int size_;
  TrafficCounts traffic_;
};

}  // namespace

std::unique_ptr<World> make_virtual_world(int rank, int size) {
  return std::make_unique<VirtualWorld>(rank, size);
}

}  // namespace piton
