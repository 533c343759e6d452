// The back end: a call is put on its stream and runs on the pool's threads.
#include "kernels/cpu/kernels.h"

#include <utility>

#include "kernels/cpu/context.h"

namespace piton {
namespace {

class CpuKernels final : public Kernels {
 public:
  CpuKernels(ThreadPool& threads, cpu::Isa isa)
      : context_{threads,
                 isa,
                 cpu::vector_table(isa),
                 cpu::panel_table(isa),
                 cpu::dot_table(isa),
                 cpu::tile_table(isa),
                 cpu::Scratch(threads.threads())} {}

  std::string name() const override {
    return fmt::format("cpu: {}", cpu::description(context_.isa));
  }

  std::int64_t packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                            DType dtype) const override {
    return cpu::packed_bytes(context_, form, out, in, dtype);
  }

  std::int64_t row_tile() const override { return cpu::row_tile(); }

 private:
  // A host stream is always done with what was put on it, so the call may run here.
  void submit(const KernelCall& call, Stream&) override {
    for_each_tensor(call, [&](std::string_view tensor_name, const Tensor& tensor, Access) {
      PITON_ASSERT(tensor.place().kind == DeviceKind::kHost,
                   "cpu kernels: {} of {} is not on the host", tensor_name, piton::name(call));
    });
    std::visit([this](const auto& one) { cpu::execute(context_, one); }, call);
  }

  cpu::Context context_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(ThreadPool& threads, std::string isa) {
  return std::make_unique<CpuKernels>(threads, cpu::find_isa(isa));
}

}  // namespace piton
