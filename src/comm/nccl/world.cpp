#include "comm/nccl/world.h"

#include <cstdlib>
#include <exception>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "comm/nccl/communicator.h"
#include "comm/nccl/library.h"
#include "comm/nccl/watch.h"

namespace piton {
namespace {

class NcclWorld final : public World {
 public:
  NcclWorld(Device& device, const NcclOptions& options)
      : device_(device),
        library_(options.library),
        rendezvous_(options.place, options.timeout_seconds),
        watch_(library_, rendezvous_, cuda::failure_of(device), options.timeout_seconds),
        shared_{.device = device_,
                .library = library_,
                .rendezvous = rendezvous_,
                .watch = watch_,
                .mutex = {},
                .traffic = {}} {}

  // Rank 0 serves the others until all have come here. During an exception it informs them.
  ~NcclWorld() override {
    if (watch_.failure()) return;
    if (std::uncaught_exceptions() > exceptions_) {
      rendezvous_.fail(static_cast<int>(Fault::kPeer), "");
      return;
    }
    std::vector<int> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    try {
      rendezvous_.gather("end", all, "");
    } catch (const Error&) {  // a rank is lost at its end: this one has finished
    }
  }

  int rank() const override { return rendezvous_.rank(); }
  int size() const override { return rendezvous_.size(); }
  int host_rank() const override { return rendezvous_.place().host_rank; }
  int host_size() const override { return rendezvous_.place().host_size; }

  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override {
    if (ranks.size() == 1) {
      PITON_ASSERT(ranks[0] == rank(), "rank {} makes a group without itself", rank());
      return make_single_communicator(device_, name);
    }
    return std::make_unique<nccl::NcclCommunicator>(
        shared_, std::vector<int>(ranks.begin(), ranks.end()), name);
  }

  void fail(int code, const std::string& why) override {
    rendezvous_.fail(code, why);
    watch_.fail(why.empty() ? "this rank has failed" : why);
  }

  [[noreturn]] void abort(int code) override {
    rendezvous_.fail(code, "");
    std::_Exit(code);
  }

  TrafficCounts traffic() const override {
    const std::scoped_lock lock(shared_.mutex);
    return shared_.traffic;
  }

 private:
  Device& device_;
  const int exceptions_ = std::uncaught_exceptions();
  nccl::Library library_;
  Rendezvous rendezvous_;
  nccl::Watch watch_;
  mutable nccl::Shared shared_;
};

}  // namespace

std::unique_ptr<World> make_nccl_world(Device& device, const NcclOptions& options) {
  return std::make_unique<NcclWorld>(device, options);
}

}  // namespace piton
