// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon). The update of a matrix is the
// momentum of its gradient (the direction), made nearly orthogonal by Newton-Schulz iterations.
// Muon updates the matrices of the model's layers. AdamW updates embeddings, biases and gains.
//
// The matrices are those of the unsplit model; q, k, v, gate and up are separate matrices. If a
// matrix is split over tensor ranks, each rank gathers the whole direction, computes the whole
// update and applies its own part. The result therefore does not depend on the layout. Under ZeRO 1
// and 2, one data-parallel rank updates all local elements of a matrix
// (CutPolicy::kWholeParameters). Under ZeRO 3 they are cut: each rank has the momentum of its part,
// and sends its part of the direction to the owner of the matrix, which sends back the rank's part
// of the update (optim/matrix_rounds.h).
//
// With x = direction / its Frobenius norm, each of the `steps` iterations computes
//   gram = x x^T                      if rows <= columns, else x^T x
//   P = a I + b gram + c gram^2
//   x = P x                           if rows <= columns, else x P
// in bf16 if the weights are bf16 or fp16, in fp32 if they are fp32. In bf16, up to three
// iterations of a matrix that is not nearly square share one Gram matrix: all P commute, so the
// Gram matrix of P x is P gram P, and the product of the P is applied once. Gram matrices and P are
// symmetric: half of each is computed (SymmetricProduct). The coefficients do not make the
// iteration converge to 1: the singular values end between about 0.7 and 1.2. The result is then
// multiplied by a factor that depends on the shape of the matrix (`scale`):
//   spectral       sqrt(max(rows, columns))
//   unit_rms_norm  sqrt(rows / columns)
//   shape_scaling  sqrt(max(1, rows / columns))
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/options/options.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/parameter.h"
#include "optim/matrix_rounds.h"

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

  // What this rank has of a matrix: elements [offset, offset + n) of the parameter's local tensor.
  struct Span {
    const Parameter* parameter = nullptr;  // is_matrix()
    std::int64_t offset = 0;
    MatrixCut cut;    // not cut: n is the number of its local elements
    int owner = 0;    // MatrixOfRound::owner
    Tensor main;      // fp32 [n]  updated
    Tensor copy;      // [n] in the weights' dtype, written; or empty
    Tensor buffer;    // fp32 [n]  momentum, updated
    Tensor gradient;  // fp32 [n]
    Tensor scalars;   // fp32 [kStepScalars], set by BeginUpdate
  };
  // Enqueues the updates of the matrices of one round. Collective over the tensor ranks if a
  // parameter is split over them, and over the ranks of a cut.
  void update(const std::vector<Span>& round, Stream& stream);

 private:
  // A span during its round.
  struct Work {
    Tensor whole;                // fp32 [elements], the direction, on the owner; else empty
    Tensor direction;            // fp32 [n], this rank's part of it, until it is collected
    Tensor orthogonal;           // [elements], the update, on the owner
    Tensor update;               // [n], this rank's part of the update
    std::vector<Event> arrived;  // the other parts of `whole`, or `update`
    std::vector<Event> sent;     // the parts of the update for other ranks
  };
  // The dtype in which the matrices of a parameter are orthogonalized.
  static DType dtype_of(const Parameter& parameter);
  // Whether other ranks hold parts of the span's matrix.
  static bool is_cut(const Span& span);
  // Whether no other rank has to do with it.
  bool is_alone(const Span& span) const;
  static bool is_owner(const Span& span);
  // Enqueues the momentum, unless the span is alone.
  Work begin(const Span& span, Stream& stream);
  class RoundMessages;
  // Starts to collect the directions of cut matrices on their owners.
  void collect(const std::vector<Span>& round, std::vector<Work>& works, Stream& stream);
  // On the owner: adds the calls that compute the update and, if the matrix is not cut, apply it.
  void add_chains(const Span& span, Work& work, std::vector<CallChain>& chains, Stream& stream);
  // Starts to send the updates of cut matrices to all of their ranks.
  void distribute(const std::vector<Span>& round, std::vector<Work>& works, Stream& stream);
  void apply(const Span& span, const Work& work, Stream& stream);
  // Elements [begin, end) of the local tensor of a parameter.
  struct Elements {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  // The update of these elements, which are in the piece.
  MuonUpdate applied(const Span& span, const Piece& piece, Elements elements,
                     const Tensor& update) const;
  // Of a span, or of a part of it.
  MuonMomentum momentum(const Tensor& direction, const Tensor& buffer, const Tensor& gradient,
                        const Tensor& scalars) const;
  // local: fp32 [piece.extent], this rank's part of the direction. Returns fp32 [piece.global].
  Tensor whole_direction(const Parameter& parameter, const Piece& piece, const Tensor& local,
                         Stream& stream);
  // direction: fp32 [rows, columns]; y: [rows, columns], written.
  void orthogonalize(const Tensor& direction, const Tensor& y, CallChain& chain, Stream& stream);
  static Tensor polynomials(const Tensor& x, std::int64_t count, std::array<Tensor, 4>& squares,
                            CallChain& chain);
  static WeightView weight(const Tensor& matrix, WeightForm form, const Tensor& memory,
                           CallChain& chain);
  // whole: [piece.global]. Returns this rank's part of it, [piece.extent], a view.
  Tensor own_part(const Parameter& parameter, const Piece& piece, const Tensor& whole) const;
  Tensor memory(DType dtype, const Shape& shape, Stream& stream);

  MuonOptions options_;
  Communicator* tensor_ranks_;
  Kernels* kernels_;
  Device* device_;
  Arena* arena_;
};

}  // namespace piton
