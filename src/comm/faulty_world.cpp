#include "comm/faulty_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "comm/message_lanes.h"

namespace piton {

std::string to_string(const CollectiveName& name) {
  return fmt::format("{} number {} of group {}", name.kind, name.number, name.group);
}

// What the groups of a rank have done in a step.
struct FaultyWorld::Record {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, std::int64_t> counts;  // of a group and a kind
  std::vector<CollectiveName> seen;
  std::vector<CollectiveName> dropped;
  std::int64_t left_out = 0;

  // Counts the next collective. True if it is to be left out.
  bool drops(const std::string& group, const std::string& kind) {
    const std::lock_guard lock(mutex);
    seen.push_back({group, kind, counts[{group, kind}]++});
    const bool found = std::ranges::find(dropped, seen.back()) != dropped.end();
    left_out += found ? 1 : 0;
    return found;
  }
};

class FaultyWorld::Group final : public Communicator, public LanedMessages {
 public:
  Group(std::unique_ptr<Communicator> inner, Device& device, std::shared_ptr<Record> record)
      : inner_(std::move(inner)), device_(device), record_(std::move(record)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }
  bool real() const override { return inner_->real(); }
  int largest_tag() const override { return inner_->largest_tag(); }
  TrafficCounts traffic() const override { return inner_->traffic(); }
  void count(const TrafficCounts& carried) override { inner_->count(carried); }
  std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t bytes) override {
    return inner_->allocate_symmetric(bytes);
  }

  Event all_reduce(const Tensor& data, Reduction reduction, const After& after) override {
    if (!drops("all-reduce")) return inner_->all_reduce(data, reduction, after);
    return waited_for(after);
  }
  Event all_gather(const Tensor& out, const Tensor& mine, const After& after) override {
    if (!drops("all-gather")) return inner_->all_gather(out, mine, after);
    waited_for(after);
    return keep_own_part(out, mine, after.stream);
  }
  Event reduce_scatter(const Tensor& mine, const Tensor& all, const After& after) override {
    if (!drops("reduce-scatter")) return inner_->reduce_scatter(mine, all, after);
    waited_for(after);
    const Tensor own = part(all, rank());
    if (own.raw() != mine.raw() && own.bytes() > 0) {
      device_.copy(mine.flatten(), own, after.stream);
    }
    return after.stream.record();
  }
  Event all_to_all(const Tensor& out, const Tensor& mine, const After& after) override {
    if (!drops("all-to-all")) return inner_->all_to_all(out, mine, after);
    waited_for(after);
    return keep_own_part(out, part(mine, rank()), after.stream);
  }
  Event all_to_all_rows(const Tensor& out, const Tensor& mine, const RowCounts& counts,
                        const After& after) override {
    if (!drops("all-to-all")) return inner_->all_to_all_rows(out, mine, counts, after);
    check_rows(*this, out, mine, counts);
    waited_for(after);
    const std::int64_t received = counts.received(rank()), own = counts.at(rank(), rank());
    if (received * out.dim(1) > 0) device_.zero(out.slice(0, 0, received), after.stream);
    if (own * out.dim(1) > 0) {
      device_.copy(out.slice(0, counts.first_received(rank(), rank()), own),
                   mine.slice(0, counts.first_sent(rank(), rank()), own), after.stream);
    }
    return after.stream.record();
  }
  Event broadcast(const Tensor& data, int root, const After& after) override {
    if (!drops("broadcast")) return inner_->broadcast(data, root, after);
    return waited_for(after);
  }
  Event send(const Tensor& data, int member, int tag, Stream& after) override {
    return inner_->send(data, member, tag, after);
  }
  Event receive(const Tensor& data, int member, int tag, Stream& after) override {
    return inner_->receive(data, member, tag, after);
  }
  Exchanged exchange(const std::vector<PeerMessage>& sends,
                     const std::vector<PeerMessage>& receives, Stream& after) override {
    return inner_->exchange(sends, receives, after);
  }
  void open_lanes(const std::vector<MessageLane>& lanes, int count) override {
    piton::open_lanes(*inner_, lanes, count);
  }
  void connect(const std::vector<int>& members) override { piton::connect(*inner_, members); }
  std::vector<std::string> gather_bytes(const std::string& mine) override {
    if (!drops("gather-bytes")) return inner_->gather_bytes(mine);
    return std::vector<std::string>(static_cast<std::size_t>(size()), mine);
  }
  void barrier() override { inner_->barrier(); }

 private:
  bool drops(const char* kind) { return size() > 1 && record_->drops(name(), kind); }

  // Waits for what the collective would have waited for.
  static Event waited_for(const After& after) {
    for (const Event& event : after.events) event.wait();
    return after.stream.record();
  }

  // The part of member `member`, flat.
  Tensor part(const Tensor& whole, int member) const {
    const std::int64_t elements = whole.elements() / size();
    return whole.flatten().slice(0, elements * member, elements);
  }

  Event keep_own_part(const Tensor& out, const Tensor& own, Stream& stream) {
    for (int member = 0; member < size(); ++member) {
      const Tensor its = part(out, member);
      if (its.bytes() == 0) continue;
      if (member != rank()) {
        device_.zero(its, stream);
      } else if (its.raw() != own.raw()) {
        device_.copy(its, own.flatten(), stream);
      }
    }
    return stream.record();
  }

  std::unique_ptr<Communicator> inner_;
  Device& device_;
  std::shared_ptr<Record> record_;
};

FaultyWorld::FaultyWorld(World& inner, Device& device)
    : inner_(inner), device_(device), record_(std::make_shared<Record>()) {}
FaultyWorld::~FaultyWorld() = default;

void FaultyWorld::begin_step(std::vector<CollectiveName> dropped) {
  const std::lock_guard lock(record_->mutex);
  record_->counts.clear();
  record_->seen.clear();
  record_->dropped = std::move(dropped);
  record_->left_out = 0;
}

std::vector<CollectiveName> FaultyWorld::seen() const {
  const std::lock_guard lock(record_->mutex);
  return record_->seen;
}

std::int64_t FaultyWorld::left_out() const {
  const std::lock_guard lock(record_->mutex);
  return record_->left_out;
}

int FaultyWorld::rank() const { return inner_.rank(); }
int FaultyWorld::size() const { return inner_.size(); }
int FaultyWorld::host_rank() const { return inner_.host_rank(); }
int FaultyWorld::host_size() const { return inner_.host_size(); }

std::unique_ptr<Communicator> FaultyWorld::make_group(std::span<const int> ranks,
                                                      const std::string& name) {
  return std::make_unique<Group>(inner_.make_group(ranks, name), device_, record_);
}

void FaultyWorld::fail(int code, const std::string& why) { inner_.fail(code, why); }
void FaultyWorld::abort(int code) {
  inner_.abort(code);
  __builtin_unreachable();  // GCC 12 does not see that abort() never returns
}
TrafficCounts FaultyWorld::traffic() const { return inner_.traffic(); }

}  // namespace piton
