// Quantizes what is loaded into parameters that are held as codes.
#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "base/error.h"
#include "checkpoint/load_values.h"
#include "codes/nested_scales.h"

namespace piton {
namespace {

constexpr std::int64_t kPartBytes = std::int64_t{1} << 20;  // of values in fp32, at a time

// A box of a canonical matrix: rows [row, row + rows), columns [column, column + columns).
struct Box {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
};

class PieceLoader {
 public:
  PieceLoader(TensorSource& source, const Parameter& parameter, const Piece& piece,
              const WeightCodes& codes)
      : source_(source),
        piece_(piece),
        codes_(codes),
        format_(*parameter.code_format),
        own_({piece.start[0], piece.extent[0], piece.start[1], piece.extent[1]}) {
    const std::int64_t group = block_columns(format_);
    PITON_ASSERT(group == 0 || own_.column % group == 0, "{}: a group of {} columns is split",
                 piece.name, group);
  }

  void load(ThreadPool* threads) {
    if (own_.rows == 0 || own_.columns == 0) return;
    const bool whole_rows = format_.group == 0 && own_.columns < piece_.global[1];
    if (source_.stored_format(piece_.name) == format_) {
      return in_parts(threads, own_, [&](const Box& part) { copy_rows(part); });
    }
    if (format_.rule == Quantization::kNf4) return load_nested(threads);
    const Box box = whole_rows ? Box{own_.row, own_.rows, 0, piece_.global[1]} : own_;
    in_parts(threads, box, [&](const Box& part) { encode_rows(part, nullptr); });
  }

 private:
  // Reads all of the tensor: the scales depend on each other.
  void load_nested(ThreadPool* threads) {
    const std::int64_t groups = (piece_.global[1] + format_.group - 1) / format_.group;
    std::vector<float> scales(static_cast<std::size_t>(piece_.global[0] * groups));
    in_parts(threads, {0, piece_.global[0], 0, piece_.global[1]},
             [&](const Box& part) { encode_rows(part, scales.data()); });
    nest_scales(scales);
    const std::int64_t own_groups = codes_.scales.dim(1);
    for (std::int64_t row = 0; row < own_.rows; ++row) {
      std::memcpy(row_of(codes_, piece_.local_row + row).scales,
                  scales.data() + (own_.row + row) * groups + own_.column / format_.group,
                  static_cast<std::size_t>(own_groups * 4));
    }
  }

  void in_parts(ThreadPool* threads, const Box& box, const std::function<void(const Box&)>& part) {
    const std::int64_t step = std::max<std::int64_t>(1, kPartBytes / (box.columns * 4));
    const std::int64_t count = (box.rows + step - 1) / step;
    const auto one = [&](std::int64_t index) {
      part({box.row + index * step, std::min(step, box.rows - index * step), box.column,
            box.columns});
    };
    if (threads != nullptr && source_.reads_in_parallel()) return threads->run(count, one);
    for (std::int64_t index = 0; index < count; ++index) one(index);
  }

  // `scales`: of all groups of the tensor, or null. Rows that are not this rank's only have scales.
  void encode_rows(const Box& box, float* scales) {
    std::vector<float> values(static_cast<std::size_t>(box.rows * box.columns));
    source_.read(piece_.name,
                 {{box.row, box.column}, {box.rows, box.columns}, 0, box.rows * box.columns},
                 DType::kF32, reinterpret_cast<std::byte*>(values.data()));
    const CodeKind kind = codes_.kind;
    const std::int64_t groups =
        format_.group == 0 ? 1 : (box.columns + format_.group - 1) / format_.group;
    const bool direct = scales == nullptr && box.columns == own_.columns;
    std::vector<std::byte> bytes(direct ? 0
                                        : static_cast<std::size_t>(code_bytes(kind, box.columns)));
    std::vector<std::byte> row_scales(direct ? 0 : static_cast<std::size_t>(groups * 4));
    for (std::int64_t row = 0; row < box.rows; ++row) {
      const std::span<const float> from(values.data() + row * box.columns,
                                        static_cast<std::size_t>(box.columns));
      const std::int64_t mine = box.row + row - own_.row;
      const bool held = mine >= 0 && mine < own_.rows;
      const CodedRow to = held ? row_of(codes_, piece_.local_row + mine) : CodedRow();
      if (direct) {
        encode_row(format_, from, to, piece_.name);
        continue;
      }
      encode_row(format_, from, {.codes = bytes.data(), .scales = row_scales.data()}, piece_.name);
      if (scales != nullptr) {
        std::memcpy(scales + (box.row + row) * groups, row_scales.data(),
                    static_cast<std::size_t>(groups * 4));
      } else if (held) {
        std::memcpy(to.scales, row_scales.data(), 4);
      }
      if (!held) continue;
      std::memcpy(to.codes, bytes.data() + code_bytes(kind, own_.column - box.column),
                  static_cast<std::size_t>(code_bytes(kind, own_.columns)));
    }
  }

  void copy_rows(const Box& box) {
    for (std::int64_t row = 0; row < box.rows; ++row) {
      source_.read_codes(piece_.name, {box.row + row, box.column, box.columns},
                         row_of(codes_, piece_.local_row + box.row + row - own_.row));
    }
  }

  TensorSource& source_;
  const Piece& piece_;
  const WeightCodes& codes_;
  CodeFormat format_;
  Box own_;
};

// Of the same shapes, all 0, in host memory.
WeightCodes host_codes_like(const WeightCodes& codes) {
  WeightCodes host = codes;
  WeightCodes::tensors(host, [](const char*, Tensor& tensor, Access) {
    if (tensor.defined()) tensor = host_tensor(tensor.dtype(), tensor.shape());
  });
  return host;
}

}  // namespace

void load_codes(TensorSource& source, const Parameter& parameter, ThreadPool* threads,
                Device& device, Stream& stream) {
  PITON_ASSERT(parameter.code_format && parameter.codes.given(), "{} has no codes", parameter.name);
  const WeightCodes& codes = parameter.codes;
  const bool on_host = codes.codes.place().kind == DeviceKind::kHost;
  const WeightCodes filled = on_host ? codes : host_codes_like(codes);
  for (const Piece& piece : parameter.pieces) {
    PieceLoader(source, parameter, piece, filled).load(threads);
  }
  if (on_host) return;
  const auto upload = [&](const Tensor& from, const Tensor& to) {
    if (to.defined()) device.upload(from.raw(), to, stream);
  };
  upload(filled.codes, codes.codes);
  upload(filled.scales, codes.scales);
  upload(filled.zeros, codes.zeros);
  upload(filled.minima, codes.minima);
  upload(filled.block_scales, codes.block_scales);
  upload(filled.block_minima, codes.block_minima);
}

}  // namespace piton
