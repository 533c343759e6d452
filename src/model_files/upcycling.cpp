#include "model_files/upcycling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/options/option_range.h"
#include "checkpoint/values.h"
#include "huggingface/files/origin.h"
#include "model/block.h"
#include "model/canonical_tensors.h"
#include "model/initialize.h"

namespace piton {
namespace {

// A slice of a tensor of the MLP, times a factor.
struct Slice {
  std::string of;
  Shape from;  // its first element
  double factor = 1;
};

struct UpcycledTensors {
  std::map<std::string, Slice> slices;          // by the name of the tensor of an expert
  std::map<std::string, Initialization> drawn;  // routers; a row is that of `granularity` experts
  std::map<std::string, Shape> zeros;
};

class UpcycledSource final : public TensorSource {
 public:
  UpcycledSource(std::unique_ptr<TensorSource> model, const ModelConfig& config,
                 UpcycledTensors tensors, const Upcycling& wanted)
      : model_(std::move(model)), all_(std::move(tensors)), wanted_(wanted) {
    std::map<std::string, CanonicalTensor> there;
    for (const CanonicalTensor& one : model_->tensors(TensorKind::kWeight)) there[one.name] = one;
    for (const CanonicalShape& one : canonical_tensors(config)) {
      const auto slice = all_.slices.find(one.name);
      const auto found = there.find(slice != all_.slices.end() ? slice->second.of : one.name);
      const DType dtype = found != there.end() ? found->second.dtype : DType::kF32;
      tensors_.push_back({.name = one.name, .dtype = dtype, .shape = one.shape});
    }
    std::ranges::sort(tensors_, {}, &CanonicalTensor::name);
  }

  std::string where() const override { return model_->where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    return kind == TensorKind::kWeight ? tensors_ : std::vector<CanonicalTensor>();
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;
  std::optional<CodeFormat> stored_format(const std::string& name) const override {
    return is_made(name) ? std::nullopt : model_->stored_format(name);
  }
  void read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) override {
    model_->read_codes(name, row, to);
  }
  bool reads_in_parallel() const override { return model_->reads_in_parallel(); }

 private:
  bool is_made(const std::string& name) const {
    return all_.slices.contains(name) || all_.drawn.contains(name) || all_.zeros.contains(name);
  }
  void draw(const std::string& name, const TensorRun& run, std::vector<double>& values) const;

  std::unique_ptr<TensorSource> model_;
  UpcycledTensors all_;
  Upcycling wanted_;
  std::vector<CanonicalTensor> tensors_;
};

void UpcycledSource::read(const std::string& name, const TensorRun& run, DType dtype,
                          std::byte* dst) {
  if (!is_made(name)) return model_->read(name, run, dtype, dst);
  const auto slice = all_.slices.find(name);
  std::vector<double> values;
  if (slice != all_.slices.end()) {
    TensorRun of_mlp = run;
    for (int dim = 0; dim < run.start.ndim(); ++dim) of_mlp.start[dim] += slice->second.from[dim];
    if (slice->second.factor == 1) return model_->read(slice->second.of, of_mlp, dtype, dst);
    values.resize(static_cast<std::size_t>(run.size()));
    model_->read(slice->second.of, of_mlp, DType::kF64,
                 reinterpret_cast<std::byte*>(values.data()));
    for (double& value : values) value *= slice->second.factor;
  } else if (all_.drawn.contains(name)) {
    draw(name, run, values);
  } else {
    values.assign(static_cast<std::size_t>(run.size()), 0);
  }
  convert_values(reinterpret_cast<const std::byte*>(values.data()), DType::kF64, dst, dtype,
                 run.size());
}

// Row i is drawn as row i / granularity of a new router.
void UpcycledSource::draw(const std::string& name, const TensorRun& run,
                          std::vector<double>& values) const {
  const Shape& shape = std::ranges::find(tensors_, name, &CanonicalTensor::name)->shape;
  ThreadPool alone(1);
  Tensor row = host_tensor(DType::kF64, {1, shape[1]});
  std::int64_t drawn = -1;
  for_each_stretch(shape, run, [&](std::int64_t at, std::int64_t, std::int64_t count) {
    for (std::int64_t element = at; element < at + count; ++element) {
      const std::int64_t index = element / shape[1] / wanted_.granularity;
      if (index != drawn) {
        Parameter parameter{.name = name, .dtype = DType::kF64, .shape = {1, shape[1]}};
        parameter.pieces = {{.name = name,
                             .global = shape,
                             .start = {index, 0},
                             .extent = {1, shape[1]},
                             .initialization = all_.drawn.at(name)}};
        write_initial_rows(parameter, wanted_.seed, alone, row);
        drawn = index;
      }
      values.push_back(row.data<double>()[element % shape[1]]);
    }
  });
}

double factor_of(const ModelConfig& config, std::int64_t granularity) {
  const ExpertFacts& facts = *config.experts;
  const auto slices = static_cast<double>(granularity);
  const double output = facts.normalized ? slices
                                         : static_cast<double>(facts.experts) * slices /
                                               static_cast<double>(facts.choices);
  const bool cubic = config.gated || config.activation == ActivationKind::kSquaredRelu;
  return std::pow(output, cubic ? 1.0 / 3 : 1.0 / 2);
}

ModelConfig with_experts(const OpenedModel& opened, const Upcycling& wanted) {
  const ModelConfig& dense = opened.model;
  if (dense.experts || dense.encoder || dense.encoder_decoder) {
    throw Error(Fault::kData, "{}: is {}, wanted a decoder without experts for --moe-use-upcycling",
                opened.source->where(),
                dense.experts           ? "a mixture of experts already"
                : dense.encoder_decoder ? "an encoder with a decoder"
                                        : "an encoder");
  }
  const std::int64_t slices = wanted.granularity;
  check_range("--moe-upcycling-granularity", slices, 1, 1 << 16);
  if (wanted.experts.experts % slices != 0) {
    throw Error(Fault::kUsage,
                "--moe-upcycling-granularity: got {}, wanted a divisor of --num-experts, which is "
                "{}",
                slices, wanted.experts.experts);
  }
  ModelConfig config = dense;
  config.experts = wanted.experts;
  ExpertFacts& facts = *config.experts;
  if (wanted.ffn_hidden) config.ffn_hidden = *wanted.ffn_hidden;
  // As flags say it: where all layers have experts, theirs is the one width.
  if (facts.dense_layers.empty()) config.ffn_hidden = facts.ffn_hidden;
  if (facts.ffn_hidden == config.ffn_hidden) facts.ffn_hidden = 0;
  if (config.expert_ffn_hidden() * slices != dense.ffn_hidden) {
    throw Error(Fault::kUsage,
                "--moe-upcycling-granularity: got {}, and the MLPs of {} have a width of {}, its "
                "experts would have one of {} (--moe-ffn-hidden-size); wanted the first to be the "
                "product of the two others",
                slices, opened.source->where(), dense.ffn_hidden, config.expert_ffn_hidden());
  }
  if (!config.experts->dense_layers.empty() && config.ffn_hidden != dense.ffn_hidden) {
    throw Error(Fault::kUsage,
                "--ffn-hidden-size: got {}, but the MLPs of {}, which some layers keep, have {}; "
                "leave it out and give --moe-ffn-hidden-size",
                config.ffn_hidden, opened.source->where(), dense.ffn_hidden);
  }
  return config;
}

// The initialization of a router, with the bound of a matrix of this shape (nn/shard.cpp).
Initialization router_weights(const Upcycling& wanted, const Shape& shape) {
  ModelConfig drawn;
  drawn.init_deviation = wanted.init_deviation;
  drawn.xavier_weights = wanted.xavier_weights;
  Initialization initialization = input_weights(drawn);
  if (initialization.kind == Initialization::Kind::kXavier)
    initialization.bound = std::sqrt(6.0 / static_cast<double>(shape[0] + shape[1]));
  return initialization;
}

// "layers.2.mlp.experts.5.up.weight" is expert 5 of "layers.2.mlp.up.weight".
Slice slice_of(const CanonicalShape& tensor, const ModelConfig& config, std::int64_t granularity) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = tensor.name.find(kExperts);
  const std::size_t number = at + kExperts.size();
  const std::size_t end = tensor.name.find('.', number);
  const std::int64_t expert = std::stoll(tensor.name.substr(number, end - number));
  const std::int64_t first = expert % granularity * config.expert_ffn_hidden();
  Slice slice{.of = tensor.name.substr(0, at) + tensor.name.substr(end)};
  const bool down = tensor.name.find(".down.", end) != tensor.name.npos;
  const bool matrix = tensor.shape.ndim() > 1;
  slice.from.append(down ? 0 : first);
  if (matrix) slice.from.append(down ? first : 0);
  if (matrix || !down) slice.factor = factor_of(config, granularity);
  return slice;
}

}  // namespace

void make_experts(OpenedModel& opened, const Upcycling& wanted) {
  const ModelConfig config = with_experts(opened, wanted);
  std::set<std::string> there;
  for (const CanonicalTensor& one : opened.source->tensors(TensorKind::kWeight))
    there.insert(one.name);
  UpcycledTensors made;
  for (const CanonicalShape& one : canonical_tensors(config)) {
    if (there.contains(one.name)) continue;
    if (one.name.ends_with(".router.weight")) {
      made.drawn.emplace(one.name, router_weights(wanted, one.shape));
    } else if (one.name.find(".experts.") != one.name.npos) {
      made.slices.emplace(one.name, slice_of(one, config, wanted.granularity));
    } else {
      made.zeros.emplace(one.name, one.shape);
      if (one.name.find(".shared") != one.name.npos) opened.drawn.push_back(one.name);
    }
  }
  opened.model = config;
  opened.source =
      std::make_unique<UpcycledSource>(std::move(opened.source), config, std::move(made), wanted);
  // It is no model of that family any more.
  opened.origin = nullptr;
  opened.facts.erase(kOriginFact);
}

}  // namespace piton
