// ranks: 1 2
// Linears cut into slices, which overlap their collectives, give the same bits as whole ones:
// outputs, input gradients and weight gradients, with and without sequence parallelism.
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "model/initialize.h"
#include "nn/linear.h"
#include "support/ranks_main.h"

namespace piton {

MpiOptions ranks::options() { return {.timeout_seconds = 60}; }

namespace {

constexpr std::int64_t kRows =
    2048;  // of the whole; 8 slices of every rank's part are whole tiles of 128
constexpr std::int64_t kIn = 96;
constexpr std::int64_t kOut = 160;

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes())};
}

struct Result {
  std::string y, dx, dweight;
};

// A matrix of normal numbers: rows `first` .. of a global one.
Tensor numbers(Arena& arena, DType dtype, std::int64_t rows, std::int64_t columns,
               std::int64_t first, const char* site) {
  Tensor out = arena.allocate(dtype, {rows, columns}, MemoryKind::kActivations);
  const PhiloxKey key = site_key(5, site);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const auto value =
        static_cast<float>(philox_normal(key, static_cast<std::uint64_t>(first * columns + i)));
    if (dtype == DType::kBF16) {
      out.data<BFloat16>()[i] = to_bfloat16(value);
    } else {
      out.data<float>()[i] = value;
    }
  }
  return out;
}

Result run(bool column, bool sequence_parallel, DType dtype, int slices) {
  Device& device = ranks::device();
  ThreadPool threads(1);
  const auto kernels = make_cpu_kernels(threads);
  Arena arena(device);
  const auto stream = device.make_stream();
  ResidentWeights weights(*kernels, arena);
  ParameterList parameters;
  const Shard shard{.group = &ranks::everyone(),
                    .strategy = {.slices = slices, .sequence_parallel = sequence_parallel},
                    .dtype = dtype};
  const Initialization normal{Initialization::Kind::kNormal, 0.1};
  const ColumnLinear column_linear(
      parameters, shard, "column",
      {.parts = {{"column", kOut}}, .in = kIn, .initialization = normal});
  const RowLinear row_linear(parameters, shard, "row",
                             {.out = kOut, .in = kIn, .initialization = normal});
  for (Parameter* parameter : parameters.all()) {
    parameter->value = arena.allocate(dtype, parameter->shape, MemoryKind::kParameters);
    parameter->gradient = arena.allocate(DType::kF32, parameter->shape, MemoryKind::kGradients);
    const Tensor rows = host_tensor(dtype, parameter->shape);
    write_initial_rows(*parameter, 3, threads, rows);
    device.upload(rows.raw(), parameter->value, *stream);
    device.zero(parameter->gradient, *stream);
  }
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
  const Value x =
      tape.leaf(numbers(arena, dtype, in_rows, column ? kIn : kIn / t, in_rows * r, "x"));
  const Value y =
      column ? column_linear.forward(context, x) : row_linear.forward(context, x, nullptr, {});
  Result result{.y = bytes_of(y.tensor)};
  tape.seed(y, numbers(arena, dtype, out_rows, column ? kOut / t : kOut, out_rows * r, "dy"));
  tape.backward(context, Tape::Mode::kWhole);
  result.dx = bytes_of(tape.take_gradient(x, context));
  result.dweight = bytes_of(parameters.find(column ? "column.weight" : "row.weight")->gradient);
  return result;
}

TEST(SlicedLinears, GiveTheBitsOfTheWholeOnes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool column : {true, false}) {
      for (const bool sequence_parallel : {false, true}) {
        const Result whole = run(column, sequence_parallel, dtype, 1);
        for (const int slices : {2, 4, 8}) {
          SCOPED_TRACE(fmt::format("{} {}{}, {} slices", name(dtype), column ? "column" : "row",
                                   sequence_parallel ? ", sequence parallel" : "", slices));
          const Result cut = run(column, sequence_parallel, dtype, slices);
          EXPECT_TRUE(cut.y == whole.y);
          EXPECT_TRUE(cut.dx == whole.dx);
          EXPECT_TRUE(cut.dweight == whole.dweight);
        }
      }
    }
  }
}

}  // namespace
}  // namespace piton
