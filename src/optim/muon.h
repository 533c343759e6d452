// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon). The update of a matrix is the
// momentum of its gradient (the direction), made nearly orthogonal by Newton-Schulz iterations.
// Muon updates the matrices of the model's layers. AdamW updates embeddings, biases and gains.
//
// The matrices are those of the unsplit model; q, k, v, gate and up are separate matrices. If a
// matrix is split over tensor ranks, each rank gathers the whole direction, computes the whole
// update and applies its own part. The result therefore does not depend on the layout. Under ZeRO,
// one data-parallel rank updates all local elements of a matrix (CutPolicy::kWholeParameters).
//
// With x = direction / its Frobenius norm, each of the `steps` iterations computes
//   gram = x x^T                      if rows <= columns, else x^T x
//   P = a I + b gram + c gram^2
//   x = P x                           if rows <= columns, else x P
// in bf16 if the weights are bf16 or fp16, in fp32 if they are fp32. The coefficients do not make
// the iteration converge to 1: the singular values end between about 0.7 and 1.2. The result is
// then multiplied by a factor that depends on the shape of the matrix (`scale`):
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
    v(Option{"muon-momentum", "muon: decay of the momentum", same}, momentum);
    v(Option{"muon-use-nesterov", "muon: use Nesterov momentum", same}, nesterov);
    v(Option{"muon-scale-mode", "muon: how the update depends on the shape of the matrix", same},
      Choice(scale, {{"spectral", MuonScale::kSpectral},
                     {"unit_rms_norm", MuonScale::kUnitRmsNorm},
                     {"shape_scaling", MuonScale::kShapeScaling}}));
    v(Option{"muon-num-ns-steps", "muon: number of Newton-Schulz iterations", same}, steps);
    v(Option{"muon-extra-scale-factor",
             "muon: additional factor of the update (0.2: as large as AdamW's)", same},
      extra_scale);
  }

  // Throws Error(kUsage) naming the flag.
  void check() const;
};

class Muon {
 public:
  // Collective over the tensor ranks of `mesh`. All arguments but the options must outlive this
  // object.
  Muon(const MuonOptions& options, Mesh& mesh, Kernels& kernels, Device& device, Arena& arena);

  struct Span {
    const Parameter* parameter = nullptr;  // is_matrix(); n is the number of its local elements
    Tensor main;                           // fp32 [n]  updated
    Tensor copy;                           // [n] in the weights' dtype, written; or empty
    Tensor buffer;                         // fp32 [n]  momentum, updated
    Tensor gradient;                       // fp32 [n]
  };
  // Enqueues the update. Collective over the tensor ranks if the parameter is split over them.
  // `scalars`: fp32 [kStepScalars], set by BeginUpdate.
  void update(const Span& span, const Tensor& scalars, Stream& stream);

 private:
  // local: fp32 [piece.extent], this rank's part of the direction. Returns fp32 [piece.global].
  Tensor whole_direction(const Parameter& parameter, const Piece& piece, const Tensor& local,
                         Stream& stream);
  // direction: fp32 [rows, columns]. Returns [rows, columns] in `dtype`.
  Tensor orthogonal(const Tensor& direction, DType dtype, Stream& stream);
  // gram: [n, n]. Returns P, [n, n].
  Tensor polynomial(const Tensor& gram, Stream& stream);
  // whole: [piece.global]. Returns this rank's part, [piece.extent].
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
