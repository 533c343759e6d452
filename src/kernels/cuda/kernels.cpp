// The CUDA back end: enqueues a call on its stream.
#include "kernels/cuda/kernels.h"

#include <utility>

#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/stream.h"
#include "device/meta_device.h"
#include "kernels/cuda/attention/latents.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/linear/few_row_product.h"
#include "kernels/cuda/linear/linear_parts.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/span_calls.h"

namespace piton::cuda {
namespace {

// wgmma is an instruction of this compute capability alone.
bool has_warpgroups(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "look at the device");
  return properties.major == 9;
}

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(Device& device)
      : place_(device.place()),
        name_(device.name()),
        warpgroups_(has_warpgroups(place_.index)),
        products_(make_products(place_)),
        own_workspace_(device),
        workspace_(&own_workspace_),
        arrivals_(zeros(device, own_workspace_)) {}

  std::string name() const override { return name_; }

  // Weights are read as plain rows.
  std::int64_t packed_bytes(WeightForm, std::int64_t, std::int64_t, DType) const override {
    return 0;
  }

  bool attends_to_latents(std::int64_t latents, std::int64_t shared) const override {
    return latents <= kMostLatents && latents + shared <= kMostLatentRow;
  }

  // Products of few rows read codes; others expand them to scratch first.
  bool reads_codes() const override { return true; }

  std::string float8_obstacle(Float8Recipe recipe) const override {
    return cuda::float8_obstacle(recipe, place_.index);
  }

  // In the end of a product of few rows.
  bool gates_in_product(std::int64_t rows, DType dtype) const override {
    return rows <= kFewRows && size_bytes(dtype) == 2;
  }

  // By the code that takes it, of memory that is not there.
  std::int64_t workspace_bytes(const KernelCall& call) const override {
    MetaDevice nowhere;
    Arena counted(nowhere);
    const CallContext context{.stream = nullptr,
                              .products = *products_,
                              .workspace = counted,
                              .user = nullptr,
                              .warpgroups = warpgroups_,
                              .arrivals = nullptr};
    std::visit([&](const auto& one) { execute(one, context); }, call);
    return counted.counts().peak_total_bytes;
  }

  Arena* set_workspace(Arena* workspace) override { return std::exchange(workspace_, workspace); }

  std::int64_t row_tile() const override { return Products::kRowTile; }

  // The gradient of 768 inputs has 96 tiles of 256 x 128 numbers, for some 130 multiprocessors.
  std::int64_t full_speed_rows() const override { return 4096; }

 private:
  static Tensor zeros(Device& device, Arena& arena) {
    const auto stream = device.make_stream();
    Tensor counters = arena.allocate(DType::kI32, {kArrivals}, MemoryKind::kWorkspace);
    device.zero(counters, *stream);
    stream->synchronize();
    return counters;
  }

  static std::unique_ptr<Products> make_products(Place place) {
    select(place.index);
    return std::make_unique<Products>();
  }

  void submit(const KernelCall& call, Stream& stream) override {
    expect_here(call);
    const CallContext context = context_of(stream);
    std::visit([&](const auto& one) { execute(one, context); }, call);
  }

  void submit_chains(const std::vector<CallChain>& chains, Stream& stream) override {
    const bool of_spans = are_span_calls(chains);
    const std::optional<ProductParts> parts = of_spans ? std::nullopt : linear_parts(chains);
    if (!of_spans && !parts) return Kernels::submit_chains(chains, stream);
    for (const CallChain& chain : chains) {
      for (const KernelCall& call : chain) expect_here(call);
    }
    if (of_spans) return execute_span_calls(chains, context_of(stream));
    execute_linear_parts(chains, *parts, context_of(stream));
  }

  void expect_here(const KernelCall& call) const {
    for_each_tensor(call, [&](std::string_view tensor_name, const Tensor& tensor, Access) {
      PITON_ASSERT(tensor.place() == place_, "cuda kernels: {} of {} is not on their device",
                   tensor_name, piton::name(call));
    });
  }

  // Selects the device.
  CallContext context_of(Stream& stream) {
    select(place_.index);
    return {.stream = handle_of(stream),
            .products = *products_,
            .workspace = *workspace_,
            .user = &stream,
            .warpgroups = warpgroups_,
            .arrivals = reinterpret_cast<unsigned*>(arrivals_.raw())};
  }

  Place place_;
  std::string name_;
  bool warpgroups_;
  std::unique_ptr<Products> products_;
  Arena own_workspace_;  // until set_workspace() names another
  Arena* workspace_;
  Tensor arrivals_;
};

}  // namespace

std::unique_ptr<Kernels> make_kernels(Device& device) {
  PITON_ASSERT(device.place().kind == DeviceKind::kCuda, "cuda kernels on {}", device.name());
  return std::make_unique<CudaKernels>(device);
}

}  // namespace piton::cuda
