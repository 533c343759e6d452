#include "bench/checkpoint.h"

#include "api/planning.h"
#include "base/error.h"
#include "checkpoint/store.h"
#include "session/session.h"
#include "train/run/memory_check.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

std::int64_t bytes_below(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += static_cast<std::int64_t>(entry.file_size());
  }
  return bytes;
}

// Removes it on the first rank, also after a failure.
class SavedFolder {
 public:
  SavedFolder(fs::path path, bool is_first) : path_(std::move(path)), is_first_(is_first) {}
  ~SavedFolder() { remove(); }
  SavedFolder(const SavedFolder&) = delete;
  SavedFolder& operator=(const SavedFolder&) = delete;

  void remove() const {
    std::error_code ignored;
    if (is_first_) fs::remove_all(path_, ignored);
  }

 private:
  fs::path path_;
  bool is_first_;
};

}  // namespace

CheckpointBench bench_checkpoint(const Machine& machine, const RunPlan& plan,
                                 const fs::path& folder, int rounds) {
  const auto everyone = make_group_of_all(machine.world, "bench");
  check_memory(memory_of_ranks(machine, estimate_own_rank(plan, machine).memory, *everyone));
  const bool exists = fs::exists(folder);
  everyone->barrier();
  if (exists)
    throw Error(Fault::kUsage, "--save: {} exists; wanted a folder without it", folder.string());

  Mesh mesh(machine.world, plan.mesh);
  Session session(machine, mesh, plan.session);
  session.initialize();
  const StoredModel model{session.parameters(), &session.sharded(), &session.optimizer()};
  const StoreContext context{mesh, machine.device, machine.arena, machine.stream, &machine.threads};
  const SavedFolder saved(folder, machine.world.rank() == 0);
  CheckpointBench bench;
  for (int round = 0; round < rounds; ++round) {
    everyone->barrier();
    fs::path checkpoint;
    bench.save.seconds.push_back(seconds_of([&] {
      checkpoint = save_checkpoint(model, context, {.dir = folder, .state = {.iteration = 1}});
    }));
    bench.bytes = bytes_below(checkpoint);
    everyone->barrier();
    bench.load.seconds.push_back(seconds_of([&] { load_checkpoint(checkpoint, model, context); }));
    everyone->barrier();
    saved.remove();
  }
  bench.memory = machine.arena.counts();
  return bench;
}

}  // namespace piton
