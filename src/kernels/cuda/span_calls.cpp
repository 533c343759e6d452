#include "kernels/cuda/span_calls.h"

#include <algorithm>
#include <type_traits>

namespace piton::cuda {
namespace {

using AllSpanCalls =
    std::tuple<Calls<AdamwUpdate>, Calls<SgdUpdate>, Calls<SignUpdate>, Calls<MovingAverage>,
               Calls<SquareSums>, Calls<CadamMaxima>, Calls<CadamUpdate>>;

template <typename Call, typename All>
inline constexpr bool kIsIn = false;
template <typename Call, typename... All>
inline constexpr bool kIsIn<Call, std::tuple<Calls<All>...>> =
    std::disjunction_v<std::is_same<Call, All>...>;

}  // namespace

bool are_span_calls(std::span<const CallChain> chains) {
  return std::ranges::all_of(chains, [](const CallChain& chain) {
    return std::ranges::all_of(chain, [](const KernelCall& call) {
      return std::visit([]<typename Call>(const Call&) { return kIsIn<Call, AllSpanCalls>; }, call);
    });
  });
}

void execute_span_calls(std::span<const CallChain> chains, const CallContext& context) {
  std::size_t longest = 0;
  for (const CallChain& chain : chains) longest = std::max(longest, chain.size());
  for (std::size_t place = 0; place < longest; ++place) {
    AllSpanCalls calls;
    for (const CallChain& chain : chains) {
      if (place >= chain.size()) continue;
      std::visit(
          [&]<typename Call>(const Call& call) {
            if constexpr (kIsIn<Call, AllSpanCalls>) std::get<Calls<Call>>(calls).push_back(&call);
          },
          chain[place]);
    }
    std::apply([&](const auto&... each) { (execute(each, context), ...); }, calls);
  }
}

}  // namespace piton::cuda
