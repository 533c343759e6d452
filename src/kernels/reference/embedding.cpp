// Lookup of table rows by id, and noise on them.
#include "kernels/embedding.h"

#include "kernels/reference/calls.h"
#include "kernels/reference/mask.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const EmbeddingForward& call) {
  const Values table = Values::read(call.table);
  const Values ids = Values::read(call.ids);
  const std::int64_t rows = rows_used(call.used, call.ids.dim(0));
  Values y = call.add || call.used.defined() ? Values::read(call.y) : Values(call.y.shape());
  for (std::int64_t row = 0; row < rows; ++row) {
    if (!call.add) {
      for (std::int64_t i = 0; i < call.table.dim(1); ++i) y(row, i) = 0;
    }
    const std::int64_t id = static_cast<std::int64_t>(ids(row)) - call.vocabulary_begin;
    if (id < 0 || id >= call.table.dim(0)) continue;
    for (std::int64_t i = 0; i < call.table.dim(1); ++i) y(row, i) += table(id, i);
  }
  y.write(call.y);
}

void execute(const EmbeddingBackward& call) {
  const Values dy = Values::read(call.dy);
  const Values ids = Values::read(call.ids);
  Values dtable = Values::read(call.dtable);
  for (std::int64_t row = 0; row < call.ids.dim(0); ++row) {
    const std::int64_t id = static_cast<std::int64_t>(ids(row)) - call.vocabulary_begin;
    if (id < 0 || id >= call.dtable.dim(0)) continue;
    for (std::int64_t i = 0; i < call.dy.dim(1); ++i) dtable(id, i) += dy(row, i);
  }
  dtable.write(call.dtable);
}

void execute(const AddNoise& call) {
  Values y = Values::read(call.y);
  const Values bounds = Values::read(call.bounds);
  for (std::int64_t row = 0; row < call.y.dim(0); ++row) {
    for (std::int64_t i = 0; i < call.y.dim(1); ++i) {
      const auto word = static_cast<std::int32_t>(drawn_word(call.key, call.rows, row, i));
      y(row, i) += (bounds.given() ? bounds(row) : 1) * (word * 0x1p-31);
    }
  }
  y.write(call.y);
}

}  // namespace piton::reference
