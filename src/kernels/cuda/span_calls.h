// Calls over flat spans that run together: the updates of an optimizer, and the sums of squares of
// gradients.
#pragma once

#include <span>
#include <tuple>

#include "kernels/cuda/context.h"
#include "kernels/kernels.h"

namespace piton::cuda {

// None writes what another one reads or writes.
template <typename Call>
using Calls = std::vector<const Call*>;

void execute(const Calls<AdamwUpdate>& calls, const CallContext& context);
void execute(const Calls<SgdUpdate>& calls, const CallContext& context);
void execute(const Calls<SignUpdate>& calls, const CallContext& context);
void execute(const Calls<MovingAverage>& calls, const CallContext& context);
void execute(const Calls<SquareSums>& calls, const CallContext& context);
void execute(const Calls<CadamMaxima>& calls, const CallContext& context);
void execute(const Calls<CadamUpdate>& calls, const CallContext& context);

// Whether all calls of the chains are some of these.
bool are_span_calls(std::span<const CallChain> chains);

// Runs the first calls of all chains together, then the second ones, and so on.
void execute_span_calls(std::span<const CallChain> chains, const CallContext& context);

}  // namespace piton::cuda
