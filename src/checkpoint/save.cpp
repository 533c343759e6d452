#include <optional>
#include <utility>

#include "checkpoint/save_files.h"
#include "checkpoint/save_layout.h"
#include "checkpoint/store.h"

namespace piton {

Communicator& save_group(Mesh& mesh) { return mesh.group(kAllAxes, "save"); }

void check_room(const std::filesystem::path& dir, const StoredModel& model,
                const StoreContext& context, const SaveOptions& options) {
  Communicator& ranks = save_group(context.mesh);
  const SaveLayout layout = lay_out(model, ranks, options.file_bytes);
  phase(ranks, 0, [&] { check_space(dir, layout.plan); });
}

TrainState with_progress(TrainState state, const StoredModel& model) {
  PITON_ASSERT(state.iteration >= 0);
  if (model.optimizer == nullptr) return state;
  const OptimizerProgress& progress = model.optimizer->progress();
  state.optimizer_steps = progress.steps;
  state.skipped_steps = progress.skipped;
  state.loss_scale = progress.loss_scale;
  state.good_updates = progress.good_updates;
  state.hysteresis_left = progress.hysteresis_left;
  state.spike_history = progress.history;
  return state;
}

std::filesystem::path save_checkpoint(const StoredModel& model, const StoreContext& context,
                                      SaveOrder order) {
  PITON_ASSERT(order.options.keep >= 0 && order.options.file_bytes > 0);
  Communicator& ranks = save_group(context.mesh);
  SaveLayout layout = lay_out(model, ranks, order.options.file_bytes);
  order.state = with_progress(std::move(order.state), model);
  return write_save(order, layout, ranks, [&](JobWriter& writer, FirstFault& fault) {
    for_each_source(model, layout, context, fault,
                    [&](const Tensor& source, std::span<const WriteJob> jobs, Device& device) {
                      const HostBytes bytes(source, device, context.stream);
                      for (const WriteJob& job : jobs) {
                        writer.write(job, bytes.data() + layout.place_in_source(job) *
                                                             size_bytes(source.dtype()));
                      }
                    });
  });
}

}  // namespace piton
