#include "checkpoint/save_layout.h"

namespace piton {
namespace {

std::vector<Holding> collect(const StoredModel& model, SaveLayout& layout) {
  std::vector<Holding> holdings;
  const auto add = [&](std::vector<Holding> more) {
    holdings.insert(holdings.end(), more.begin(), more.end());
  };
  layout.parameters = model.parameters;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Parameter& parameter = *model.parameters[i];
    add(holdings_of({parameter, 0, parameter.elements()}, "", parameter.dtype, i));
  }
  if (model.optimizer == nullptr) return holdings;
  const auto next = [&] { return layout.parameters.size() + layout.state.size(); };
  for (const OptimizerState& state : model.optimizer->state()) {
    if (!state.main_is_value) {
      add(holdings_of({*state.parameter, state.offset, state.size()}, kMainPrefix, DType::kF32,
                      next()));
      layout.state.push_back(state.main);
    }
    for (const Moment& moment : state.moments) {
      add(moment_holdings_of(state, moment, next()));
      layout.state.push_back(moment.values);
    }
  }
  return holdings;
}

}  // namespace

SaveLayout lay_out(const StoredModel& model, Communicator& ranks, std::int64_t file_bytes) {
  SaveLayout layout;
  layout.holdings = collect(model, layout);
  layout.writes = plan_writes(layout.holdings, ranks);
  std::vector<CanonicalTensor> weights, moments;
  for (const CanonicalTensor& tensor : layout.writes.tensors) {
    (tensor.kind == TensorKind::kWeight ? weights : moments).push_back(tensor);
  }
  add_files(layout.plan, weights, "model", file_bytes);
  add_files(layout.plan, moments, "optimizer", file_bytes);
  return layout;
}

}  // namespace piton
