// CAdam (AscendSpeed): updates by the sign of a momentum that is kept in fp16, with one scale for
// each row. Formulas: kernels/cadam.h.
//
// Rows are those of the canonical tensors: of the model without any split; q, k, v, gate and up
// each have their own. A row may be cut, over tensor ranks and by ZeRO. So each rank writes the
// maxima of its parts of rows into a table of all rows of the model, and one all-reduce makes them
// the maxima of whole rows: 4 bytes for each row. A maximum does not depend on the order, so the
// result does not depend on the layout.
#pragma once

#include <cstdint>
#include <vector>

#include "base/options/options.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "kernels/compute_context.h"
#include "ops/parameter.h"

namespace piton {

struct CadamOptions {
  double beta = 0.965;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"cadam-beta", "cadam: decay of the momentum", {.resume = Resume::kMustMatch}}, beta);
  }

  // Throws Error(kUsage) naming the flag.
  void check() const;
};

// Consecutive elements of one piece of a parameter, in rows of canonical tensors.
struct RowRun {
  const Piece* piece = nullptr;
  std::int64_t begin = 0;         // first element, counted in the span
  std::int64_t size = 0;          // elements
  std::int64_t columns = 1;       // of a row of the local tensor
  std::int64_t first_column = 0;  // of element `begin`
  std::int64_t first_row = 0;     // of element `begin`, in the piece's part of its canonical tensor
  std::int64_t rows = 0;
  std::int64_t place = 0;  // of the first row, in a tensor with one value for each row of the span
};
// The runs of elements [begin, begin + size) of the parameter's local tensor. A tensor of one dim
// is one row. Padding is in no run.
std::vector<RowRun> row_runs(const Parameter& parameter, std::int64_t begin, std::int64_t size);
// The sum of their rows.
std::int64_t rows_of(const Parameter& parameter, std::int64_t begin, std::int64_t size);

class Cadam {
 public:
  struct Span {
    const Parameter* parameter = nullptr;
    std::int64_t offset = 0;  // first element, counted in the parameter's local tensor
    Tensor main;              // fp32 [n]  updated
    Tensor copy;              // [n] in the weights' dtype, written; or empty
    Tensor momentum;          // fp16 [n]  updated
    Tensor scales;            // fp32 [rows_of() the span]  updated
    Tensor gradient;          // fp32 [n]
    Tensor scalars;           // fp32 [kStepScalars], set by BeginUpdate
  };
  // Collective over all ranks of `mesh`. Keeps the tensors of `spans`, which are those of this rank
  // in every step. `mesh` and `compute` must outlive this object; the stream of `compute` is used
  // here only.
  Cadam(const CadamOptions& options, const std::vector<Span>& spans, Mesh& mesh,
        const ComputeContext& compute);

  // Enqueues the updates. Collective.
  void update(Stream& stream);

 private:
  // A run of a span, with all tensors cut to it.
  struct Part {
    Span span;
    RowRun run;
    Tensor maxima;  // fp32 [run.rows], a slice of maxima_
  };

  CadamOptions options_;
  Communicator* ranks_;
  Kernels* kernels_;
  Device* device_;
  Arena* arena_;
  Tensor maxima_;  // fp32 [rows of the whole model]; empty if nothing is trainable
  std::vector<Part> parts_;
};

}  // namespace piton
