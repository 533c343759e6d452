// ranks: 1 2 4
// Linears that overlap their collectives, in slices or fused with them, give the same bits as whole
// ones: outputs, input gradients and weight gradients, with and without sequence parallelism. Whole
// ones agree with loops in double precision over the matrices of all ranks. Rank 0 of four tensor
// ranks counts what is sent. The same of weights of whole numbers (W8A16, and of 4 bits), with a
// scale for the tensor, for each row, or for groups of columns, with and without zero points.
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "codes/integer_codes.h"
#include "kernels/cpu/kernels.h"
#include "model/initialize.h"
#include "nn/linear.h"
#include "ranks/setting.h"
#include "support/instruction_sets.h"

namespace piton::ranks::slices_test {

namespace {

constexpr std::int64_t kRows =
    2048;  // of the whole; 8 slices of every rank's part are whole tiles of 128 on two ranks
constexpr std::int64_t kIn = 96;
constexpr std::int64_t kOut = 160;

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes())};
}

struct LinearCase {
  bool column = true;
  bool sequence_parallel = false;
  DType dtype = DType::kF32;
  std::optional<IntegerFormat> codes = {};
};

struct Result {
  std::string x, weight, dy;  // of this rank; of codes the values of the weight
  std::string y, dx, dweight;
  TrafficCounts sent;
};

// A matrix of normal numbers: rows `first` .. of a global one.
Tensor numbers(Arena& arena, DType dtype, const Shape& shape, std::int64_t first,
               const char* site) {
  Tensor out = arena.allocate(dtype, shape, MemoryKind::kActivations);
  const PhiloxKey key = site_key(5, site);
  for (std::int64_t i = 0; i < out.elements(); ++i) {
    const auto value =
        static_cast<float>(philox_normal(key, static_cast<std::uint64_t>(first * shape[1] + i)));
    if (dtype == DType::kBF16) {
      out.data<BFloat16>()[i] = to_bfloat16(value);
    } else {
      out.data<float>()[i] = value;
    }
  }
  return out;
}

// Holds the parameter as codes of its `rows`. Returns their values: fp32, as bytes.
std::string hold_as_codes(Parameter& parameter, const IntegerFormat& format, const Tensor& rows,
                          Arena& arena) {
  const std::int64_t columns = parameter.shape[1];
  parameter.trainable = false;
  parameter.code_format = held_format(format);
  parameter.codes = allocate_codes(held_format(format), parameter.shape[0], columns, arena);
  std::vector<float> row(static_cast<std::size_t>(columns));
  std::string values;
  for (std::int64_t i = 0; i < parameter.shape[0]; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t at = i * columns + j;
      row[static_cast<std::size_t>(j)] = rows.dtype() == DType::kBF16
                                             ? to_float(rows.data<BFloat16>()[at])
                                             : rows.data<float>()[at];
    }
    const CodedRow to = row_of(parameter.codes, i);
    if (format.whole_tensor) {
      encode_integers(format, {.scale = 0.004F, .zero = format.symmetric ? 0.0F : 3.0F}, row, to);
    } else {
      encode_integers(format, row, to, "weight");
    }
    integer_values(held_format(format), to, row);
    values.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  }
  return values;
}

Result run(const LinearCase& linear, LinearStrategy strategy) {
  const auto& [column, sequence_parallel, dtype, codes] = linear;
  strategy.sequence_parallel = sequence_parallel;
  Device& device = ranks::device();
  Communicator& group = ranks::everyone();
  ThreadPool threads(1);
  const auto kernels = make_cpu_kernels(threads, test::chosen_isa());
  Arena arena(device);
  const auto stream = device.make_stream();
  ResidentWeights weights(*kernels, arena);
  ParameterList parameters;
  SharedRows shared(group, device, kRows * std::max(kIn, kOut) * size_bytes(dtype));
  const Shard shard{.group = &group, .strategy = strategy, .shared = &shared, .dtype = dtype};
  const Initialization normal{Initialization::Kind::kNormal, 0.1};
  const ColumnLinear column_linear(
      parameters, shard, "column",
      {.parts = {{"column", kOut}}, .in = kIn, .initialization = normal});
  const RowLinear row_linear(parameters, shard, "row",
                             {.out = kOut, .in = kIn, .initialization = normal});
  std::map<std::string, std::string> values;
  for (Parameter* parameter : parameters.all()) {
    if (codes) {
      const Tensor rows = host_tensor(dtype, parameter->shape);
      write_initial_rows(*parameter, 3, threads, rows);
      values[parameter->name] = hold_as_codes(*parameter, *codes, rows, arena);
      continue;
    }
    parameter->value = arena.allocate(dtype, parameter->shape, MemoryKind::kParameters);
    parameter->gradient = arena.allocate(DType::kF32, parameter->shape, MemoryKind::kGradients);
    const Tensor rows = host_tensor(dtype, parameter->shape);
    write_initial_rows(*parameter, 3, threads, rows);
    device.upload(rows.raw(), parameter->value, *stream);
    device.zero(parameter->gradient, *stream);
  }
  const Parameter& weight = *parameters.find(column ? "column.weight" : "row.weight");
  Tape tape;
  Context context{.kernels = *kernels,
                  .stream = *stream,
                  .device = device,
                  .arena = arena,
                  .weights = weights,
                  .tape = &tape};
  const int t = shard.size();
  const int r = shard.rank();
  const bool splits = shard.splits_sequence();
  const std::int64_t in_rows = column && splits ? kRows / t : kRows;
  const std::int64_t out_rows = !column && splits ? kRows / t : kRows;
  // Without sequence parallelism all ranks have the same numbers on the whole-width side.
  const Value x = tape.leaf(numbers(arena, dtype, {in_rows, column ? kIn : kIn / t},
                                    column && !splits ? 0 : in_rows * r, "x"));
  const Tensor dy = numbers(arena, dtype, {out_rows, column ? kOut / t : kOut},
                            !column && !splits ? 0 : out_rows * r, "dy");
  Result result{.x = bytes_of(x.tensor),
                .weight = codes ? values.at(weight.name) : bytes_of(weight.value),
                .dy = bytes_of(dy),
                .sent = {}};
  const TrafficCounts before = group.traffic();
  // Twice, because shared memory must be free again.
  for (int pass = 0; pass < 2; ++pass) {
    if (!codes) device.zero(weight.gradient, *stream);
    const Value y =
        column ? column_linear.forward(context, x) : row_linear.forward(context, x, nullptr, {});
    result.y = bytes_of(y.tensor);
    tape.seed(y, dy);
    tape.backward(context, Tape::Mode::kWhole);
    result.dx = bytes_of(tape.take_gradient(x, context));
    if (!codes) result.dweight = bytes_of(weight.gradient);
  }
  result.sent = group.traffic();
  result.sent.collectives -= before.collectives;
  result.sent.all_gather_bytes -= before.all_gather_bytes;
  result.sent.reduce_scatter_bytes -= before.reduce_scatter_bytes;
  result.sent.all_reduce_bytes -= before.all_reduce_bytes;
  group.barrier();
  return result;
}

using Matrix = std::vector<double>;

// The fp32 matrices of all ranks, one below the other, or side by side.
Matrix joined(const std::string& mine, std::int64_t rows, bool side_by_side) {
  const std::vector<std::string> parts = ranks::everyone().gather_bytes(mine);
  Matrix whole;
  const std::int64_t width = static_cast<std::int64_t>(mine.size()) / 4 / rows;
  const auto value = [](const std::string& part, std::int64_t i) {
    float number = 0;
    std::memcpy(&number, part.data() + 4 * i, 4);
    return static_cast<double>(number);
  };
  if (!side_by_side) {
    for (const std::string& part : parts) {
      for (std::int64_t i = 0; i < rows * width; ++i) whole.push_back(value(part, i));
    }
    return whole;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const std::string& part : parts) {
      for (std::int64_t i = 0; i < width; ++i) whole.push_back(value(part, row * width + i));
    }
  }
  return whole;
}

// The largest difference as a share of the largest number.
double difference(const Matrix& got, const Matrix& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  double most = 0;
  double largest = 0;
  for (std::size_t i = 0; i < std::min(got.size(), wanted.size()); ++i) {
    most = std::max(most, std::abs(got[i] - wanted[i]));
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return most / largest;
}

void expect_products(const LinearCase& linear, const Result& got) {
  const bool column = linear.column;
  const int t = ranks::everyone().size();
  const bool splits = linear.sequence_parallel && t > 1;
  const std::int64_t part = kRows / t;
  // One of x and y is of whole width: below one another, or the same on all ranks.
  const auto wide = [&](const std::string& mine) {
    Matrix whole = joined(mine, splits ? part : kRows, false);
    if (!splits) whole.resize(whole.size() / t);
    return whole;
  };
  const auto narrow = [&](const std::string& mine) { return joined(mine, kRows, true); };
  const auto of_weight = [&](const std::string& mine) {
    return joined(mine, column ? kOut / t : kOut, !column);
  };
  const Matrix x = column ? wide(got.x) : narrow(got.x);
  const Matrix dy = column ? narrow(got.dy) : wide(got.dy);
  const Matrix w = of_weight(got.weight);
  Matrix y(kRows * kOut);
  Matrix dx(kRows * kIn);
  Matrix dw(kOut * kIn);
  for (std::int64_t n = 0; n < kRows; ++n) {
    for (std::int64_t o = 0; o < kOut; ++o) {
      for (std::int64_t i = 0; i < kIn; ++i) {
        y[n * kOut + o] += x[n * kIn + i] * w[o * kIn + i];
        dx[n * kIn + i] += dy[n * kOut + o] * w[o * kIn + i];
        dw[o * kIn + i] += dy[n * kOut + o] * x[n * kIn + i];
      }
    }
  }
  EXPECT_LE(difference(column ? narrow(got.y) : wide(got.y), y), 1e-5);
  EXPECT_LE(difference(column ? wide(got.dx) : narrow(got.dx), dx), 1e-5);
  if (!linear.codes) {
    EXPECT_LE(difference(of_weight(got.dweight), dw), 1e-5);
  }
}

TEST(SplitLinears, AgreeWithLoopsInDoublePrecision) {
  for (const bool column : {true, false}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", column ? "column" : "row", sequence_parallel));
      const LinearCase linear{column, sequence_parallel};
      expect_products(linear, run(linear, {}));
    }
  }
}

struct NamedStrategy {
  std::string name;
  LinearStrategy strategy;
};

std::vector<NamedStrategy> strategies(const LinearCase& linear) {
  const int t = ranks::everyone().size();
  const ProductShape shape =
      linear.column ? ProductShape{kRows, kIn, kOut / t} : ProductShape{kRows, kIn / t, kOut};
  return {{"2 slices", {.slices = 2}},
          {"4 slices", {.slices = 4}},
          {"8 slices", {.slices = 8}},
          {"4 slices of this shape", {.of_shapes = {{shape, 4}}}},
          {"fused for this shape", {.of_shapes = {{shape, kFused}}}},
          {"gathered x kept", {.keeps_gathered = true}},
          {"4 slices, gathered x kept", {.slices = 4, .keeps_gathered = true}},
          {"fused", {.slices = kFused}},
          {"fused, gathered x kept", {.slices = kFused, .keeps_gathered = true}},
          {"fused, also dx", {.slices = kFused, .fused_column_backward = true}}};
}

TEST(SlicedLinears, GiveTheBitsOfTheWholeOnes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool column : {true, false}) {
      for (const bool sequence_parallel : {false, true}) {
        const LinearCase linear{column, sequence_parallel, dtype};
        const Result whole = run(linear, {});
        for (const NamedStrategy& one : strategies(linear)) {
          SCOPED_TRACE(fmt::format("{} {}{}, {}", name(dtype), column ? "column" : "row",
                                   sequence_parallel ? ", sequence parallel" : "", one.name));
          const Result cut = run(linear, one.strategy);
          EXPECT_TRUE(cut.y == whole.y);
          EXPECT_TRUE(cut.dx == whole.dx);
          EXPECT_TRUE(cut.dweight == whole.dweight);
          const bool again = sequence_parallel && column && one.strategy.keeps_gathered;
          const std::int64_t gathered = whole.sent.all_gather_bytes / (again ? 2 : 1);
          EXPECT_EQ(cut.sent.all_gather_bytes, gathered);
          EXPECT_EQ(cut.sent.reduce_scatter_bytes, whole.sent.reduce_scatter_bytes);
          if (2048 % ranks::everyone().size() == 0 && one.strategy.slices == kFused) {
            EXPECT_EQ(cut.sent.all_reduce_bytes, whole.sent.all_reduce_bytes);
          }
        }
      }
    }
  }
}

// Groups are of columns that one rank holds. The columns of a row linear have a scale for each rank
// where rows have one.
std::vector<std::pair<std::string, IntegerFormat>> code_formats() {
  return {{"int8, tensor", {.whole_tensor = true}},
          {"int8, tensor, offset", {.whole_tensor = true, .symmetric = false}},
          {"int8, channel", {}},
          {"int8, channel, offset", {.symmetric = false}},
          {"int8, group", {.group = 24}},
          {"int8, group, offset", {.group = 12, .symmetric = false}},
          {"int4, channel", {.bits = 4}},
          {"int4, group, offset", {.bits = 4, .group = 24, .symmetric = false}}};
}

TEST(SlicedLinears, OfCodesGiveTheBitsOfTheWholeOnes) {
  for (const auto& [name, format] : code_formats()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const bool column : {true, false}) {
        const bool sequence_parallel = format.group > 0;
        const LinearCase linear{column, sequence_parallel, dtype, format};
        SCOPED_TRACE(fmt::format("{}, {} {}", name, piton::name(dtype), column ? "column" : "row"));
        const Result whole = run(linear, {});
        if (dtype == DType::kF32) expect_products(linear, whole);
        for (const LinearStrategy& cut :
             {LinearStrategy{.slices = 2}, {.slices = 8}, {.slices = kFused}}) {
          const Result got = run(linear, cut);
          EXPECT_TRUE(got.y == whole.y) << cut.slices << " slices";
          EXPECT_TRUE(got.dx == whole.dx) << cut.slices << " slices";
        }
      }
    }
  }
}

// Two passes of forward and backward each.
TEST(SlicedLinears, SendAsManyCollectivesAsTheirStrategySays) {
  const int t = ranks::everyone().size();
  if (t != 2) return;
  const LinearCase column{true, true};
  const LinearCase row{false, true};
  EXPECT_EQ(run(column, {}).sent.collectives, 2 * 3);  // gather, gather again, reduce-scatter
  EXPECT_EQ(run(column, {.keeps_gathered = true}).sent.collectives, 2 * 2);
  EXPECT_EQ(run(column, {.slices = 4}).sent.collectives, 2 * (4 + 2));
  EXPECT_EQ(run(column, {.slices = 4, .of_shapes = {{{kRows, kIn, kOut / 2}, 8}}}).sent.collectives,
            2 * (8 + 2));
  EXPECT_EQ(run(row, {.slices = 4}).sent.collectives, 2 * (4 + 4));
  // Forward has its own slices, backward is looked up as [m, out, in / t].
  EXPECT_EQ(run(row, {.slices = 4, .of_shapes = {{{kRows, kOut, kIn / 2}, 1}}}).sent.collectives,
            2 * (4 + 1));
  EXPECT_EQ(run(row, {.slices = 4, .of_shapes = {{{kRows, kIn / 2, kOut}, 2}}}).sent.collectives,
            2 * (2 + 4));
}

}  // namespace
}  // namespace piton::ranks::slices_test
