// The CUDA back end: enqueues a call on its stream, or refuses it if there is no kernel for it.
#include "kernels/cuda/kernels.h"

#include <type_traits>

#include "base/error.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/stream.h"

namespace piton::cuda {
namespace {

template <typename Call>
concept Executable = requires(const Call& call, cudaStream_t stream) {
  execute(call, stream);
};

class CudaKernels final : public Kernels {
 public:
  CudaKernels(Place place, std::string name) : place_(place), name_(std::move(name)) {}

  std::string name() const override { return name_; }

  // Weights are read as plain rows.
  std::int64_t packed_bytes(WeightForm, std::int64_t, std::int64_t, DType) const override {
    return 0;
  }

  // There is no linear kernel yet, so there are no tiles.
  std::int64_t row_tile() const override { return 1; }

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    std::visit(
        [&]<typename Call>(const Call& one) {
          if constexpr (Executable<Call>) {
            expect_here(call);
            select(place_.index);
            execute(one, handle_of(stream));
          } else {
            throw Error(
                Fault::kUsage,
                "--kernels cuda: this build's cuda back end has no {} yet; use --kernels cpu",
                Call::kName);
          }
        },
        call);
  }

  void expect_here(const KernelCall& call) const {
    for_each_tensor(call, [&](std::string_view tensor_name, const Tensor& tensor, Access) {
      PITON_ASSERT(tensor.place() == place_, "cuda kernels: {} of {} is not on their device",
                   tensor_name, piton::name(call));
    });
  }

  Place place_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Kernels> make_kernels(const Device& device) {
  PITON_ASSERT(device.place().kind == DeviceKind::kCuda, "cuda kernels on {}", device.name());
  return std::make_unique<CudaKernels>(device.place(), device.name());
}

}  // namespace piton::cuda
