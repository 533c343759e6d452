// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): the momentum of a matrix's
// gradient, made nearly orthogonal, is its update. For the matrices of a model's layers; tables,
// biases and gains go by AdamW.
//
// A matrix is a canonical tensor: q, k, v, gate and up apart, whole. Where tensor ranks split it,
// each of them gathers all of its direction and computes the same update, of which it takes its
// part: so the layout does not change the experiment. The optimizer's state and the value of a
// matrix are on one data-parallel rank (CutPolicy::kWholeParameters).
//
// With x the direction divided by its Frobenius norm, each of `steps` iterations is
//   gram = x x^T (rows <= columns; else x^T x)      P = a I + b gram + c gram^2      x = P x (x P)
// in bf16 where the weights have 16 bits, with the roundings of products of that type; in fp32
// where they are fp32. The coefficients do not converge to 1: singular values end between about 0.7
// and 1.2, after which the update is scaled by the matrix's shape, as `scale` says:
//   spectral       sqrt(max(rows, columns))
//   unit_rms_norm  sqrt(rows / columns)
//   shape_scaling  sqrt(max(1, rows / columns))
#pragma once

#include <cstdint>

#include "base/options.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/parameter.h"

namespace piton {

enum class MuonScale : std::uint8_t { kSpectral, kUnitRmsNorm, kShapeScaling };

struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = false;
  MuonScale scale = MuonScale::kSpectral;
  std::int64_t steps = 5;
  double extra_scale = 1;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"muon-momentum", "muon: decay of the mean of gradients", same}, momentum);
    v(Option{"muon-use-nesterov", "muon: look one step of the momentum ahead", same}, nesterov);
    v(Option{"muon-scale-mode", "muon: how the update grows with a matrix's shape", same},
      Choice(scale, {{"spectral", MuonScale::kSpectral},
                     {"unit_rms_norm", MuonScale::kUnitRmsNorm},
                     {"shape_scaling", MuonScale::kShapeScaling}}));
    v(Option{"muon-num-ns-steps", "muon: Newton-Schulz iterations", same}, steps);
    v(Option{"muon-extra-scale-factor",
             "muon: one more factor of the update (0.2: as large as AdamW's)", same},
      extra_scale);
  }

  // Throws Error(kUsage) naming the flag.
  void check() const;
};

class Muon {
 public:
  // Collective over the tensor ranks of `mesh`. All but the options outlive it.
  Muon(const MuonOptions& options, Mesh& mesh, Kernels& kernels, Device& device, Arena& arena);

  struct Span {
    const Parameter* parameter = nullptr;  // is_matrix(); all of its local elements, n
    Tensor main;                           // fp32 [n]  updated
    Tensor copy;                           // [n] in the weights' dtype, written; or empty
    Tensor buffer;                         // fp32 [n]  updated
    Tensor gradient;                       // fp32 [n]
  };
  // Enqueues the update. Collective over the tensor ranks where they split the parameter. `scalars`
  // as of BeginUpdate.
  void update(const Span& span, const Tensor& scalars, Stream& stream);

 private:
  Tensor whole_direction(const Parameter& parameter, const Piece& piece, const Tensor& local,
                         Stream& stream);
  Tensor orthogonal(const Tensor& direction, DType dtype, Stream& stream);
  Tensor polynomial(const Tensor& gram, Stream& stream);
  Tensor own_part(const Parameter& parameter, const Piece& piece, const Tensor& whole,
                  Stream& stream);
  Tensor memory(DType dtype, const Shape& shape, Stream& stream);

  MuonOptions options_;
  Communicator* tensor_ranks_;
  Kernels* kernels_;
  Device* device_;
  Arena* arena_;
};

}  // namespace piton
