#include "train/offload_options.h"

#include "base/error.h"

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

}  // namespace

void OffloadOptions::check() const {
  check_place("remote-device", remote_device, "the state");
  check_place("offload-activations", activations, "what layers keep");
}

std::filesystem::path OffloadOptions::state_folder() const {
  return is_folder(remote_device) ? remote_device : "";
}

std::string about_state(const OffloadOptions& options, std::int64_t bytes) {
  const std::string folder = options.state_folder();
  if (folder.empty() && !options.in_host_memory()) return "";
  if (bytes > 0) {
    return fmt::format("optimizer state: {:.1f} MiB a rank in {}",
                       static_cast<double>(bytes) / (1 << 20),
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
  const bool elsewhere = device.place() != device.host_memory().place();
  return options.in_host_memory() && elsewhere ? OffloadTarget::host_memory(device) : nullptr;
}

std::unique_ptr<OffloadTarget> activation_target(const OffloadOptions& options, Device& device) {
  if (options.activations == "none") return nullptr;
  if (is_folder(options.activations)) {
    return OffloadTarget::file(device, options.activations, options.faults);
  }
  if (device.place() == device.host_memory().place()) {
    throw Error(Fault::kUsage,
                "--offload-activations cpu: this device's memory is host memory, so nothing would "
                "become free; name a folder on a disk");
  }
  return OffloadTarget::host_memory(device);
}

}  // namespace piton
