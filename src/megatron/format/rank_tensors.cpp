#include "megatron/format/rank_tensors.h"

#include <algorithm>

namespace piton {

void RankTensors::norm(const std::string& key, const std::string& name) {
  whole(key + ".weight", name + ".weight", {model_.hidden});
  if (model_.norm == NormKind::kLayer) whole(key + ".bias", name + ".bias", {model_.hidden});
}

void RankTensors::table(const std::string& key, const std::string& name) {
  const std::int64_t rows = layout_.padded_vocabulary / layout_.tensor;
  const std::int64_t first = t_ * rows;
  const std::int64_t own = std::clamp<std::int64_t>(model_.vocabulary - first, 0, rows);
  Assembly table{.shape = {rows, model_.hidden}};
  if (own > 0)
    table.parts.push_back(
        box(name,
            {.first = first, .rows = own, .first_column = 0, .columns = model_.hidden, .row = 0}));
  for (std::int64_t row = own; row < rows; ++row)
    table.parts.push_back(box(name, {.first = model_.vocabulary - 1,
                                     .rows = 1,
                                     .first_column = 0,
                                     .columns = model_.hidden,
                                     .row = row}));
  add(key, std::move(table));
}

void RankTensors::row_biases(const std::string& key, const std::string& name) {
  const std::int64_t rows = layout_.padded_vocabulary / layout_.tensor;
  const std::int64_t first = t_ * rows;
  const std::int64_t own = std::clamp<std::int64_t>(model_.vocabulary - first, 0, rows);
  Assembly biases{.shape = {rows}};
  if (own > 0) biases.parts.push_back(box(name, {.first = first, .rows = own}));
  if (own < rows) biases.parts.push_back(box("", {.first = 0, .rows = rows - own, .row = own}));
  add(key, std::move(biases));
}

void RankTensors::cross_kv(const std::string& key, const std::string& at, bool bias) {
  const std::int64_t d = model_.head_size;
  const std::int64_t heads = model_.heads / layout_.tensor;
  const std::int64_t columns = bias ? 0 : model_.hidden;
  const std::string end = bias ? ".bias" : ".weight";
  Assembly packed{.shape = shape(2 * heads * d, columns)};
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t first = (t_ * heads + head) * d;
    for (const auto& [which, row] :
         {std::pair{"key", 2 * head * d}, {"value", (2 * head + 1) * d}}) {
      packed.parts.push_back(
          box(at + which + end, {.first = first, .rows = d, .columns = columns, .row = row}));
    }
  }
  add(key + end, std::move(packed));
}

void RankTensors::qkv(const std::string& key, const std::string& at, bool bias) {
  const std::int64_t d = model_.head_size;
  const std::int64_t groups = model_.groups / layout_.tensor;
  const std::int64_t share = model_.heads / model_.groups;
  const std::int64_t columns = bias ? 0 : model_.hidden;
  const std::string end = bias ? ".bias" : ".weight";
  const std::string names[] = {at + "query" + end, at + "key" + end, at + "value" + end,
                               at + "gate" + end};
  const std::int64_t queries = model_.output_gate ? 2 * share : share;  // and gates
  Assembly packed{.shape = shape(groups * (queries + 2) * d, columns)};
  const auto part = [&](int which, std::int64_t first, std::int64_t rows, std::int64_t row) {
    packed.parts.push_back(
        box(names[which],
            {.first = first, .rows = rows, .first_column = 0, .columns = columns, .row = row}));
  };
  if (layout_.version >= 2) {
    for (std::int64_t group = 0; group < groups; ++group) {
      const std::int64_t whole = t_ * groups + group;
      const std::int64_t row = group * (queries + 2) * d;
      part(0, whole * share * d, share * d, row);
      if (model_.output_gate) part(3, whole * share * d, share * d, row + share * d);
      part(1, whole * d, d, row + queries * d);
      part(2, whole * d, d, row + (queries + 1) * d);
    }
  } else {
    const std::int64_t rows = groups * d;
    for (int which = 0; which < 3; ++which) {
      if (layout_.version < 1) {
        part(which, t_ * rows, rows, which * rows);
      } else {
        for (std::int64_t i = 0; i < rows; ++i) part(which, t_ * rows + i, 1, 3 * i + which);
      }
    }
  }
  add(key + end, std::move(packed));
}

void RankTensors::rows_of(const std::string& key, const std::vector<std::string>& names,
                          std::int64_t rows, bool bias, const Share& share) {
  const std::string end = bias ? ".bias" : ".weight";
  const std::int64_t columns = bias ? 0 : model_.hidden;
  const std::int64_t own = rows / share.ranks;
  Assembly packed{.shape = shape(own * std::ssize(names), columns)};
  for (std::int64_t i = 0; i < std::ssize(names); ++i) {
    packed.parts.push_back(box(names[static_cast<std::size_t>(i)] + end, {.first = share.rank * own,
                                                                          .rows = own,
                                                                          .first_column = 0,
                                                                          .columns = columns,
                                                                          .row = i * own}));
  }
  add(key + end, std::move(packed));
}

void RankTensors::stacked(const std::string& key, const std::vector<Rows>& parts,
                          std::int64_t columns) {
  Assembly stack;
  std::int64_t row = 0;
  for (const Rows& part : parts) {
    stack.parts.push_back(
        box(part.name, {.first = part.first, .rows = part.rows, .columns = columns, .row = row}));
    row += part.rows;
  }
  stack.shape = shape(row, columns);
  add(key, std::move(stack));
}

void RankTensors::shares_of(const std::string& key, const std::vector<Part>& parts,
                            std::int64_t columns) {
  std::vector<Rows> own;
  for (const Part& part : parts) {
    const std::int64_t rows = part.rows / layout_.tensor;
    own.push_back({part.name, t_ * rows, rows});
  }
  stacked(key, own, columns);
}

void RankTensors::of_heads(const std::string& key, const HeadRows& of, std::int64_t columns) {
  const std::int64_t heads = model_.heads / layout_.tensor;
  std::vector<Rows> parts;
  for (std::int64_t head = t_ * heads; head < (t_ + 1) * heads; ++head)
    parts.push_back({of.name, head * (of.before + of.rows + of.after) + of.before, of.rows});
  stacked(key, parts, columns);
}

void RankTensors::rows_of_width(const std::string& key, const std::string& name, std::int64_t rows,
                                std::int64_t width) {
  rows_of_matrix(key, name, {rows / layout_.tensor, width}, t_);
}

void RankTensors::small_rows(const std::string& key, const std::string& name, std::int64_t rows) {
  const bool split = layout_.split_latents;
  rows_of_matrix(key, name, {split ? rows / layout_.tensor : rows, model_.hidden}, split ? t_ : 0);
}

void RankTensors::columns_of(const std::string& key, const std::string& name, std::int64_t columns,
                             bool bias, const Share& share) {
  const std::int64_t own = columns / share.ranks;
  add(key + ".weight", {.shape = {model_.hidden, own},
                        .parts = {box(name + ".weight", {.first = 0,
                                                         .rows = model_.hidden,
                                                         .first_column = share.rank * own,
                                                         .columns = own,
                                                         .row = 0})}});
  if (bias) whole(key + ".bias", name + ".bias", {model_.hidden});
}

void RankTensors::rows_of_matrix(const std::string& key, const std::string& name,
                                 const Shape& shape, std::int64_t i) {
  add(key + ".weight",
      {.shape = shape,
       .parts = {
           box(name + ".weight", {.first = i * shape[0], .rows = shape[0], .columns = shape[1]})}});
}

AssemblyPart RankTensors::box(const std::string& name, const Box& box) {
  AssemblyPart part{.name = name, .start = {box.first}, .extent = {box.rows}, .row = box.row};
  if (box.columns > 0) {
    part.start.append(box.first_column);
    part.extent.append(box.columns);
  }
  return part;
}

}  // namespace piton
