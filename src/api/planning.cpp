#include "api/planning.h"

#include "comm/virtual/world.h"
#include "device/meta_device.h"
#include "kernels/meta/kernels.h"

namespace piton {

std::vector<RankEstimate> estimate_layout(const RunPlan& plan, std::int64_t micro_batch,
                                          const Machine& machine) {
  std::vector<RankEstimate> estimates;
  const int ranks = plan.mesh.ranks();
  for (int rank = 0; rank < ranks; ++rank) {
    MetaDevice device;
    MetaKernels kernels(&machine.kernels);
    Arena arena(device);
    const std::unique_ptr<Stream> stream = device.make_stream();
    const std::unique_ptr<World> world = make_virtual_world(rank, ranks);
    const Machine meta{.world = *world,
                       .device = device,
                       .kernels = kernels,
                       .arena = arena,
                       .stream = *stream,
                       .threads = machine.threads,
                       .log = machine.log};
    estimates.push_back(estimate_rank(meta, plan, micro_batch));
  }
  return estimates;
}

}  // namespace piton
