// Where state that a step seldom needs is kept: on the device, in host memory, or in a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "base/options/options.h"
#include "device/offload_target.h"
#include "ops/offloading_keeper.h"

namespace piton {

struct OffloadOptions {
  bool cpu_optimizer = false;
  std::string remote_device = "none";
  std::string activations = "none";
  std::optional<std::int64_t> activation_layers;  // 0: none
  // Set by tests: what layers keep in fewer bytes stays on the device; failures of the disk.
  std::int64_t smallest_activation = OffloadingKeeper::kSmallestBytes;
  FileFaults faults = {};

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"remote-device",
             "where the optimizer's state is kept: none: with the weights; cpu: in host memory; a "
             "folder: in a file there, which passes through a buffer in each update",
             {.placeholder = "PLACE"}},
      remote_device);
    v(Option{"cpu-optimizer", "the same as --remote-device cpu"}, cpu_optimizer);
    v(Option{"offload-activations",
             "where the activations that layers keep for backward are stored: none: on the device; "
             "cpu: in host memory; a folder: in a file there",
             {.placeholder = "PLACE"}},
      activations);
    v(Option{"cpu-offloading-num-layers",
             "of how many layers of each stage, from the first, --offload-activations moves what "
             "they keep (default: all); without it, as with --offload-activations cpu"},
      activation_layers);
  }

  // For stages of `layers`. Throws Error(kUsage) naming the flag.
  void check(std::int64_t layers) const;

  // What layers keep of a stage's first so many layers leaves the device.
  std::int64_t layers_to_offload() const {
    return activation_layers.value_or(std::numeric_limits<std::int64_t>::max());
  }
  // --cpu-offloading-num-layers alone: host memory is meant.
  bool means_host_memory() const {
    return activations == "none" && activation_layers.value_or(0) > 0;
  }

  // Empty: no folder.
  std::filesystem::path state_folder() const;
  bool in_host_memory() const { return cpu_optimizer || remote_device == "cpu"; }
};

// Null: the state stays with the weights, as it does on the host unless a folder is named.
// `options` are checked. Throws Error(kData).
std::unique_ptr<OffloadTarget> state_target(const OffloadOptions& options, Device& device);

// Of what layers keep. Null: it stays. Throws Error(kData), and Error(kUsage) for host memory that
// is asked for by name where it is the device's own.
std::unique_ptr<OffloadTarget> activation_target(const OffloadOptions& options, Device& device);

// For the log: where the state is; "" if nothing was asked for. `bytes`: offloaded by this rank.
std::string about_state(const OffloadOptions& options, std::int64_t bytes);
// The same of what layers keep.
std::string about_activations(const OffloadOptions& options, Device& device);

}  // namespace piton
