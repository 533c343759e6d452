// A world of one process, and the group of one.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "comm/communicator.h"
#include "device/settable_fence.h"

namespace piton {

namespace {

// Messages of a rank to itself. A message without a receive is kept in a buffer; a receive without
// a message is kept until the message is sent.
class SelfMail {
 public:
  void put(int tag, const std::byte* data, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    Queue& queue = queues_[tag];
    if (queue.receives.empty()) {
      queue.messages.emplace_back(data, data + bytes);
      return;
    }
    const Receive receive = queue.receives.front();
    queue.receives.pop_front();
    PITON_ASSERT(receive.bytes == bytes, "tag {}: sent {} bytes, received {}", tag, bytes,
                 receive.bytes);
    if (bytes > 0) std::memcpy(receive.data, data, static_cast<std::size_t>(bytes));
    receive.signal->finish();
  }

  void take(int tag, std::byte* data, std::int64_t bytes, std::shared_ptr<SettableFence> signal) {
    const std::lock_guard lock(mutex_);
    Queue& queue = queues_[tag];
    if (queue.messages.empty()) {
      queue.receives.push_back({data, bytes, std::move(signal)});
      return;
    }
    const std::vector<std::byte>& message = queue.messages.front();
    PITON_ASSERT(std::ssize(message) == bytes, "tag {}: sent {} bytes, received {}", tag,
                 message.size(), bytes);
    if (bytes > 0) std::memcpy(data, message.data(), message.size());
    queue.messages.pop_front();
    signal->finish();
  }

 private:
  struct Receive {
    std::byte* data;
    std::int64_t bytes;
    std::shared_ptr<SettableFence> signal;
  };
  struct Queue {
    std::deque<std::vector<std::byte>> messages;
    std::deque<Receive> receives;
  };
  std::mutex mutex_;
  std::map<int, Queue> queues_;
};

class DeviceStorage final : public Storage {
 public:
  DeviceStorage(Device& device, std::int64_t bytes)
      : Storage(device.allocate(bytes), bytes, device.place()), device_(&device) {}
  ~DeviceStorage() override { device_->release(data(), bytes()); }

 private:
  Device* device_;
};

class SingleSymmetricMemory final : public SymmetricMemory {
 public:
  SingleSymmetricMemory(Device& device, std::int64_t bytes)
      : mine_(std::make_shared<DeviceStorage>(device, bytes), 0, DType::kU8, Shape{bytes}) {}

  Tensor mine() const override { return mine_; }
  Tensor peer(int member) const override {
    PITON_ASSERT(member == 0, "member {} of 1", member);
    return mine_;
  }
  void signal(int member, int slot, std::int64_t /*bytes*/) override {
    PITON_ASSERT(member == 0, "member {} of 1", member);
    const std::lock_guard lock(mutex_);
    ++counters_[slot];
    changed_.notify_all();
  }
  void wait(int slot, std::uint64_t value) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return counters_[slot] >= value; });
  }
  void sum(const Tensor& out, std::int64_t begin) override {
    PITON_ASSERT(begin >= 0 && begin + out.bytes() <= mine_.bytes(), "{} from byte {} of {}",
                 to_string(out), begin, mine_.bytes());
    std::memmove(out.raw(), mine_.raw() + begin, static_cast<std::size_t>(out.bytes()));
  }

 private:
  Tensor mine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::uint64_t> counters_;
};

class SingleCommunicator final : public Communicator {
 public:
  SingleCommunicator(Device& device, std::string name) : device_(&device), name_(std::move(name)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string name() const override { return name_; }

  Event all_reduce(const Tensor&, Reduction, const After& after) override { return follow(after); }
  Event all_gather(const Tensor& out, const Tensor& mine, const After& after) override {
    return copy(out, mine, after);
  }
  Event reduce_scatter(const Tensor& mine, const Tensor& all, const After& after) override {
    return copy(mine, all, after);
  }
  Event all_to_all(const Tensor& out, const Tensor& mine, const After& after) override {
    return copy(out, mine, after);
  }
  Event all_to_all_rows(const Tensor& out, const Tensor& mine, const RowCounts& counts,
                        const After& after) override {
    check_rows(*this, out, mine, counts);
    const std::int64_t rows = counts.at(0, 0);
    return copy(out.slice(0, 0, rows), mine.slice(0, 0, rows), after);
  }
  Event broadcast(const Tensor&, int, const After& after) override { return follow(after); }

  Event send(const Tensor& data, int member, int tag, Stream& after) override {
    PITON_ASSERT(member == 0, "member {} of 1", member);
    if (device_->place().kind == DeviceKind::kMeta) return after.record();
    const std::byte* address = address_of(data);
    after.enqueue([this, address, bytes = data.bytes(), tag] { mail_.put(tag, address, bytes); });
    return after.record();
  }
  Event receive(const Tensor& data, int member, int tag, Stream& after) override {
    PITON_ASSERT(member == 0, "member {} of 1", member);
    if (device_->place().kind == DeviceKind::kMeta) return after.record();
    std::byte* address = address_of(data);
    auto signal = std::make_shared<SettableFence>();
    after.enqueue([this, address, bytes = data.bytes(), tag, signal] {
      mail_.take(tag, address, bytes, signal);
    });
    return Event(std::move(signal));
  }

  std::vector<std::string> gather_bytes(const std::string& mine) override { return {mine}; }
  void barrier() override {}

  std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t bytes) override {
    return std::make_unique<SingleSymmetricMemory>(*device_, bytes);
  }

  void count(const TrafficCounts&) override {}  // a group of one sends nothing
  TrafficCounts traffic() const override { return {}; }

 private:
  std::byte* address_of(const Tensor& tensor) const {
    std::byte* address = device_->host_address(tensor);
    PITON_ASSERT(address != nullptr, "a message to oneself needs memory that the host can touch");
    return address;
  }

  // A group of one sends nothing, so its collectives may run on the caller's stream.
  static Event follow(const After& after) {
    for (const Event& event : after.events) after.stream.wait(event);
    return after.stream.record();
  }

  Event copy(const Tensor& dst, const Tensor& src, const After& after) {
    PITON_ASSERT(dst.bytes() == src.bytes() && dst.dtype() == src.dtype(), "{} from {}",
                 to_string(dst), to_string(src));
    PITON_ASSERT(dst.contiguous() && src.contiguous(), "collectives take contiguous tensors");
    if (dst.raw() != src.raw()) {
      for (const Event& event : after.events) after.stream.wait(event);
      device_->copy(dst.flatten(), src.flatten(), after.stream);
    }
    return follow(after);
  }

  Device* device_;
  std::string name_;
  SelfMail mail_;
};

class SingleWorld final : public World {
 public:
  explicit SingleWorld(Device& device) : device_(&device) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int host_rank() const override { return 0; }
  int host_size() const override { return 1; }
  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override {
    PITON_ASSERT(ranks.size() == 1 && ranks[0] == 0, "the only rank is 0");
    return make_single_communicator(*device_, name);
  }
  [[noreturn]] void abort(int code) override { std::_Exit(code); }
  TrafficCounts traffic() const override { return {}; }

 private:
  Device* device_;
};

}  // namespace

std::unique_ptr<World> make_single_world(Device& device) {
  return std::make_unique<SingleWorld>(device);
}

std::unique_ptr<Communicator> make_single_communicator(Device& device, std::string name) {
  return std::make_unique<SingleCommunicator>(device, std::move(name));
}

}  // namespace piton
