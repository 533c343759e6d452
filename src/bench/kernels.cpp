#include "bench/kernels.h"

#include <cmath>
#include <utility>

#include "bench/bandwidth.h"
#include "nn/attention.h"

namespace piton {
namespace {

WeightView packed(const Machine& machine, const Tensor& weight, WeightForm form) {
  WeightView view{.form = form, .out = weight.dim(0), .in = weight.dim(1), .dtype = weight.dtype()};
  const std::int64_t bytes = machine.kernels.packed_bytes(form, view.out, view.in, view.dtype);
  if (bytes == 0) {
    view.form = WeightForm::kRows;
    view.tensor = weight;
    return view;
  }
  view.tensor = machine.arena.allocate(DType::kU8, {bytes}, MemoryKind::kWorkspace);
  run_alone(machine, PackWeight{.packed = view.tensor, .rows = weight, .form = form});
  return view;
}

struct NamedCall {
  std::string what;
  KernelCall call;
};

CallsBench measure(const Machine& machine, const std::vector<NamedCall>& calls, DType dtype,
                   int rounds) {
  CallsBench bench;
  for (const NamedCall& one : calls) {
    bench.calls.push_back({.what = one.what, .flops = flops(one.call)});
    run_alone(machine, one.call);
  }
  PeakSamples peak(machine, dtype);
  for (int round = 0; round < rounds; ++round) {
    peak.sample();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      sample(bench.calls[i].samples, [&] { run_alone(machine, calls[i].call); });
    }
  }
  bench.peak = peak.flops_per_second();
  bench.loading_peak = peak.loading_flops_per_second();
  return bench;
}

}  // namespace

double CallsBench::seconds() const {
  double sum = 0;
  for (const CallFigure& call : calls) sum += static_cast<double>(call.calls) * call.samples.best();
  return sum;
}

double CallsBench::share_of_peak() const {
  double flops = 0;
  for (const CallFigure& call : calls) flops += static_cast<double>(call.calls) * call.flops;
  return peak > 0 ? flops / seconds() / peak : 0;
}

std::vector<GemmSize> gemm_sizes(const ModelConfig& model, std::int64_t rows) {
  const std::int64_t attention = model.heads * model.head_size;
  const std::int64_t qkv = attention + 2 * model.groups * model.head_size;
  return {{rows, model.hidden, qkv},
          {rows, attention, model.hidden},
          {rows, model.hidden, model.gated ? 2 * model.ffn_hidden : model.ffn_hidden},
          {rows, model.ffn_hidden, model.hidden}};
}

CallsBench bench_gemm(const Machine& machine, const std::vector<GemmSize>& sizes, DType dtype,
                      int rounds) {
  std::vector<NamedCall> calls;
  for (const GemmSize& size : sizes) {
    const Tensor weight = random_tensor(machine, dtype, {size.out, size.in});
    const Tensor x = random_tensor(machine, dtype, {size.rows, size.in});
    const Tensor dy = random_tensor(machine, dtype, {size.rows, size.out});
    const std::string what =
        fmt::format("{} {} x {} -> {}", name(dtype), size.rows, size.in, size.out);
    calls.push_back({what + " forward",
                     LinearForward{.y = zero_tensor(machine, dtype, {size.rows, size.out}),
                                   .x = x,
                                   .weight = packed(machine, weight, WeightForm::kForward)}});
    calls.push_back(
        {what + " backward input",
         LinearBackwardInput{.dx = zero_tensor(machine, dtype, {size.rows, size.in}),
                             .dy = dy,
                             .weight = packed(machine, weight, WeightForm::kBackward)}});
    calls.push_back(
        {what + " backward weight",
         LinearBackwardWeight{
             .dweight = zero_tensor(machine, DType::kF32, {size.out, size.in}), .dy = dy, .x = x}});
  }
  return measure(machine, calls, dtype, rounds);
}

CallsBench bench_attention(const Machine& machine, const ModelConfig& model,
                           const AttentionSize& size, int rounds) {
  const DType dtype = model.dtype;
  const bool packed = size.layout == AttentionLayout::kTnd;
  const auto view = [&](const Tensor& tensor, std::int64_t heads) {
    return attention_view(tensor, size.layout, heads);
  };
  const auto shape = [&](std::int64_t heads) {
    return attention_shape(size.layout, size.samples, size.sequence, heads, model.head_size);
  };
  const auto random = [&](std::int64_t heads) {
    return view(random_tensor(machine, dtype, shape(heads)), heads);
  };
  const auto zero = [&](std::int64_t heads) {
    return view(zero_tensor(machine, dtype, shape(heads)), heads);
  };
  const auto uploaded = [&](DType type, const Shape& of, const void* host) {
    Tensor tensor = machine.arena.allocate(type, of, MemoryKind::kWorkspace);
    machine.device.upload(host, tensor, machine.stream);
    return tensor;
  };
  const Tensor out = zero(model.heads);
  AttentionForward forward{
      .out = out,
      .lse = zero_tensor(machine, DType::kF32, {out.dim(0), model.heads, out.dim(1)}),
      .q = random(model.heads),
      .k = random(model.groups),
      .v = random(model.groups),
      .mask = {.window_before = model.window_before, .window_after = model.window_after},
      .scale = 1 / std::sqrt(static_cast<double>(model.head_size)),
      .block_rows = model.attention_block};
  const double samples = packed ? static_cast<double>(size.samples) : 1;
  if (packed) {
    std::vector<std::int64_t> ends;
    for (std::int64_t sample = 0; sample <= size.samples; ++sample)
      ends.push_back(sample * size.sequence);
    const std::vector<std::int32_t> segments = packed_segments(ends);
    forward.mask.query_segments = forward.mask.key_segments =
        uploaded(DType::kI32, {1, size.samples * size.sequence}, segments.data());
  }
  if (model.positions == PositionKind::kAlibi) {
    forward.mask.slopes = uploaded(DType::kF32, {model.heads}, alibi_slopes(model.heads).data());
  }
  const AttentionBackward backward{.dq = zero(model.heads),
                                   .dk = zero(model.groups),
                                   .dv = zero(model.groups),
                                   .dout = random(model.heads),
                                   .out = out,
                                   .lse = forward.lse,
                                   .q = forward.q,
                                   .k = forward.k,
                                   .v = forward.v,
                                   .mask = forward.mask,
                                   .scale = forward.scale,
                                   .block_rows = forward.block_rows};
  std::string what = fmt::format("{} {} x {}, {}/{} heads of {}, causal", name(dtype), size.samples,
                                 size.sequence, model.heads, model.groups, model.head_size);
  if (model.window_before) what += fmt::format(", {} before", *model.window_before);
  if (model.attention_block > 0) what += fmt::format(", triangle of {}", model.attention_block);
  CallsBench bench = measure(
      machine, {{what + " forward", forward}, {what + " backward", backward}}, dtype, rounds);
  // flops() ignores segments, which are on the device, and counts the pairs of one long row: too
  // many by the factor `samples`.
  for (CallFigure& call : bench.calls) call.flops /= samples;
  return bench;
}

OptimizerBench bench_optimizer(const Machine& machine, std::int64_t elements, DType dtype,
                               int rounds) {
  const Tensor scalars =
      machine.arena.allocate(DType::kF32, {kStepScalars}, MemoryKind::kWorkspace);
  const float values[kStepScalars] = {1e-4F, 0.1F, 0.05F, 1.0F, 1.0F, 0.1F};
  machine.device.upload(values, scalars, machine.stream);
  const AdamwUpdate call{
      .main = random_tensor(machine, DType::kF32, {elements}),
      .first = zero_tensor(machine, DType::kF32, {elements}),
      .second = zero_tensor(machine, DType::kF32, {elements}),
      .copy = dtype == DType::kBF16 ? zero_tensor(machine, DType::kBF16, {elements}) : Tensor(),
      .gradient = random_tensor(machine, DType::kF32, {elements}),
      .scalars = scalars,
      .beta2 = 0.95,
      .decay_multiplier = 1};
  OptimizerBench bench;
  bench.bytes =
      elements * (dtype == DType::kBF16 ? 7 * 4 + 2 : 7 * 4);  // the bf16 copy is only written
  const bool host = call.main.place().kind == DeviceKind::kHost;
  run_alone(machine, call);
  for (int round = 0; round < rounds; ++round) {
    if (host) sample(bench.loop, [&] { update_once(machine.threads, call); });
    sample(bench.update, [&] { run_alone(machine, call); });
  }
  return bench;
}

}  // namespace piton
