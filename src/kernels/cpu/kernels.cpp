// The back end: runs each call on the threads of the pool.
#include "kernels/cpu/kernels.h"

#include <utility>

#include "kernels/cpu/choice.h"
#include "kernels/cpu/context.h"

namespace piton {
namespace {

class CpuKernels final : public Kernels {
 public:
  CpuKernels(ThreadPool& threads, cpu::Isa isa, const cpu::ProductChoice& choice)
      : choice_(choice),
        context_{threads,
                 isa,
                 cpu::vector_table(isa),
                 cpu::panel_table(isa),
                 choice.dot ? cpu::dot_table(isa) : nullptr,
                 cpu::tile_table(isa),
                 cpu::Scratch(threads.threads())} {}

  std::string name() const override {
    const bool widens = context_.dot == nullptr && cpu::dot_table(context_.isa) != nullptr;
    return fmt::format("cpu: {}{}", cpu::description(context_.isa),
                       widens ? ", its products in fp32" : "");
  }
  std::string choice() const override { return choice_.why; }

  std::int64_t packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                            DType dtype) const override {
    return cpu::packed_bytes(context_, form, out, in, dtype);
  }

  WeightForm forward_form(std::int64_t rows, std::int64_t in, DType dtype) const override {
    return cpu::forward_form(context_, rows, in, dtype);
  }

  std::int64_t row_tile() const override { return cpu::row_tile(); }

 private:
  // A host stream has no pending work, so the call may run here.
  void submit(const KernelCall& call, Stream&) override {
    for_each_tensor(call, [&](std::string_view tensor_name, const Tensor& tensor, Access) {
      PITON_ASSERT(tensor.place().kind == DeviceKind::kHost,
                   "cpu kernels: {} of {} is not on the host", tensor_name, piton::name(call));
    });
    std::visit([this](const auto& one) { cpu::execute(context_, one); }, call);
  }

  cpu::ProductChoice choice_;
  cpu::Context context_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(ThreadPool& threads, std::string isa) {
  const bool forced = !isa.empty();
  const cpu::Isa found = cpu::find_isa(isa);
  return std::make_unique<CpuKernels>(threads, found, cpu::choose_products(found, forced));
}

}  // namespace piton
