// The reference back end: every call runs at once.
#include "kernels/reference/kernels.h"

#include "kernels/reference/calls.h"

namespace piton {
namespace {

class ReferenceKernels final : public Kernels {
 public:
  std::string name() const override { return "reference"; }
  std::int64_t packed_bytes(WeightForm, std::int64_t, std::int64_t, DType) const override {
    return 0;
  }
  bool reads_codes() const override { return true; }
  bool attends_to_latents(std::int64_t, std::int64_t) const override { return true; }
  std::int64_t row_tile() const override { return 1; }

 private:
  // A host stream has always finished its earlier work, so the call may run here.
  void submit(const KernelCall& call, Stream&) override {
    for_each_tensor(call, [&](std::string_view tensor_name, const Tensor& tensor, Access) {
      PITON_ASSERT(tensor.place().kind == DeviceKind::kHost,
                   "reference kernels: {} of {} is not on the host", tensor_name,
                   piton::name(call));
    });
    std::visit([](const auto& one) { reference::execute(one); }, call);
  }
};

}  // namespace

std::unique_ptr<Kernels> make_reference_kernels() { return std::make_unique<ReferenceKernels>(); }

}  // namespace piton
