#include "optim/cadam.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

std::int64_t canonical_rows(const Piece& piece) {
  return piece.global.ndim() > 1 ? piece.global[0] : 1;
}

// The first row of each canonical tensor in a table of all rows of the model, by name, and the
// number of rows. Collective.
std::pair<std::map<std::string, std::int64_t>, std::int64_t> table_of_rows(
    const std::vector<Cadam::Span>& spans, Communicator& ranks) {
  std::string mine;
  for (const Cadam::Span& span : spans) {
    for (const Piece& piece : span.parameter->pieces) {
      mine += fmt::format("{} {}\n", canonical_rows(piece), piece.name);
    }
  }
  std::map<std::string, std::int64_t> first;
  for (const std::string& text : ranks.gather_bytes(mine)) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t space = text.find(' ', at);
      const std::size_t end = text.find('\n', at);
      first[text.substr(space + 1, end - space - 1)] = std::stoll(text.substr(at, space - at));
      at = end + 1;
    }
  }
  std::int64_t rows = 0;
  for (auto& [name, count] : first) rows += std::exchange(count, rows);
  return {std::move(first), rows};
}

}  // namespace

void CadamOptions::check() const {
  if (!(beta >= 0 && beta < 1)) {
    throw Error(Fault::kUsage, "optimizer: --cadam-beta: got {}, wanted at least 0 and below 1",
                beta);
  }
}

std::vector<RowRun> row_runs(const Parameter& parameter, std::int64_t begin, std::int64_t size) {
  const std::int64_t local_rows = parameter.shape.ndim() == 0 ? 1 : parameter.shape[0];
  const std::int64_t columns = local_rows == 0 ? 0 : parameter.elements() / local_rows;
  std::vector<RowRun> runs;
  std::int64_t place = 0;
  for (const Piece& piece : parameter.pieces) {
    const std::int64_t piece_begin = piece.local_row * columns;
    const std::int64_t first = std::max(begin, piece_begin);
    const std::int64_t last = std::min(begin + size, piece_begin + piece.extent.elements());
    if (first >= last) continue;
    const bool one_row = piece.global.ndim() < 2;
    RowRun run{.piece = &piece, .begin = first - begin, .size = last - first, .place = place};
    run.columns = one_row ? piece.extent.elements() : columns;
    run.first_column = (first - piece_begin) % run.columns;
    run.first_row = (first - piece_begin) / run.columns;
    run.rows = span_rows(run.size, run.columns, run.first_column);
    place += run.rows;
    runs.push_back(run);
  }
  return runs;
}

std::int64_t rows_of(const Parameter& parameter, std::int64_t begin, std::int64_t size) {
  std::int64_t rows = 0;
  for (const RowRun& run : row_runs(parameter, begin, size)) rows += run.rows;
  return rows;
}

Cadam::Cadam(const CadamOptions& options, const std::vector<Span>& spans, Mesh& mesh,
             const ComputeContext& compute)
    : options_(options),
      ranks_(&mesh.group(kAllAxes)),
      kernels_(&compute.kernels),
      device_(&compute.device),
      arena_(&compute.arena) {
  const auto [first, rows] = table_of_rows(spans, *ranks_);
  if (rows == 0) return;
  maxima_ = arena_->allocate(DType::kF32, {rows}, MemoryKind::kOptimizer, compute.stream);
  for (const Span& span : spans) {
    for (const RowRun& run : row_runs(*span.parameter, span.offset, span.gradient.elements())) {
      const auto part = [&](const Tensor& tensor) {
        return tensor.defined() ? tensor.slice(0, run.begin, run.size) : Tensor();
      };
      const bool split_rows = run.piece->global.ndim() > 1;
      const std::int64_t row =
          first.at(run.piece->name) + (split_rows ? run.piece->start[0] + run.first_row : 0);
      parts_.push_back({.span = {.parameter = span.parameter,
                                 .offset = span.offset + run.begin,
                                 .main = part(span.main),
                                 .copy = part(span.copy),
                                 .momentum = part(span.momentum),
                                 .scales = span.scales.slice(0, run.place, run.rows),
                                 .gradient = part(span.gradient),
                                 .scalars = span.scalars},
                        .run = run,
                        .maxima = maxima_.slice(0, row, run.rows)});
    }
  }
}

void Cadam::update(Stream& stream) {
  if (!maxima_.defined()) return;
  device_->zero(maxima_, stream);  // rows of other ranks
  std::vector<CallChain> maxima;
  for (const Part& part : parts_) {
    maxima.push_back({CadamMaxima{.maxima = part.maxima,
                                  .momentum = part.span.momentum,
                                  .scales = part.span.scales,
                                  .gradient = part.span.gradient,
                                  .scalars = part.span.scalars,
                                  .columns = part.run.columns,
                                  .first_column = part.run.first_column,
                                  .beta = options_.beta}});
  }
  kernels_->run_chains(maxima, stream);
  const Event reduced = ranks_->all_reduce(maxima_, Reduction::kMax, stream);
  arena_->hold(maxima_, reduced.fence());
  stream.wait(reduced);
  std::vector<CallChain> updates;
  for (const Part& part : parts_) {
    updates.push_back({CadamUpdate{.main = part.span.main,
                                   .momentum = part.span.momentum,
                                   .scales = part.span.scales,
                                   .copy = part.span.copy,
                                   .maxima = part.maxima,
                                   .gradient = part.span.gradient,
                                   .scalars = part.span.scalars,
                                   .columns = part.run.columns,
                                   .first_column = part.run.first_column,
                                   .beta = options_.beta,
                                   .decay_multiplier = part.run.piece->decays ? 1.0 : 0.0}});
  }
  kernels_->run_chains(updates, stream);
}

}  // namespace piton
