// The gated delta rule and that of a state space, forward: in training, and from the states of
// texts.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/recurrent/delta_rule.cuh"

namespace piton::cuda {
namespace {

template <typename T>
struct DeltaForwardArguments {
  DeltaInputs<T> in;
  T* out;           // [n, hv, dv]
  Wide<T>* states;  // [slots, hv, dk, dv], or nullptr
};

template <typename T, int kParts>
__global__ void __launch_bounds__(kDeltaThreads, kBlocks)
    run_delta_forward(DeltaForwardArguments<T> a) {
  const DeltaInputs<T>& in = a.in;
  const int lane = threadIdx.x % kWarp;
  const std::int64_t first =
      std::int64_t{blockIdx.x} * kDeltaTile<T> + threadIdx.x / kWarp * kDeltaColumns<T>;
  const std::int64_t head = blockIdx.y;
  const RowsOfText text = in.texts.of(blockIdx.z);
  WarpState<T, kParts> state;
  state.clear();
  const auto for_each_stored = [&](auto body) {
    for (int c = 0; c < kDeltaColumns<T>; ++c) {
      for (int p = 0; p < kParts; ++p) {
        const std::int64_t i = lane + p * kWarp;
        if (i >= in.keys || first + c >= in.values) continue;
        body(state.s[c][p],
             a.states[((text.slot * in.heads + head) * in.keys + i) * in.values + first + c]);
      }
    }
  };
  if (text.continues) for_each_stored([](Wide<T>& one, const Wide<T>& stored) { one = stored; });
  const Wide<T> skip = in.corrects ? Wide<T>{0} : widen(in.skip[head]);
  for (std::int64_t t = text.begin; t < text.end; ++t) {
    const DeltaRow<T, kParts> row(in, text, t, head);
    const KeyRow<T, kParts> q(in, in.q, t, head, in.factor);
    state.keep(row);
    for (int c = 0; c < kDeltaColumns<T>; ++c) {
      const bool is_there = first + c < in.values;
      const Wide<T> v = is_there ? widen(in.v.at(t, head, first + c)) : Wide<T>{0};
      state.add(row, c, row.strength * state.error(row, c, v));
      Wide<T> sum = 0;
      for (int p = 0; p < kParts; ++p) sum += state.s[c][p] * q.x[p];
      sum = sum_of_warp(sum);
      if (!in.corrects) sum += skip * v;
      if (is_there && lane == 0)
        a.out[(t * in.heads + head) * in.values + first + c] = narrow<T>(sum);
    }
  }
  if (text.slot >= 0) for_each_stored([](const Wide<T>& one, Wide<T>& stored) { stored = one; });
}

}  // namespace

void execute(const DeltaRuleForward& call, const CallContext& context) {
  if (call.in.q.dim(0) == 0) return;
  const std::int64_t texts = call.texts.given() ? call.texts.slots.dim(0) : call.in.samples;
  with_floating(call.in.q.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_key_parts(call.in.q.dim(2), [&](auto parts) {
      launch("launch of delta rule forward", run_delta_forward<T, decltype(parts)::value>,
             {.blocks = {static_cast<unsigned>(delta_tiles<T>(call.in)),
                         static_cast<unsigned>(call.in.v.dim(1)), static_cast<unsigned>(texts)},
              .threads = kDeltaThreads},
             DeltaForwardArguments<T>{.in = delta_inputs<T>(call.in, call.texts),
                                      .out = pointer<T>(call.out),
                                      .states = pointer<Wide<T>>(call.state)},
             context.stream);
    });
  });
}

}  // namespace piton::cuda
