// cudaMalloc and cudaFree for segments of an arena; copies through pinned memory.
#include "device/cuda/device.h"

#include <algorithm>

#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/kept_failure.h"
#include "device/cuda/staging.h"
#include "device/cuda/stream.h"

namespace piton::cuda {
namespace {

// Kernels are compiled for this compute capability and newer ones (cmake/cuda.cmake).
constexpr int kOldestMajor = 8;

// Page-locked memory: the GPU copies from and to it by DMA.
class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(int device) : device_(device) {}

  std::byte* allocate(std::int64_t bytes) override {
    select(device_);
    void* data = nullptr;
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    check(cudaMallocHost(&data, size), "allocation of pinned host memory", bytes);
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data, std::int64_t) override {
    if (cudaFreeHost(data) != cudaSuccess) cudaGetLastError();
  }
  Place place() const override { return {DeviceKind::kHost, 0}; }

 private:
  int device_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, std::string name) : index_(index), name_(std::move(name)), pinned_(index) {}

  std::byte* allocate(std::int64_t bytes) override {
    select(index_);
    void* data = nullptr;
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    check(cudaMalloc(&data, size), "allocation", bytes);
    return static_cast<std::byte*>(data);
  }

  // Ignores errors: destructors call it.
  void release(std::byte* data, std::int64_t) override {
    if (cudaFree(data) != cudaSuccess) cudaGetLastError();
  }

  Place place() const override { return {DeviceKind::kCuda, index_}; }
  std::string name() const override { return name_; }
  std::unique_ptr<Stream> make_stream() override { return cuda::make_stream(index_, failure_); }

  void upload(const void* host, const Tensor& dst, Stream& stream) override {
    expect_here(dst, "upload to");
    staging_.upload(host, dst.raw(), dst.bytes(), handle_for_host(stream));
  }

  void download(const Tensor& src, void* host, Stream& stream) override {
    expect_here(src, "download of");
    staging_.download(src.raw(), host, src.bytes(), handle_for_host(stream));
    stream.synchronize();
  }

  void zero(const Tensor& dst, Stream& stream) override {
    expect_here(dst, "zero of");
    if (dst.bytes() == 0) return;
    check(cudaMemsetAsync(dst.raw(), 0, static_cast<std::size_t>(dst.bytes()), handle_of(stream)),
          "zero");
  }

  void copy(const Tensor& dst, const Tensor& src, Stream& stream) override {
    check_copy(dst, src);
    const bool to_host = dst.place().kind == DeviceKind::kHost;
    const bool from_host = src.place().kind == DeviceKind::kHost;
    if (!to_host) expect_here(dst, "copy to");
    if (!from_host) expect_here(src, "copy of");
    PITON_ASSERT(!to_host || !from_host, "cuda: a copy from host to host");
    if (dst.bytes() == 0) return;
    check(cudaMemcpyAsync(dst.raw(), src.raw(), static_cast<std::size_t>(dst.bytes()),
                          cudaMemcpyDefault, handle_of(stream)),
          "copy");
  }

  Memory& host_memory() override { return pinned_; }
  std::byte* host_address(const Tensor&) const override { return nullptr; }

  const std::shared_ptr<KeptFailure>& failure() const { return failure_; }

 private:
  void expect_here(const Tensor& tensor, const char* what) const {
    PITON_ASSERT(tensor.contiguous() && tensor.place() == place(), "cuda: {} {}", what,
                 to_string(tensor));
    select(index_);
  }

  int index_;
  std::string name_;
  std::shared_ptr<KeptFailure> failure_ = std::make_shared<KeptFailure>();
  PinnedStaging staging_;
  PinnedMemory pinned_;
};

}  // namespace

bool is_built() { return true; }

int cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::shared_ptr<KeptFailure> failure_of(Device& device) {
  auto* cuda_device = dynamic_cast<CudaDevice*>(&device);
  PITON_ASSERT(cuda_device != nullptr, "cuda: {} is another kind of device", device.name());
  return cuda_device->failure();
}

std::string driver_obstacle() {
  int driver = 0;
  int built = 0;
  cudaRuntimeGetVersion(&built);
  if (cudaDriverGetVersion(&driver) != cudaSuccess) cudaGetLastError();
  const auto version = [](int number) {  // 13020 is 13.2
    return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
  };
  if (driver == 0) return "no driver of NVIDIA is installed (libcuda.so.1)";
  if (driver / 1000 >= built / 1000) return "";
  return fmt::format("the driver is for CUDA {}, wanted {} or newer", version(driver),
                     version(built));
}

std::unique_ptr<Device> make_device(int index) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "search for devices");
  if (index < 0 || index >= count) {
    throw Error(Fault::kUsage,
                "cuda: device: got {}, wanted 0 to {}; see nvidia-smi for the devices", index,
                count - 1);
  }
  select(index);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "look at the device");
  if (properties.major < kOldestMajor) {
    throw Error(Fault::kUsage,
                "cuda: device {} ({}): got compute capability {}.{}, wanted {}.0 or newer; use "
                "--kernels cpu",
                index, properties.name, properties.major, properties.minor, kOldestMajor);
  }
  return std::make_unique<CudaDevice>(
      index,
      fmt::format("cuda {}: {}, {:.1f} GiB, compute capability {}.{}", index, properties.name,
                  static_cast<double>(properties.totalGlobalMem) / (1 << 30), properties.major,
                  properties.minor));
}

}  // namespace piton::cuda
