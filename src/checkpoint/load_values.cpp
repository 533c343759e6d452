#include "checkpoint/load_values.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/listed.h"
#include "checkpoint/collective.h"

namespace piton {
namespace {

// On the way to a device, at a time.
constexpr std::int64_t kStagedBytes = std::int64_t{64} << 20;

// "mtp.layers.N." of a weight of a layer that predicts later tokens.
std::string later_layer_of(const std::string& weight) {
  constexpr std::string_view kLayers = "mtp.layers.";
  return weight.substr(0, weight.find('.', kLayers.size()) + 1);
}

// Fills tensors of this rank with runs of canonical tensors. Local.
class Filler {
 public:
  Filler(TensorSource& source, const StoreContext& context) : source_(source), context_(context) {
    context_.stream.synchronize();  // host memory is written without a stream
  }
  Device& device() { return context_.device; }

  // dst [size] = elements of `prefix` + the parameter's canonical tensors, from element `begin` of
  // its local tensor on; 0 where there is no piece (padding).
  // `device`: of `dst`, if that is not in host memory.
  void fill(const Parameter& parameter, std::int64_t begin, const std::string& prefix,
            const Tensor& dst, Device& device) {
    if (dst.elements() == 0) return;
    PITON_ASSERT(dst.contiguous() && dst.ndim() == 1, "{}", to_string(dst));
    if (dst.place().kind == DeviceKind::kHost) {
      return fill_host({parameter, begin, dst.elements()}, prefix, dst.dtype(), dst.raw());
    }
    const std::int64_t step = kStagedBytes / size_bytes(dst.dtype());
    const Tensor staged = host_tensor(dst.dtype(), {std::min(step, dst.elements())});
    for (std::int64_t at = 0; at < dst.elements(); at += step) {
      const std::int64_t count = std::min(step, dst.elements() - at);
      fill_host({parameter, begin + at, count}, prefix, dst.dtype(), staged.raw());
      read();
      device.upload(staged.raw(), dst.slice(0, at, count), context_.stream);
    }
  }

  // dst = the given runs, each at its source offset; together they cover it.
  void fill(const std::vector<Holding>& holdings, const Tensor& dst, Device& device) {
    if (dst.elements() == 0) return;
    if (dst.place().kind == DeviceKind::kHost) return want(holdings, dst.dtype(), dst.raw());
    const Tensor staged = host_tensor(dst.dtype(), dst.shape());
    want(holdings, dst.dtype(), staged.raw());
    read();
    device.upload(staged.raw(), dst, context_.stream);
  }

  void fill_codes(const Parameter& parameter) {
    load_codes(source_, parameter, context_.threads, device(), context_.stream);
  }

  // Reads what tensors in host memory are filled with: by all threads, if the source allows it. The
  // largest come first, so that threads finish together.
  void read() {
    std::ranges::stable_sort(reads_, std::greater<>(),
                             [](const Read& one) { return one.run.size(); });
    const auto one = [&](std::int64_t index) {
      const Read& what = reads_[static_cast<std::size_t>(index)];
      source_.read(what.name, what.run, what.dtype, what.dst);
    };
    const auto count = static_cast<std::int64_t>(reads_.size());
    if (context_.threads != nullptr && source_.reads_in_parallel()) {
      context_.threads->run(count, one);
    } else {
      for (std::int64_t index = 0; index < count; ++index) one(index);
    }
    reads_.clear();
  }

 private:
  struct Read {
    std::string name;
    TensorRun run;
    DType dtype;
    std::byte* dst;
  };

  void fill_host(const LocalRun& local, const std::string& prefix, DType dtype, std::byte* dst) {
    const std::int64_t width = size_bytes(dtype);
    const std::vector<Holding> holdings = holdings_of(local, prefix, dtype, 0);
    std::int64_t covered = 0;
    for (const Holding& holding : holdings) covered += holding.run().size();
    if (covered < local.size) std::memset(dst, 0, static_cast<std::size_t>(local.size * width));
    want(holdings, dtype, dst);
  }

  // read() is to fill dst, in host memory.
  void want(const std::vector<Holding>& holdings, DType dtype, std::byte* dst) {
    for (const Holding& holding : holdings) {
      reads_.push_back({holding.tensor.name, holding.run(), dtype,
                        dst + holding.source_offset * size_bytes(dtype)});
    }
  }

  TensorSource& source_;
  StoreContext context_;
  std::vector<Read> reads_;
};

void fill_weights(Filler& filler, const StoredModel& model) {
  for (Parameter* parameter : model.parameters) {
    if (parameter->codes.given()) {
      filler.fill_codes(*parameter);
      continue;
    }
    if (model.sharded != nullptr) {
      const OwnValues own = model.sharded->own_values(*parameter);
      if (own.values.defined())
        filler.fill(*parameter, own.offset, "", own.values, filler.device());
      continue;
    }
    PITON_ASSERT(parameter->value.defined(), "{} has no memory", parameter->name);
    filler.fill(*parameter, 0, "", parameter->value.flatten(), filler.device());
    ++parameter->version;
  }
}

void fill_state(Filler& filler, const Optimizer& optimizer) {
  for (const OptimizerState& state : optimizer.state()) {
    const auto fill = [&](const std::string& prefix, const Tensor& dst) {
      filler.fill(*state.parameter, state.offset, prefix, dst, optimizer.state_device());
    };
    if (!state.main_is_value) fill(kMainPrefix, state.main);
    for (const Moment& moment : state.moments) {
      if (moment.each_row) {
        filler.fill(moment_holdings_of(state, moment, 0), moment.values, optimizer.state_device());
      } else {
        fill(fmt::format("{}.", moment.name), moment.values);
      }
    }
  }
}

std::vector<Holding> weight_holdings(const StoredModel& model) {
  std::vector<Holding> holdings;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = *model.parameters[i];
    const std::vector<Holding> more =
        holdings_of({parameter, 0, parameter.elements()}, "", parameter.dtype, i);
    holdings.insert(holdings.end(), more.begin(), more.end());
  }
  return holdings;
}

// What a model with these weights is, by their names.
std::string_view kind_of_model(const std::vector<CanonicalTensor>& weights) {
  bool is_encoder = false;
  for (const CanonicalTensor& one : weights) {
    if (one.name.starts_with("encoder.")) return "an encoder with a decoder (t5)";
    is_encoder |= one.name == "head.dense.weight" || one.name == "embedding.type.weight";
  }
  return is_encoder ? "an encoder (bert)" : "a decoder";
}

std::vector<Holding> state_holdings(const Optimizer& optimizer) {
  std::vector<Holding> holdings;
  const auto add = [&](const std::vector<Holding>& more) {
    holdings.insert(holdings.end(), more.begin(), more.end());
  };
  for (const OptimizerState& state : optimizer.state()) {
    if (!state.main_is_value) {
      add(holdings_of({*state.parameter, state.offset, state.size()}, kMainPrefix, DType::kF32, 0));
    }
    for (const Moment& moment : state.moments) add(moment_holdings_of(state, moment, 0));
  }
  return holdings;
}

}  // namespace

std::vector<CanonicalTensor> tensors_of(const StoredModel& model, TensorKind kind,
                                        Communicator& ranks) {
  std::vector<Holding> holdings;
  if (kind == TensorKind::kWeight) {
    holdings = weight_holdings(model);
  } else if (model.optimizer != nullptr) {
    holdings = state_holdings(*model.optimizer);
  }
  return all_tensors(holdings, ranks);
}

void check_tensors(const TensorSource& source, const std::vector<CanonicalTensor>& wanted,
                   TensorKind kind) {
  const std::vector<CanonicalTensor> found = source.tensors(kind);
  std::map<std::string, Shape> stored;
  for (const CanonicalTensor& one : found) stored[one.name] = one.shape;
  if (kind == TensorKind::kWeight) {
    const std::string_view got = kind_of_model(found);
    const std::string_view own = kind_of_model(wanted);
    if (got != own) {
      throw Error(Fault::kData,
                  "checkpoint: {}: is of {}, and this model is {}; give another checkpoint, or the "
                  "flags of its model (--model-family)",
                  source.where(), got, own);
    }
  }
  std::vector<std::string> missing, unknown, shapes;
  for (const CanonicalTensor& tensor : wanted) {
    const auto found = stored.find(tensor.name);
    if (found == stored.end()) {
      missing.push_back(tensor.name);
      continue;
    }
    if (found->second != tensor.shape) {
      shapes.push_back(fmt::format("{} is {}, this model has {}", tensor.name,
                                   to_string(found->second), to_string(tensor.shape)));
    }
    stored.erase(found);
  }
  std::set<std::string> later;  // layers of the model
  for (const CanonicalTensor& one : wanted)
    if (predicts_later_tokens(one.name)) later.insert(later_layer_of(one.name));
  for (const auto& [name, shape] : stored)
    if (!predicts_later_tokens(name) || later.contains(later_layer_of(name)))
      unknown.push_back(name);
  if (!shapes.empty()) {
    throw Error(Fault::kData,
                "checkpoint: {}: {}; is the checkpoint from another size of this model?",
                source.where(), listed(shapes));
  }
  if (!missing.empty() || !unknown.empty()) {
    std::string what;
    if (!missing.empty())
      what += fmt::format("{} tensors are missing: {}", missing.size(), listed(missing));
    if (!unknown.empty()) {
      what += fmt::format("{}{} tensors are not of this model: {}", what.empty() ? "" : "; ",
                          unknown.size(), listed(unknown));
    }
    throw Error(Fault::kData, "checkpoint: {}: {}; is the checkpoint from another model?",
                source.where(), what);
  }
}

void load_values(TensorSource& source, const StoredModel& model, const StoreContext& context) {
  phase(context.mesh.group(kAllAxes), std::nullopt, [&] {
    Filler filler(source, context);
    fill_weights(filler, model);
    if (model.optimizer != nullptr) fill_state(filler, *model.optimizer);
    filler.read();
  });
  if (model.sharded != nullptr) model.sharded->publish_values(context.stream);
  context.stream.synchronize();
}

void load_weights(TensorSource& source, const StoredModel& model, const StoreContext& context) {
  PITON_ASSERT(model.optimizer == nullptr);
  load_weights_and_state(source, model, context);
}

void load_weights_and_state(TensorSource& source, const StoredModel& model,
                            const StoreContext& context) {
  Communicator& ranks = context.mesh.group(kAllAxes);
  const std::vector<CanonicalTensor> weights = tensors_of(model, TensorKind::kWeight, ranks);
  const std::vector<CanonicalTensor> state = tensors_of(model, TensorKind::kOptimizer, ranks);
  phase(ranks, std::nullopt, [&] {
    check_tensors(source, weights, TensorKind::kWeight);
    if (model.optimizer != nullptr) check_tensors(source, state, TensorKind::kOptimizer);
  });
  load_values(source, model, context);
  ranks.barrier();
}

}  // namespace piton
