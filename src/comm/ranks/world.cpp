#include "comm/ranks/world.h"

#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "comm/ranks/communicator.h"
#include "comm/ranks/engine.h"

namespace piton {

namespace {

class RankWorld final : public World {
 public:
  RankWorld(Device& device, std::unique_ptr<Transport> transport, const RankOptions& options)
      : device_(&device),
        exceptions_(std::uncaught_exceptions()),
        engine_(std::make_unique<RankEngine>(std::move(transport), options)) {
    try {
      engine_->start();
    } catch (...) {
      if (engine_->hangs()) static_cast<void>(engine_.release());
      throw;
    }
  }

  ~RankWorld() override {
    const bool unwinding = std::uncaught_exceptions() > exceptions_;
    const bool orderly = !unwinding && !engine_->failure();
    engine_->stop(orderly);
    // A thread that hangs in the transport still uses the engine.
    if (!orderly || engine_->hangs()) static_cast<void>(engine_.release());
  }

  int rank() const override { return engine_->world_rank(); }
  int size() const override { return engine_->world_size(); }
  int host_rank() const override { return engine_->machine_rank(); }
  int host_size() const override { return engine_->machine_size(); }

  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override {
    if (ranks.size() == 1) {
      PITON_ASSERT(ranks[0] == rank(), "rank {} makes a group without itself", rank());
      return make_single_communicator(*device_, name);
    }
    const std::vector<int> members(ranks.begin(), ranks.end());
    // The n-th group of the same ranks has the same number on each of them.
    const std::uint64_t number =
        hash64({reinterpret_cast<const char*>(members.data()), members.size() * sizeof(int)},
               made_[members]++);
    return std::make_unique<RankCommunicator>(*engine_, *device_, RankGroup{members, name, number},
                                              total_);
  }

  void fail(int code, const std::string& why) override { engine_->fail(code, why); }

  [[noreturn]] void abort(int code) override { engine_->abort(code); }

  std::int64_t bytes_between_hosts() const { return engine_->bytes_between_hosts().load(); }

  TrafficCounts traffic() const override {
    const std::lock_guard lock(total_->mutex);
    return total_->counts;
  }

 private:
  Device* device_;
  int exceptions_;
  std::unique_ptr<RankEngine> engine_;
  std::shared_ptr<TrafficTotal> total_ = std::make_shared<TrafficTotal>();
  std::map<std::vector<int>, std::uint64_t> made_;
};

}  // namespace

std::unique_ptr<World> make_rank_world(Device& device, std::unique_ptr<Transport> transport,
                                       const RankOptions& options) {
  return std::make_unique<RankWorld>(device, std::move(transport), options);
}

std::int64_t bytes_between_hosts(const World& world) {
  return dynamic_cast<const RankWorld&>(world).bytes_between_hosts();
}

}  // namespace piton
