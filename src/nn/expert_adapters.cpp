#include "nn/expert_adapters.h"

#include <optional>

#include "nn/adapter_factors.h"
#include "ops/linear/rank_rows.h"

namespace piton {
namespace {

// Names of an adapter of all experts, and of one of them.
std::string name_of(const ExpertProducts& of, const std::string& matrix) {
  return of.name + ".experts." + matrix;
}
std::string name_of(const ExpertProducts& of, const std::string& matrix, std::int64_t expert) {
  return adapter_of_expert(name_of(of, matrix), expert);
}

// That of every expert of the model: the files of an adapter are checked before (check_computed).
const AdapterShape* shape_of(const ExpertProducts& of, const std::string& matrix) {
  return of.adapters == nullptr ? nullptr : of.adapters->find(name_of(of, matrix, of.here.first));
}

Parameter* added_factor(ParameterList& parameters, Parameter parameter) {
  parameter.contributions = 1;
  return &parameters.add(std::move(parameter));
}

// A and B of an expert.
template <typename A, typename B>
ExpertAdapter made(const ExpertProducts& of, const std::string& matrix, const A& a, const B& b) {
  const AdapterShape& shape = *shape_of(of, matrix);
  PITON_ASSERT(!shape.magnitude, "{}: lengths of experts", name_of(of, matrix));
  Parameter* const all_a = added_factor(
      of.parameters, of_experts(of.shard, adapter_a_of(name_of(of, matrix)), of.here, a));
  Parameter* const all_b = added_factor(
      of.parameters, of_experts(of.shard, adapter_b_of(name_of(of, matrix)), of.here, b));
  return {.a = *all_a, .b = *all_b, .scale = shape.scale};
}

}  // namespace

std::vector<ExpertAdapter> adapters_of_first_product(const ExpertProducts& of,
                                                     const std::vector<RowPart>& parts,
                                                     std::int64_t in) {
  std::vector<ExpertAdapter> adapters;
  std::int64_t first_output = 0;
  for (auto first = parts.begin(); first != parts.end(); ++first) {
    std::vector<RowPart> together;
    std::vector<std::string> matrices;
    for (auto last = first; last != parts.end(); ++last) {
      together.push_back(*last);
      matrices.push_back(name_of(of, last->name));
      const std::optional<std::string> found = adapter_of(matrices);
      if (!found) continue;
      const std::string matrix = found->substr(found->rfind('.') + 1);
      const AdapterShape* const shape = shape_of(of, matrix);
      if (shape == nullptr) continue;
      const auto a = [&](std::int64_t expert) {
        return shared_adapter_factor(of.shard, adapter_a_of(name_of(of, matrix, expert)),
                                     shape->rank, in, initial_adapter_a(in));
      };
      const auto b = [&](std::int64_t expert) {
        std::vector<RowPart> rows;
        for (const RowPart& one : together)
          rows.push_back({adapter_b_of(name_of(of, one.name, expert)), one.out});
        return row_split_parameter(of.shard, "", rows, shape->rank, {});
      };
      ExpertAdapter adapter = made(of, matrix, a, b);
      adapter.first_output = first_output;
      adapters.push_back(adapter);
    }
    first_output += first->out / of.shard.size();
  }
  return adapters;
}

std::vector<ExpertAdapter> adapters_of_last_product(const ExpertProducts& of, std::int64_t out,
                                                    std::int64_t in) {
  const std::string matrix = "down";
  const AdapterShape* const shape = shape_of(of, matrix);
  if (shape == nullptr) return {};
  const auto a = [&](std::int64_t expert) {
    return column_split_parameter(of.shard, adapter_a_of(name_of(of, matrix, expert)), shape->rank,
                                  in, initial_adapter_a(in));
  };
  const auto b = [&](std::int64_t expert) {
    return shared_adapter_factor(of.shard, adapter_b_of(name_of(of, matrix, expert)), out,
                                 shape->rank, {});
  };
  return {made(of, matrix, a, b)};
}

Tensor drawn_mask(Context& context, const Shard& shard, const ExpertMask& mask,
                  const ExpertRows& rows, const RowExchange* exchange) {
  if (!context.training || !context.adapters || mask.probability == 0) return {};
  MaskRows drawn = context.rows;
  drawn.first_column = mask.first_column;
  const Tensor tokens = context.activation(shard.dtype, {mask.tokens, mask.width});
  const Tensor halves = context.activation(shard.dtype, tokens.shape());
  // The sigmoid of 0 is a half.
  context.device.zero(tokens, context.stream);
  context.kernels.run(ActivationForward{.y = halves, .x = tokens, .kind = ActivationKind::kSigmoid},
                      context.stream);
  context.kernels.run(
      DropoutAddForward{.y = tokens,
                        .x = halves,
                        .dropout = {mask.probability, site_key(context.seed, mask.site), drawn}},
      context.stream);
  context.kernels.run(Scale{.y = tokens, .x = tokens, .factor = 2}, context.stream);
  const Value all = exchange != nullptr
                        ? sent_rows(context, {tokens}, *exchange)
                        : rows_of_ranks(context, {tokens}, *shard.experts, /*splits=*/true);
  return dispatched(context, {all.tensor}, rows).tensor;
}

}  // namespace piton
