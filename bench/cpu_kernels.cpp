// How close the kernels of the cpu back end come to the machine's limits.
//
//   cpu_kernels [one] [group...]     groups: linear fp32 head skinny codes prompts attention rows
//   optimizer muon frozen;
//   none: all
//
// `one` uses one thread and its processor time instead of the wall clock: on a machine that others
// use too, only that means anything. PITON_ISA chooses another instruction set.
//
// Prints a line a call: time of the fastest of several runs, and its share of the peak of a loop on
// registers measured beside it (multiply-adds of the same dtype, all threads), or GB/s.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string>
#include <utility>

#include "bench/bandwidth.h"
#include "codes/code_format.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/peak.h"

namespace {

using namespace piton;  // NOLINT: a program of one file

class Bench {
 public:
  explicit Bench(std::set<std::string> groups)
      : groups_(std::move(groups)),
        one_(groups_.erase("one") > 0),
        threads_(one_ ? 1 : static_cast<int>(available_cores().size()),
                 one_ ? std::vector<int>() : available_cores()),
        kernels_(make_cpu_kernels(threads_, isa())),
        stream_(device_.make_stream()) {}

  void run() {
    fmt::print("{}\n", kernels_->name());
    if (wants("linear")) linears();
    if (wants("fp32")) fp32_linears();
    if (wants("head")) head();
    if (wants("skinny")) skinny();
    if (wants("codes")) codes({1, 2, 4, 8, 16});
    if (wants("prompts")) codes({17, 32, 64, 256});
    if (wants("attention")) attentions();
    if (wants("rows")) rows();
    if (wants("optimizer")) optimizer();
    if (wants("muon")) muon();
    if (wants("frozen")) frozen();
  }

 private:
  static std::string isa() {
    const char* given = std::getenv("PITON_ISA");
    return given == nullptr ? "" : given;
  }
  bool wants(const std::string& group) const { return groups_.empty() || groups_.contains(group); }

  Tensor random(DType dtype, Shape shape) {
    const Tensor source = host_tensor(DType::kF32, shape);
    auto* data = source.data<float>();
    for (std::int64_t i = 0; i < source.elements(); ++i) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      data[i] = static_cast<float>(static_cast<double>(state_ >> 33) / 2147483648.0 * 2 - 1);
    }
    if (dtype == DType::kF32) return source;
    const Tensor tensor = host_tensor(dtype, shape);
    kernels_->run(Copy{.dst = tensor, .src = source}, *stream_);
    return tensor;
  }

  double now() const {
    timespec time;
    clock_gettime(one_ ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  template <typename Work>
  double seconds(Work work) const {
    const double before = now();
    work();
    return now() - before;
  }

  double fastest(const KernelCall& call) {
    double best = 1e9;
    double total = 0;
    for (int i = 0; i < 3 || (total < 0.25 && i < 50); ++i) {
      const double before = now();
      kernels_->run(call, *stream_);
      const double took = now() - before;
      if (i > 0) best = std::min(best, took);
      total += took;
    }
    return best;
  }

  void flops(const std::string& what, const KernelCall& call, DType dtype) {
    const double before = peak_flops(threads_, dtype, "", 0.02);
    const double seconds = fastest(call);
    const double peak = std::max(before, peak_flops(threads_, dtype, "", 0.02));
    const double rate = piton::flops(call) / seconds;
    fmt::print("{:44} {:9.3f} ms {:8.1f} GFLOP/s {:5.1f} % of {:.0f}\n", what, seconds * 1e3,
               rate / 1e9, 100 * rate / peak, peak / 1e9);
    std::fflush(stdout);
  }

  void bandwidth(const std::string& what, const KernelCall& call) {
    const double seconds = fastest(call);
    fmt::print("{:44} {:9.3f} ms {:8.1f} GB/s\n", what, seconds * 1e3,
               static_cast<double>(bytes_moved(call)) / seconds / 1e9);
    std::fflush(stdout);
  }

  WeightView packed(const Tensor& weight, WeightForm form) {
    const std::int64_t bytes =
        kernels_->packed_bytes(form, weight.dim(0), weight.dim(1), weight.dtype());
    const Tensor to = host_tensor(DType::kU8, {bytes});
    kernels_->run(PackWeight{.packed = to, .rows = weight, .form = form}, *stream_);
    return {.form = form,
            .tensor = to,
            .out = weight.dim(0),
            .in = weight.dim(1),
            .dtype = weight.dtype()};
  }

  void linear(std::int64_t n, std::int64_t out, std::int64_t in, DType dtype, DType outside) {
    const Tensor weight = random(dtype, {out, in});
    const Tensor x = random(dtype, {n, in});
    const Tensor y = random(outside, {n, out});
    const std::string size = fmt::format("{} {} x {} -> {}", name(dtype), n, in, out);
    flops(size + " forward",
          LinearForward{.y = y,
                        .x = x,
                        .weight = packed(weight, WeightForm::kForward),
                        .bias = random(dtype, {out})},
          dtype);
    flops(size + " backward input",
          LinearBackwardInput{.dx = host_tensor(dtype, {n, in}),
                              .dy = y,
                              .weight = packed(weight, WeightForm::kBackward)},
          dtype);
    flops(size + " backward weight",
          LinearBackwardWeight{.dweight = host_tensor(DType::kF32, {out, in}),
                               .dbias = host_tensor(DType::kF32, {out}),
                               .dy = y,
                               .x = x},
          dtype);
    bandwidth(size + " pack", PackWeight{.packed = packed(weight, WeightForm::kForward).tensor,
                                         .rows = weight,
                                         .form = WeightForm::kForward});
    bandwidth(size + " pack backward",
              PackWeight{.packed = packed(weight, WeightForm::kBackward).tensor,
                         .rows = weight,
                         .form = WeightForm::kBackward});
  }

  void symmetric(std::int64_t n, std::int64_t k, bool transposed, bool terms) {
    const Tensor x = random(DType::kBF16, transposed ? Shape{k, n} : Shape{n, k});
    const Tensor addend = terms ? random(DType::kBF16, {n, n}) : Tensor();
    flops(fmt::format("symmetric {} x {}{}{}", n, k, transposed ? " transposed" : "",
                      terms ? " with terms" : ""),
          SymmetricProduct{.y = host_tensor(DType::kBF16, {n, n}),
                           .left = x,
                           .right = x,
                           .addend = addend,
                           .factor = terms ? 2.0315 : 1,
                           .addend_factor = -4.775,
                           .diagonal = terms ? 3.4445 : 0,
                           .transposed = transposed},
          DType::kBF16);
  }

  void muon() {
    for (const std::int64_t n : {768, 1024, 2048}) {
      symmetric(n, n, false, false);
      symmetric(n, n, false, true);
    }
    symmetric(768, 3072, false, false);
    symmetric(768, 3072, true, false);
    const Tensor matrix = random(DType::kBF16, {768, 768});
    flops("bf16 768 x 768 -> 768 forward",
          LinearForward{.y = host_tensor(DType::kBF16, {768, 768}),
                        .x = random(DType::kBF16, {768, 768}),
                        .weight = packed(matrix, WeightForm::kForward)},
          DType::kBF16);
  }

  void linears() {
    for (const std::int64_t n : {1024, 4096}) {
      if (one_ && n > 1024) continue;
      linear(n, 768, 768, DType::kBF16, DType::kBF16);
      linear(n, 2304, 768, DType::kBF16, DType::kBF16);
      linear(n, 3072, 768, DType::kBF16, DType::kBF16);
      linear(n, 768, 3072, DType::kBF16, DType::kBF16);
    }
    linear(1024, 2048, 2048, DType::kBF16, DType::kBF16);
  }
  void fp32_linears() {
    linear(1024, 768, 768, DType::kF32, DType::kF32);
    linear(1024, 3072, 768, DType::kF32, DType::kF32);
    linear(1024, 768, 3072, DType::kF32, DType::kF32);
  }
  // Products with a weight in plain rows and with a packed one, in turns, of the sizes of
  // llama-134m and llama-1.1b: how much longer those from rows take, in each direction.
  void frozen() {
    for (const std::int64_t tokens : {512, 2048}) frozen(tokens);
  }
  void frozen(std::int64_t tokens) {
    constexpr std::pair<std::int64_t, std::int64_t> kSizes[] = {
        {2304, 768},  {768, 768},   {4096, 768}, {768, 2048},
        {2560, 2048}, {2048, 2048}, {2048, 5632}};
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const WeightForm form : {WeightForm::kForward, WeightForm::kBackward}) {
        double packed_seconds = 0;
        double rows_seconds = 0;
        for (const auto& [out, in] : kSizes) {
          const Tensor weight = random(dtype, {out, in});
          const Tensor x = random(dtype, {tokens, in});
          const Tensor y = random(dtype, {tokens, out});
          const auto call = [&](const WeightView& view) -> KernelCall {
            if (form == WeightForm::kForward) return LinearForward{.y = y, .x = x, .weight = view};
            return LinearBackwardInput{.dx = x, .dy = y, .weight = view};
          };
          const KernelCall with_packed = call(packed(weight, form));
          const KernelCall with_rows = call(
              {.form = WeightForm::kRows, .tensor = weight, .out = out, .in = in, .dtype = dtype});
          double best[2] = {1e9, 1e9};
          for (int round = 0; round < 9; ++round) {
            best[0] = std::min(best[0], seconds([&] { kernels_->run(with_packed, *stream_); }));
            best[1] = std::min(best[1], seconds([&] { kernels_->run(with_rows, *stream_); }));
          }
          packed_seconds += best[0];
          rows_seconds += best[1];
        }
        fmt::print("{} rows, {} {}: packed {:.3f} ms, rows {:.3f} ms, {:+.1f} %\n", tokens,
                   name(dtype), form == WeightForm::kForward ? "forward" : "backward",
                   packed_seconds * 1e3, rows_seconds * 1e3,
                   100 * (rows_seconds / packed_seconds - 1));
        std::fflush(stdout);
      }
    }
  }

  void head() { linear(512, 50304, 768, DType::kBF16, DType::kF32); }

  void skinny() {
    const Tensor weight = random(DType::kBF16, {5632, 2048});
    const WeightView view = packed(weight, WeightForm::kForward);
    for (const std::int64_t n : {1, 2, 4, 6, 8, 16, 32}) {
      bandwidth(fmt::format("bf16 {} x 2048 -> 5632 forward", n),
                LinearForward{.y = host_tensor(DType::kBF16, {n, 5632}),
                              .x = random(DType::kBF16, {n, 2048}),
                              .weight = view});
    }
  }

  // A weight held as codes of `format`, of random bytes. "": bf16, packed.
  WeightView coded(const std::string& format, std::int64_t out, std::int64_t in) {
    if (format.empty()) {
      const Tensor rows = host_tensor(DType::kBF16, {out, in});
      scramble(rows);
      return packed(rows, WeightForm::kForward);
    }
    const WeightCodes stored = allocate_codes(*code_format("codes", format), out, in, arena_);
    scramble(stored.codes);
    kernels_->run(Copy{.dst = stored.scales, .src = random(DType::kF32, stored.scales.shape())},
                  *stream_);
    return {
        .form = WeightForm::kCodes, .out = out, .in = in, .dtype = DType::kBF16, .codes = stored};
  }
  // Small numbers of any type.
  void scramble(const Tensor& tensor) {
    auto* words = reinterpret_cast<std::uint64_t*>(tensor.raw());
    for (std::int64_t i = 0; i < tensor.bytes() / 8; ++i) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      words[i] = (state_ ^ state_ >> 29) & 0xBFBFBFBFBFBFBFBF;
    }
  }

  // Weights that no cache holds. The formats in turns, so that all have the same neighbors: time,
  // bytes a second, and the share of the bandwidth of a loop that only reads.
  void codes(std::initializer_list<std::int64_t> rows) {
    constexpr std::int64_t kOut = 65536;
    constexpr std::int64_t kIn = 2048;
    const std::vector<std::string> formats{"",     "int8", "q8_0", "int4",
                                           "q4_0", "nf4",  "q4_k", "q6_k"};
    std::vector<WeightView> weights;
    for (const std::string& format : formats) weights.push_back(coded(format, kOut, kIn));
    const Tensor plain = host_tensor(DType::kU8, {std::int64_t{256} << 20});
    scramble(plain);
    for (const std::int64_t n : rows) {
      std::vector<double> best(formats.size(), 1e9);
      double read = 1e9;
      const Tensor x = random(DType::kBF16, {n, kIn});
      const Tensor y = host_tensor(DType::kBF16, {n, kOut});
      for (int round = 0; round < (n > 16 ? 4 : 12); ++round) {
        read = std::min(read, seconds([&] { read_once(threads_, plain); }));
        for (std::size_t i = 0; i < formats.size(); ++i) {
          const LinearForward call{.y = y, .x = x, .weight = weights[i]};
          best[i] = std::min(best[i], seconds([&] { kernels_->run(call, *stream_); }));
        }
      }
      const double bandwidth = static_cast<double>(plain.bytes()) / read;
      for (std::size_t i = 0; i < formats.size(); ++i) {
        const WeightCodes& held = weights[i].codes;
        std::int64_t bytes = weights[i].tensor.defined() ? weights[i].tensor.bytes() : 0;
        for (const Tensor& part : {held.codes, held.scales, held.zeros, held.minima}) {
          if (part.defined()) bytes += part.bytes();
        }
        const double rate = static_cast<double>(bytes) / best[i];
        fmt::print(
            "{:5} {:3} x {} -> {} {:9.3f} ms {:6.1f} GB/s {:5.1f} % of {:.1f}, {:.2f} x bf16\n",
            formats[i].empty() ? "bf16" : formats[i], n, kIn, kOut, best[i] * 1e3, rate / 1e9,
            100 * rate / bandwidth, bandwidth / 1e9, best[0] / best[i]);
      }
      std::fflush(stdout);
    }
  }

  void attention(std::int64_t b, std::int64_t s, std::int64_t a, std::int64_t g, std::int64_t d,
                 DType dtype) {
    const Tensor q = random(dtype, {b, s, a, d});
    const Tensor k = random(dtype, {b, s, g, d});
    const Tensor v = random(dtype, {b, s, g, d});
    const Tensor out = host_tensor(dtype, {b, s, a, d});
    const Tensor lse = host_tensor(DType::kF32, {b, a, s});
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const std::string size =
        fmt::format("{} attention {} x {}, {}/{} x {}", name(dtype), b, s, a, g, d);
    flops(size + " forward",
          AttentionForward{.out = out, .lse = lse, .q = q, .k = k, .v = v, .scale = scale}, dtype);
    flops(size + " backward",
          AttentionBackward{.dq = host_tensor(dtype, {b, s, a, d}),
                            .dk = host_tensor(dtype, {b, s, g, d}),
                            .dv = host_tensor(dtype, {b, s, g, d}),
                            .dout = random(dtype, {b, s, a, d}),
                            .out = out,
                            .lse = lse,
                            .q = q,
                            .k = k,
                            .v = v,
                            .scale = scale},
          dtype);
  }

  void attentions() {
    attention(4, 256, 12, 12, 64, DType::kBF16);
    attention(4, 1024, 12, 12, 64, DType::kBF16);
    attention(1, 4096, 12, 12, 64, DType::kBF16);
    attention(1, 1024, 12, 12, 64, DType::kF32);
    const Tensor q = random(DType::kBF16, {1, 1, 32, 64});
    const Tensor k = random(DType::kBF16, {1, 2048, 4, 64});
    bandwidth("bf16 decode over 2048 keys, 32/4 x 64",
              AttentionForward{.out = host_tensor(DType::kBF16, {1, 1, 32, 64}),
                               .lse = host_tensor(DType::kF32, {1, 32, 1}),
                               .q = q,
                               .k = k,
                               .v = k,
                               .mask = {.query_begin = 2047},
                               .scale = 0.125});
  }

  void rows() {
    const std::int64_t n = 4096, h = 768;
    const auto wide = [&](std::int64_t f) { return random(DType::kBF16, {n, f}); };
    const auto fp32 = [&](std::int64_t f) { return random(DType::kF32, {f}); };
    bandwidth("bf16 layer norm 4096 x 768", NormForward{.y = wide(h),
                                                        .mean = fp32(n),
                                                        .rstd = fp32(n),
                                                        .x = wide(h),
                                                        .gain = random(DType::kBF16, {h}),
                                                        .bias = random(DType::kBF16, {h})});
    bandwidth("bf16 layer norm backward", NormBackward{.dx = wide(h),
                                                       .dgain = fp32(h),
                                                       .dbias = fp32(h),
                                                       .dy = wide(h),
                                                       .dresidual = wide(h),
                                                       .x = wide(h),
                                                       .gain = random(DType::kBF16, {h}),
                                                       .mean = fp32(n),
                                                       .rstd = fp32(n)});
    for (const auto kind :
         {ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kSilu}) {
      bandwidth(fmt::format("bf16 activation {} 4096 x 3072", static_cast<int>(kind)),
                ActivationForward{.y = wide(3072), .x = wide(3072), .kind = kind});
      bandwidth(
          fmt::format("bf16 activation {} backward", static_cast<int>(kind)),
          ActivationBackward{.dx = wide(3072), .dy = wide(3072), .x = wide(3072), .kind = kind});
    }
    Dropout dropout{.probability = 0.1, .key = site_key(1, "x")};
    dropout.rows = {.consumed_samples = host_tensor(DType::kI64, {1}), .sequence = 1024};
    bandwidth("bf16 dropout add 4096 x 768", DropoutAddForward{.y = wide(h),
                                                               .x = wide(h),
                                                               .bias = random(DType::kBF16, {h}),
                                                               .residual = wide(h),
                                                               .dropout = dropout});
    bandwidth("bf16 add 4096 x 768", Add{.y = wide(h), .a = wide(h), .b = wide(h)});
    const Tensor ids = host_tensor(DType::kI32, {n});
    for (std::int64_t i = 0; i < n; ++i)
      ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % 50304);
    bandwidth(
        "bf16 embedding 4096 x 768",
        EmbeddingForward{.y = wide(h), .table = random(DType::kBF16, {50304, h}), .ids = ids});
    bandwidth("bf16 embedding backward",
              EmbeddingBackward{
                  .dtable = host_tensor(DType::kF32, {50304, h}), .dy = wide(h), .ids = ids});
    const std::int64_t slice = 512;
    const Tensor logits = random(DType::kF32, {slice, 50304});
    const Tensor labels = ids.slice(0, 0, slice);
    bandwidth("loss statistics 512 x 50304",
              LossStatistics{.statistics = host_tensor(DType::kF32, {slice, 3}),
                             .logits = logits,
                             .labels = labels,
                             .valid = 50257});
    bandwidth("loss backward 512 x 50304 to bf16",
              LossBackward{.dlogits = host_tensor(DType::kBF16, {slice, 50304}),
                           .logits = logits,
                           .lse = fp32(slice),
                           .labels = labels,
                           .mask = fp32(slice),
                           .scale = fp32(1),
                           .valid = 50257});
    const Tensor q = random(DType::kBF16, {n, 12, 64});
    bandwidth("bf16 rotary 4096 x 12 x 64", Rotary{.x = q,
                                                   .positions = host_tensor(DType::kI32, {n}),
                                                   .cosine = random(DType::kF32, {1, 32}),
                                                   .sine = random(DType::kF32, {1, 32})});
  }

  void optimizer() {
    const std::int64_t n = 40'000'000;
    const Tensor main = random(DType::kF32, {n});
    const Tensor second = host_tensor(DType::kF32, {n});
    const Tensor scalars = host_tensor(DType::kF32, {kStepScalars});
    for (int i = 0; i < kStepScalars; ++i) scalars.data<float>()[i] = 1e-3F;
    bandwidth("adamw 40 M, bf16 copy", AdamwUpdate{.main = main,
                                                   .first = host_tensor(DType::kF32, {n}),
                                                   .second = second,
                                                   .copy = host_tensor(DType::kBF16, {n}),
                                                   .gradient = random(DType::kF32, {n}),
                                                   .scalars = scalars});
    bandwidth(
        "square sums 40 M",
        SquareSums{
            .sums = host_tensor(DType::kF64, {(n + 65535) / 65536}), .x = main, .block = 65536});
    bandwidth("copy fp32 40 M", Copy{.dst = second, .src = main});
  }

  std::set<std::string> groups_;
  bool one_;
  HostDevice device_;
  Arena arena_{device_};
  ThreadPool threads_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
  std::uint64_t state_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  Bench(std::set<std::string>(argv + 1, argv + argc)).run();
  return 0;
}
