#include "session/offload_options.h"

#include "base/amounts.h"
#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {

namespace {

bool is_folder(const std::string& place) { return place != "none" && place != "cpu"; }

void check_place(const char* flag, const std::string& place, const char* what) {
  if (!is_folder(place) || place.find('/') != std::string::npos) return;
  throw Error(Fault::kUsage,
              "--{}: got \"{}\", wanted none, cpu, or a folder with a / in its name (./{}), in "
              "which a file takes {}",
              flag, place, place, what);
}

bool has_separate_memory(Device& device) { return device.place() != device.host_memory().place(); }

}  // namespace

void OffloadOptions::check(std::int64_t layers) const {
  check_place("remote-device", remote_device, "the state");
  check_place("offload-activations", activations, "what layers keep");
  if (!activation_layers) return;
  // Megatron's 0 is its default: nothing moves.
  check_range("--cpu-offloading-num-layers (of a stage)", *activation_layers,
              activations == "none" ? 0 : 1, layers);
}

std::filesystem::path OffloadOptions::state_folder() const {
  return is_folder(remote_device) ? remote_device : "";
}

std::string about_state(const OffloadOptions& options, std::int64_t bytes) {
  const std::string folder = options.state_folder();
  if (folder.empty() && !options.in_host_memory()) return "";
  if (bytes > 0) {
    return fmt::format("optimizer state: {:.1f} MiB a rank in {}", mebibytes(bytes),
                       folder.empty() ? "host memory" : "a file in " + folder);
  }
  if (!folder.empty()) {
    return fmt::format("--remote-device: there is no optimizer state to keep in {}", folder);
  }
  return "--remote-device cpu: nothing moves, as this device's memory is host memory";
}

std::unique_ptr<OffloadTarget> state_target(const OffloadOptions& options, Device& device) {
  const std::filesystem::path folder = options.state_folder();
  if (!folder.empty()) return OffloadTarget::file(device, folder, options.faults);
  return options.in_host_memory() && has_separate_memory(device)
             ? OffloadTarget::host_memory(device)
             : nullptr;
}

std::string about_activations(const OffloadOptions& options, Device& device) {
  if (!options.means_host_memory() || has_separate_memory(device)) return "";
  return "--cpu-offloading-num-layers: nothing moves, as this device's memory is host memory; "
         "--offload-activations FOLDER moves what these layers keep to a file";
}

std::unique_ptr<OffloadTarget> activation_target(const OffloadOptions& options, Device& device) {
  const bool meant = options.means_host_memory();
  if (options.activations == "none" && !meant) return nullptr;
  if (is_folder(options.activations)) {
    return OffloadTarget::file(device, options.activations, options.faults);
  }
  if (!has_separate_memory(device)) {
    if (meant) return nullptr;  // about_activations() reports it
    throw Error(Fault::kUsage,
                "--offload-activations cpu: this device's memory is host memory, so nothing would "
                "become free; name a folder on a disk");
  }
  return OffloadTarget::host_memory(device);
}

}  // namespace piton
