// The back end: runs each call on the threads of the pool.
#include "kernels/cpu/kernels.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "kernels/cpu/context.h"
#include "kernels/cpu/processor/choice.h"

namespace piton {
namespace {

// A byte takes as long as this many operations of a product.
constexpr double kFlopsOfByte = 100;

double cost(const CallChain& chain) {
  double sum = 0;
  for (const KernelCall& call : chain) {
    sum += flops(call) + kFlopsOfByte * static_cast<double>(bytes_moved(call));
  }
  return sum;
}

// The order in which threads that take turns are done with the chains early; empty if they would
// wait for each other so long that dividing each call among them is faster, or compute so little
// that it is as fast.
std::vector<std::size_t> shared_out(const std::vector<CallChain>& chains, int threads) {
  constexpr double kMostWaiting = 0.2;  // of a thread's time
  const auto computes = [](const CallChain& chain) {
    return std::ranges::any_of(chain, [](const KernelCall& call) { return flops(call) > 0; });
  };
  if (std::ranges::none_of(chains, computes)) return {};
  std::vector<double> costs(chains.size());
  std::ranges::transform(chains, costs.begin(), cost);
  std::vector<std::size_t> order(chains.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return costs[i]; });
  std::vector<double> loads(static_cast<std::size_t>(threads));
  for (std::size_t i = 0; i < order.size(); ++i) loads[i % loads.size()] += costs[order[i]];
  const double all = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (std::ranges::max(loads) * (1 - kMostWaiting) > all / threads) order.clear();
  return order;
}

class CpuKernels final : public Kernels {
 public:
  CpuKernels(ThreadPool& threads, cpu::Isa isa, const cpu::ProductChoice& choice)
      : choice_(choice),
        context_{threads,
                 isa,
                 cpu::vector_table(isa),
                 cpu::panel_table(isa),
                 cpu::codes_table(isa),
                 choice.dot ? cpu::dot_table(isa) : nullptr,
                 cpu::tile_table(isa),
                 cpu::Scratch(threads.threads())},
        alone_(static_cast<std::size_t>(threads.threads())) {}

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

  WeightForm frozen_form(WeightForm form, DType dtype) const override {
    return cpu::frozen_form(context_, form, dtype);
  }

  bool reads_codes() const override { return true; }

  bool attends_to_latents(std::int64_t, std::int64_t) const override { return true; }

  std::int64_t row_tile() const override { return cpu::row_tile(); }

 private:
  // A host stream has no pending work, so the call may run here.
  void submit(const KernelCall& call, Stream&) override {
    expect_host(call);
    execute(context_, call);
  }

  // Each chain on one thread, whose caches keep what the next call reads.
  void submit_chains(const std::vector<CallChain>& chains, Stream& stream) override {
    const int threads = context_.threads.threads();
    const std::vector<std::size_t> order =
        threads == 1 ? std::vector<std::size_t>() : shared_out(chains, threads);
    if (order.empty()) return Kernels::submit_chains(chains, stream);
    const auto part = [&](std::int64_t index) {
      cpu::CpuContext& alone = alone_of_this_thread();
      for (const KernelCall& call : chains[order[static_cast<std::size_t>(index)]]) {
        expect_host(call);
        execute(alone, call);
      }
    };
    context_.threads.run(static_cast<std::int64_t>(chains.size()), part);
  }

  static void expect_host(const KernelCall& call) {
    for_each_tensor(call, [&](std::string_view tensor_name, const Tensor& tensor, Access) {
      PITON_ASSERT(tensor.place().kind == DeviceKind::kHost,
                   "cpu kernels: {} of {} is not on the host", tensor_name, piton::name(call));
    });
  }
  static void execute(cpu::CpuContext& context, const KernelCall& call) {
    std::visit([&](const auto& one) { cpu::execute(context, one); }, call);
  }

  // In which a part of a job does whole calls by itself.
  cpu::CpuContext& alone_of_this_thread() {
    std::unique_ptr<cpu::CpuContext>& alone =
        alone_[static_cast<std::size_t>(ThreadPool::thread_index())];
    if (alone == nullptr) {
      alone.reset(new cpu::CpuContext{one_thread_, context_.isa, context_.vector, context_.panels,
                                      context_.codes, context_.dot, context_.tiles,
                                      cpu::Scratch(context_.threads.threads())});
    }
    return *alone;
  }

  cpu::ProductChoice choice_;
  cpu::CpuContext context_;
  ThreadPool one_thread_{1};
  std::vector<std::unique_ptr<cpu::CpuContext>> alone_;  // by thread
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(ThreadPool& threads, std::string isa) {
  const bool forced = !isa.empty();
  const cpu::Isa found = cpu::find_isa(isa);
  return std::make_unique<CpuKernels>(threads, found, cpu::choose_products(found, forced));
}

}  // namespace piton
