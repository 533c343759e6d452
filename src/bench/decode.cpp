#include "bench/decode.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/bandwidth.h"
#include "bench/switched_kernels.h"
#include "generate/inference.h"
#include "session/session.h"

namespace piton {
namespace {

constexpr std::int64_t kReadLoopBytes = std::int64_t{256} << 20;  // far larger than every cache

class Reader {
 public:
  Reader(const Machine& machine, const DecodeBenchOptions& options, std::int64_t longest)
      : machine_(machine),
        options_(options),
        kernels_(machine.kernels),
        mesh_(machine.world, MeshSizes{}),
        session_(
            observed(machine, kernels_), mesh_,
            {.model = options.model,
             .use = SessionUse::kInference,
             .codes = options.quantize.empty()
                          ? CodesOfParameter()
                          : codes_in(*code_format("--quantize", options.quantize), "--quantize")}) {
    session_.initialize();
    inference_.emplace(session_.context(false), session_.pipeline(), mesh_, options.model);
    cache_.emplace(inference_->make_cache());
    inference_->make_room(*cache_, options.samples * pages_of(longest));
    for (std::int64_t sample = 0; sample < options.samples; ++sample) cache_->add_text();
  }

  // Runs the next `count` tokens of every sample.
  void read(std::int64_t count) {
    const std::int64_t rows = options_.samples * count;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
    for (std::int64_t row = 0; row < rows; ++row) {
      tokens[row] = static_cast<std::int32_t>((row * 7919 + cache_->pages().length(0)) %
                                              options_.model.vocabulary);
    }
    std::vector<TextTokens> texts;
    for (std::int64_t sample = 0; sample < options_.samples; ++sample) {
      texts.push_back({.text = sample,
                       .ids = std::span(tokens).subspan(static_cast<std::size_t>(sample * count),
                                                        static_cast<std::size_t>(count))});
    }
    inference_->logits(texts, Inference::last_rows(texts), *cache_);
    machine_.stream.synchronize();
  }
  // By how many bytes codes are smaller than values, of a share of the experts.
  double saved_bytes(double share_of_experts) const {
    double saved = 0;
    for (const Parameter* parameter : session_.parameters()) {
      const WeightCodes& codes = parameter->codes;
      if (!codes.given()) continue;
      std::int64_t bytes = parameter->elements() * size_bytes(parameter->dtype);
      WeightCodes::tensors(codes, [&](const char*, const Tensor& tensor, Access) {
        if (tensor.defined()) bytes -= tensor.bytes();
      });
      saved += static_cast<double>(bytes) * (parameter->matrices > 1 ? share_of_experts : 1);
    }
    return saved;
  }
  void forget(std::int64_t length) {
    for (std::int64_t sample = 0; sample < options_.samples; ++sample)
      cache_->pages().truncate(sample, length);
  }

  // Profiles `work` call by call. Keeps the fastest round, so that all numbers are of one run.
  ReadProfile profile(const std::function<void()>& work) {
    ReadProfile best;
    for (int round = 0; options_.profile && round < options_.rounds; ++round) {
      TimedKernels timed(machine_.kernels);
      kernels_.send_to(timed);
      inference_->record_passes(false);
      const double seconds = seconds_of(work);
      inference_->record_passes(true);
      kernels_.send_to_inner();
      if (round == 0 || seconds < best.seconds) best = {seconds, timed.by_name(), timed.by_call()};
    }
    return best;
  }

 private:
  static Machine observed(const Machine& machine, Kernels& kernels) {
    return {.world = machine.world,
            .device = machine.device,
            .kernels = kernels,
            .arena = machine.arena,
            .stream = machine.stream,
            .threads = machine.threads,
            .log = machine.log};
  }

  Machine machine_;
  DecodeBenchOptions options_;
  SwitchedKernels kernels_;
  Mesh mesh_;
  Session session_;
  std::optional<Inference> inference_;
  std::optional<KvCache> cache_;
};

void check(const Machine& machine, const DecodeBenchOptions& options, std::int64_t length) {
  if (machine.world.size() != 1) {
    throw Error(Fault::kUsage,
                "bench: decoding runs on one process, and {} were started; leave mpirun out",
                machine.world.size());
  }
  if (length > options.model.max_positions) {
    throw Error(Fault::kUsage,
                "--context: {} tokens with those decoded, and the model takes {}; give fewer",
                length, options.model.max_positions);
  }
}

// Of the experts of a layer, that which some of `tokens` tokens choose, if they choose all alike.
double chosen_share(const ModelConfig& model, std::int64_t tokens) {
  if (!model.experts) return 1;
  const auto experts = static_cast<double>(model.experts->experts);
  const double left = 1 - static_cast<double>(model.experts->choices) / experts;
  return 1 - std::pow(left, static_cast<double>(tokens));
}

// Weights that take part in the products of a token: all but tables used only for look-ups, and
// experts that are not chosen.
double multiplying_weights(const ModelConfig& model, double share_of_experts) {
  double weights = static_cast<double>(model.parameters());
  if (model.experts) {
    const std::int64_t matrices =
        model.expert_layers() * model.experts->experts * (model.gated ? 3 : 2);
    weights -= (1 - share_of_experts) *
               static_cast<double>(matrices * model.hidden * model.expert_ffn_hidden());
  }
  if (!model.tied) weights -= static_cast<double>(model.vocabulary * model.hidden);
  if (model.positions == PositionKind::kLearned)
    weights -= static_cast<double>(model.max_positions * model.hidden);
  return weights;
}

// Channels of the cache for each token and layer.
std::int64_t cached_channels(const ModelConfig& model, const Kernels& kernels) {
  if (model.latent && kernels.attends_to_latents(model.latent->rank, model.latent->turned))
    return model.latent->rank + model.latent->turned;
  return 2 * model.groups * model.head_size;
}

}  // namespace

DecodeBench bench_decode(const Machine& machine, const DecodeBenchOptions& options) {
  check(machine, options, options.context + options.tokens);
  DecodeBench bench;
  Reader reader(machine, options, options.context + options.tokens);
  reader.read(options.context);
  reader.read(1);
  bench.memory = machine.arena.counts();
  const double cached =
      static_cast<double>(options.samples * options.model.layers *
                          cached_channels(options.model, machine.kernels)) *
      (static_cast<double>(options.context) + static_cast<double>(options.tokens + 1) / 2);
  const double share = chosen_share(options.model, options.samples);
  bench.bytes = (multiplying_weights(options.model, share) + cached) *
                    static_cast<double>(size_bytes(options.model.dtype)) -
                reader.saved_bytes(share);
  const Tensor plain = zero_tensor(machine, DType::kU8, {kReadLoopBytes});
  Samples reads;
  for (int round = 0; round < options.rounds; ++round) {
    if (plain.place().kind == DeviceKind::kHost)
      sample(reads, [&] { read_once(machine.threads, plain); });
    reader.forget(options.context);
    const double seconds = seconds_of([&] {
      for (std::int64_t token = 0; token < options.tokens; ++token) reader.read(1);
    });
    bench.token.seconds.push_back(seconds / static_cast<double>(options.tokens));
  }
  bench.profile = reader.profile([&] {
    reader.forget(options.context);
    reader.read(1);
  });
  if (!reads.seconds.empty())
    bench.read_bandwidth = static_cast<double>(kReadLoopBytes) / reads.best();
  return bench;
}

PrefillBench bench_prefill(const Machine& machine, const DecodeBenchOptions& options) {
  check(machine, options, options.context);
  PrefillBench bench;
  Reader reader(machine, options, options.context);
  reader.read(options.context);
  bench.memory = machine.arena.counts();
  bench.tokens = static_cast<double>(options.samples * options.context);
  // The head computes only the last row of each sample.
  const double head = 2 * static_cast<double>(options.model.vocabulary * options.model.hidden);
  bench.flops = (options.model.forward_flops_per_token(options.context) - head) * bench.tokens +
                head * static_cast<double>(options.samples);
  PeakSamples peak(machine, options.model.dtype);
  for (int round = 0; round < options.rounds; ++round) {
    peak.sample();
    reader.forget(0);
    bench.pass.seconds.push_back(seconds_of([&] { reader.read(options.context); }));
  }
  bench.profile = reader.profile([&] {
    reader.forget(0);
    reader.read(options.context);
  });
  bench.peak = peak.flops_per_second();
  return bench;
}

}  // namespace piton
