#include "comm/part_of_world.h"

#include <vector>

#include "base/error.h"

namespace piton {
namespace {

class PartOfWorld final : public World {
 public:
  PartOfWorld(World& world, int first, int size) : world_(world), first_(first), size_(size) {
    PITON_ASSERT(rank() >= 0 && rank() < size, "rank {} of {}", rank(), size);
  }

  int rank() const override { return world_.rank() - first_; }
  int size() const override { return size_; }
  int host_rank() const override { return world_.host_rank(); }
  int host_size() const override { return world_.host_size(); }

  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override {
    std::vector<int> there;
    for (const int rank : ranks) there.push_back(first_ + rank);
    return world_.make_group(there, name);
  }
  void fail(int code, const std::string& why) override { world_.fail(code, why); }
  [[noreturn]] void abort(int code) override {
    world_.abort(code);
    __builtin_unreachable();  // GCC 12 does not see that abort() never returns
  }
  TrafficCounts traffic() const override { return world_.traffic(); }

 private:
  World& world_;
  int first_;
  int size_;
};

}  // namespace

std::unique_ptr<World> make_part_of_world(World& world, int first, int size) {
  return std::make_unique<PartOfWorld>(world, first, size);
}

}  // namespace piton
