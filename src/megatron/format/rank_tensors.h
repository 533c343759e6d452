// The parts of canonical tensors in the tensors of a rank, kind by kind (megatron/format/layout.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/format/layout.h"

namespace piton {

// Collects the tensors of one rank's chunk, in the order of the model.
class RankTensors {
 public:
  RankTensors(const ModelConfig& model, const MegatronLayout& layout, int t)
      : model_(model), layout_(layout), t_(t) {}

  std::vector<MegatronTensor> take() { return std::move(tensors_); }

  // A whole canonical tensor.
  void whole(const std::string& key, const std::string& name, const Shape& shape) {
    add(key, Assembly::of(name, shape));
  }

  void norm(const std::string& key, const std::string& name);

  // Rows of the table; the last ones are padding.
  void table(const std::string& key, const std::string& name);

  // A number for each row of the table; those of padding are 0.
  void row_biases(const std::string& key, const std::string& name);

  // Keys and values of attention to an encoder, head by head.
  void cross_kv(const std::string& key, const std::string& at, bool bias);

  void qkv(const std::string& key, const std::string& at, bool bias);

  // Which of so many parts a rank has of a matrix.
  struct Share {
    std::int64_t rank = 0;
    std::int64_t ranks = 1;
  };
  Share of_tensor_rank() const { return {t_, layout_.tensor}; }
  Share of_expert() const {
    const int ranks = layout_.expert_tensor == 0 ? layout_.tensor : layout_.expert_tensor;
    return {t_ % ranks, ranks};
  }

  // Rows of one or more matrices, concatenated.
  void rows_of(const std::string& key, const std::vector<std::string>& names, std::int64_t rows,
               bool bias) {
    rows_of(key, names, rows, bias, of_tensor_rank());
  }
  void rows_of(const std::string& key, const std::vector<std::string>& names, std::int64_t rows,
               bool bias, const Share& share);

  // Rows of a canonical tensor.
  struct Rows {
    std::string name;
    std::int64_t first = 0;
    std::int64_t rows = 0;
  };
  // Rows of tensors of `columns` columns, one below another; 0: of vectors.
  void stacked(const std::string& key, const std::vector<Rows>& parts, std::int64_t columns);

  // This rank's share of the rows of canonical tensors of `columns` columns, one below another; 0:
  // of vectors.
  struct Part {
    std::string_view end;  // of a key that it has by itself
    std::string name;
    std::int64_t rows = 0;  // on all ranks
  };
  void shares_of(const std::string& key, const std::vector<Part>& parts, std::int64_t columns);

  // Some rows of each head of a canonical matrix.
  struct HeadRows {
    std::string name;
    std::int64_t before = 0;  // rows of the head that come before
    std::int64_t rows = 0;
    std::int64_t after = 0;
  };
  void of_heads(const std::string& key, const HeadRows& of, std::int64_t columns);

  // Rows of a matrix of `width` columns.
  void rows_of_width(const std::string& key, const std::string& name, std::int64_t rows,
                     std::int64_t width);
  // The matrix that makes small rows of latent attention.
  void small_rows(const std::string& key, const std::string& name, std::int64_t rows);

  // Columns of a matrix; its bias is whole.
  void columns_of(const std::string& key, const std::string& name, std::int64_t columns,
                  bool bias) {
    columns_of(key, name, columns, bias, of_tensor_rank());
  }
  void columns_of(const std::string& key, const std::string& name, std::int64_t columns, bool bias,
                  const Share& share);

 private:
  // Part `i` of the rows, of this shape.
  void rows_of_matrix(const std::string& key, const std::string& name, const Shape& shape,
                      std::int64_t i);
  static Shape shape(std::int64_t rows, std::int64_t columns) {
    return columns > 0 ? Shape{rows, columns} : Shape{rows};
  }
  // A part of a canonical tensor.
  struct Box {
    std::int64_t first = 0;  // row
    std::int64_t rows = 0;
    std::int64_t first_column = 0;
    std::int64_t columns = 0;  // 0: the tensor has one dim
    std::int64_t row = 0;      // of the assembled tensor: where the rows begin
  };
  static AssemblyPart box(const std::string& name, const Box& box);
  void add(const std::string& key, Assembly assembly) {
    tensors_.push_back({key, std::move(assembly)});
  }

  const ModelConfig& model_;
  const MegatronLayout& layout_;
  std::int64_t t_;
  std::vector<MegatronTensor> tensors_;
};

}  // namespace piton
