// Muon's momentum, scaling and update.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

namespace piton::cuda {
namespace {

struct Momentum {
  float* direction;
  float* buffer;
  const float* gradient;
  const float* scalars;
  float momentum;
  float rest;  // 1 - momentum
  bool nesterov;

  __device__ void operator()(std::int64_t i) const {
    if (scalars[kApply] == 0) {
      direction[i] = 0;
      return;
    }
    const float g = gradient[i] * scalars[kGradientScale];
    const float m = momentum * buffer[i] + rest * g;
    buffer[i] = m;
    direction[i] = nesterov ? momentum * m + rest * g : m;
  }
};

template <typename T>
struct Normalize {
  T* x;
  const float* direction;
  const double* sums;
  std::int64_t parts;
  std::int64_t n;
  double eps;
};

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) normalize(Normalize<T> all) {
  const double root = sqrt(sum_in_block(all.sums, all.parts, shared_array<double>()));
  const auto divisor = static_cast<Wide<T>>(root > all.eps ? root : all.eps);
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all.n; i += step) {
    all.x[i] = narrow<T>(static_cast<Wide<T>>(all.direction[i]) / divisor);
  }
}

template <typename T, typename D>
struct Update {
  float* main;
  T* copy;  // or nullptr
  const D* direction;
  const float* scalars;
  float decay_multiplier;
  float lr_multiplier;

  __device__ void operator()(std::int64_t i) const {
    if (scalars[kApply] == 0) return;
    const float lr = scalars[kLearningRate];
    const float x = main[i] * (1.0F - lr * scalars[kWeightDecay] * decay_multiplier) -
                    lr * lr_multiplier * static_cast<float>(widen(direction[i]));
    main[i] = x;
    if (copy != nullptr) copy[i] = narrow<T>(x);
  }
};

}  // namespace

void execute(const MuonMomentum& call, const CallContext& context) {
  launch_elements("launch of muon momentum", call.buffer.elements(),
                  Momentum{.direction = pointer<float>(call.direction),
                           .buffer = pointer<float>(call.buffer),
                           .gradient = pointer<const float>(call.gradient),
                           .scalars = pointer<const float>(call.scalars),
                           .momentum = static_cast<float>(call.momentum),
                           .rest = static_cast<float>(1 - call.momentum),
                           .nesterov = call.nesterov},
                  context.stream);
}

void execute(const MuonNormalize& call, const CallContext& context) {
  const std::int64_t n = call.x.elements();
  if (n == 0) return;
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch(
        "launch of muon normalize", normalize<T>,
        {.blocks = {blocks_for(n, 16 * kThreads), 1, 1}, .shared_bytes = kWarps * sizeof(double)},
        Normalize<T>{pointer<T>(call.x), pointer<const float>(call.direction),
                     pointer<const double>(call.sums), call.sums.dim(0), n, call.eps},
        context.stream);
  });
}

void execute(const MuonUpdate& call, const CallContext& context) {
  const DType copied = call.copy.defined() ? call.copy.dtype() : DType::kF32;
  with_floating(copied, [&]<typename T>(std::type_identity<T>) {
    with_floating(call.direction.dtype(), [&]<typename D>(std::type_identity<D>) {
      launch_elements("launch of muon update", call.main.elements(),
                      Update<T, D>{.main = pointer<float>(call.main),
                                   .copy = pointer<T>(call.copy),
                                   .direction = pointer<const D>(call.direction),
                                   .scalars = pointer<const float>(call.scalars),
                                   .decay_multiplier = static_cast<float>(call.decay_multiplier),
                                   .lr_multiplier = static_cast<float>(call.lr_multiplier)},
                      context.stream);
    });
  });
}

}  // namespace piton::cuda
