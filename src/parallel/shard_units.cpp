#include "parallel/shard_units.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.h"

namespace piton {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void cut_evenly(ShardUnit& unit) {
  std::int64_t end = 0;
  for (UnitEntry& entry : unit.entries) {
    entry.begin = end;
    end += round_up(entry.size, kUnitAlignment);
  }
  unit.size = round_up(end, kUnitAlignment * unit.parts);
}

// Greedy: largest parameter first, each into the part with the fewest elements so far. Two parts
// then differ by at most the size of one parameter.
void cut_between_parameters(ShardUnit& unit) {
  std::vector<std::size_t> order(unit.entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::size_t i) { return unit.entries[i].size; });
  std::vector<std::int64_t> filled(static_cast<std::size_t>(unit.parts));
  std::vector<std::size_t> part_of(unit.entries.size());
  for (const std::size_t i : order) {
    const auto emptiest = std::ranges::min_element(filled);
    part_of[i] = static_cast<std::size_t>(emptiest - filled.begin());
    unit.entries[i].begin = *emptiest;
    *emptiest += round_up(unit.entries[i].size, kUnitAlignment);
  }
  const std::int64_t part = std::ranges::max(filled);
  for (std::size_t i = 0; i < unit.entries.size(); ++i) {
    unit.entries[i].begin += part * static_cast<std::int64_t>(part_of[i]);
  }
  unit.size = part * unit.parts;
}

}  // namespace

std::vector<ShardUnit> make_shard_units(const std::vector<Parameter*>& parameters,
                                        const ReductionGroups& groups, const UnitRules& rules) {
  std::vector<ShardUnit> units;
  std::map<std::tuple<const ReductionGroup*, DType, CutPolicy, int>, std::size_t> open;
  std::vector<std::int64_t> bytes;  // by unit
  for (std::size_t i = parameters.size(); i-- > 0;) {
    Parameter* parameter = parameters[i];
    const ReductionGroup* group = &groups.of(*parameter);
    const bool tied = groups.is_tied(*parameter);
    const CutPolicy cut = rules.cut_of(*parameter);
    const std::tuple key{group, parameter->dtype, cut, parameter->chunk};
    const auto known = open.find(key);
    std::size_t unit = units.size();
    if (known != open.end() && !tied) unit = known->second;
    if (unit == units.size()) {
      units.push_back({.group = group,
                       .cut = cut,
                       .dtype = parameter->dtype,
                       .tied = tied,
                       .parts = rules.sharded ? group->size() : 1,
                       .own = rules.sharded ? group->rank() : 0});
      bytes.push_back(0);
      if (!tied) open[key] = unit;
    }
    units[unit].entries.push_back({parameter, 0, parameter->elements()});
    bytes[unit] += parameter->elements() * size_bytes(DType::kF32);
    const std::int64_t most = cut == CutPolicy::kEven
                                  ? rules.bucket_bytes
                                  : rules.bucket_bytes * std::max(units[unit].parts / 2, 1);
    if (!tied && bytes[unit] >= most) open.erase(key);
  }
  // Backward completes parameters from last to first, so a unit is complete with its first
  // parameter. The entries are still reversed: that parameter is the last entry.
  std::map<const Parameter*, std::size_t> place;
  for (std::size_t i = 0; i < parameters.size(); ++i) place[parameters[i]] = i;
  std::ranges::stable_sort(units, std::greater<>(), [&](const ShardUnit& unit) {
    return place.at(unit.entries.back().parameter);
  });
  for (ShardUnit& unit : units) {
    std::ranges::reverse(unit.entries);
    if (unit.cut == CutPolicy::kEven) {
      cut_evenly(unit);
    } else {
      cut_between_parameters(unit);
    }
  }
  return units;
}

std::vector<ShardSpan> owned_spans(const std::vector<ShardUnit>& units) {
  std::vector<ShardSpan> spans;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const ShardUnit& unit = units[u];
    for (const UnitEntry& entry : unit.entries) {
      const std::int64_t begin = std::max(entry.begin, unit.own_begin());
      const std::int64_t end =
          std::min(entry.begin + entry.size, unit.own_begin() + unit.part_size());
      if (begin >= end) continue;
      spans.push_back({.parameter = entry.parameter,
                       .parameter_offset = begin - entry.begin,
                       .unit = u,
                       .unit_begin = begin,
                       .size = end - begin});
    }
  }
  return spans;
}

}  // namespace piton
