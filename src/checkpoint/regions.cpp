#include "checkpoint/regions.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace piton {
namespace {

using Json = nlohmann::json;

Json to_json(const Shape& shape) {
  Json list = Json::array();
  for (const std::int64_t size : shape.sizes()) list.push_back(size);
  return list;
}

Shape shape_of(const Json& list) {
  Shape shape;
  for (const Json& size : list) shape.append(size.get<std::int64_t>());
  return shape;
}

// Holdings as sent to other ranks: without the sources, which are valid only on their own rank.
std::string encode(const std::vector<Holding>& holdings) {
  Json list = Json::array();
  for (const Holding& one : holdings) {
    list.push_back({one.tensor.name, static_cast<int>(one.tensor.dtype), to_json(one.tensor.shape),
                    to_json(one.start), to_json(one.extent), one.begin, one.end,
                    static_cast<int>(one.tensor.kind)});
  }
  return list.dump();
}

std::vector<Holding> decode(const std::string& text) {
  std::vector<Holding> holdings;
  for (const Json& one : read_json<Json>(text)) {
    Holding holding;
    holding.tensor = {one[0].get<std::string>(), static_cast<DType>(one[1].get<int>()),
                      shape_of(one[2]), static_cast<TensorKind>(one[7].get<int>())};
    holding.start = shape_of(one[3]);
    holding.extent = shape_of(one[4]);
    holding.begin = one[5].get<std::int64_t>();
    holding.end = one[6].get<std::int64_t>();
    holdings.push_back(std::move(holding));
  }
  return holdings;
}

struct Holder {
  int rank = 0;
  std::size_t index = 0;  // of that rank's holdings
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

std::vector<std::int64_t> sizes_of(const Shape& shape) {
  return {shape.sizes().begin(), shape.sizes().end()};
}

using RegionKey = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;

struct TensorHolders {
  CanonicalTensor tensor;
  std::map<RegionKey, std::vector<Holder>> regions;
};

std::map<std::string, TensorHolders> gather_holders(const std::vector<Holding>& holdings,
                                                    Communicator& ranks) {
  const std::vector<std::string> all = ranks.gather_bytes(encode(holdings));
  std::map<std::string, TensorHolders> tensors;
  for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
    const std::vector<Holding> theirs = decode(all[rank]);
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const Holding& one = theirs[i];
      const auto [place, is_new] = tensors.try_emplace(one.tensor.name);
      TensorHolders& holders = place->second;
      if (is_new) holders.tensor = one.tensor;
      PITON_ASSERT(
          holders.tensor.shape == one.tensor.shape && holders.tensor.dtype == one.tensor.dtype,
          "{}: {} {} on one rank, {} {} on another", one.tensor.name, name(holders.tensor.dtype),
          to_string(holders.tensor.shape), name(one.tensor.dtype), to_string(one.tensor.shape));
      holders.regions[{sizes_of(one.start), sizes_of(one.extent)}].push_back(
          {rank, i, one.begin, one.end});
    }
  }
  return tensors;
}

}  // namespace

std::vector<Holding> holdings_of(const LocalRun& local, const std::string& prefix, DType dtype,
                                 std::size_t source) {
  const auto& [parameter, begin, size] = local;
  const std::int64_t rows = parameter.shape[0];
  const std::int64_t row_size = rows == 0 ? 0 : parameter.elements() / rows;
  std::vector<Holding> holdings;
  for (const Piece& piece : parameter.pieces) {
    PITON_ASSERT(piece.global.ndim() >= 1 && piece.start.ndim() == piece.global.ndim() &&
                     piece.extent.ndim() == piece.global.ndim(),
                 "{}: global {}, start {}, extent {}", piece.name, to_string(piece.global),
                 to_string(piece.start), to_string(piece.extent));
    for (int dim = 0; dim < piece.global.ndim(); ++dim) {
      const bool inside = piece.start[dim] >= 0 && piece.extent[dim] >= 0 &&
                          piece.start[dim] + piece.extent[dim] <= piece.global[dim];
      const bool whole = dim < 2 || piece.extent[dim] == piece.global[dim];
      PITON_ASSERT((inside && whole) || piece.extent.elements() == 0,
                   "{}: global {}, start {}, extent {}", piece.name, to_string(piece.global),
                   to_string(piece.start), to_string(piece.extent));
    }
    const std::int64_t elements = piece.extent.elements();
    if (elements == 0) continue;
    PITON_ASSERT(elements == piece.extent[0] * row_size, "{}: extent {} in a local tensor {}",
                 piece.name, to_string(piece.extent), to_string(parameter.shape));
    const std::int64_t piece_begin = piece.local_row * row_size;
    const std::int64_t first = std::max(begin, piece_begin);
    const std::int64_t last = std::min(begin + size, piece_begin + elements);
    if (first >= last) continue;
    Holding holding;
    holding.tensor = {prefix + piece.name, dtype, piece.global,
                      prefix.empty() ? TensorKind::kWeight : TensorKind::kOptimizer};
    holding.start = piece.start;
    holding.extent = piece.extent;
    holding.begin = first - piece_begin;
    holding.end = last - piece_begin;
    holding.source = source;
    holding.source_offset = first - begin;
    holdings.push_back(std::move(holding));
  }
  return holdings;
}

std::vector<Holding> row_holdings_of(const LocalRun& local, const std::string& prefix, DType dtype,
                                     std::size_t source) {
  std::vector<Holding> holdings;
  for (const RowRun& run : row_runs(local.parameter, local.begin, local.size)) {
    const Piece& piece = *run.piece;
    const bool one_row = piece.global.ndim() < 2;
    holdings.push_back({.tensor = {prefix + piece.name,
                                   dtype,
                                   {one_row ? 1 : piece.global[0]},
                                   TensorKind::kOptimizer},
                        .start = {one_row ? 0 : piece.start[0]},
                        .extent = {one_row ? 1 : piece.extent[0]},
                        .begin = run.first_row,
                        .end = run.first_row + run.rows,
                        .source = source,
                        .source_offset = run.place});
  }
  return holdings;
}

std::vector<Holding> moment_holdings_of(const OptimizerState& state, const Moment& moment,
                                        std::size_t source) {
  const auto holdings = moment.each_row ? row_holdings_of : holdings_of;
  return holdings({*state.parameter, state.offset, state.size()}, fmt::format("{}.", moment.name),
                  moment.dtype, source);
}

WritePlan plan_writes(const std::vector<Holding>& holdings, Communicator& ranks) {
  const std::map<std::string, TensorHolders> tensors = gather_holders(holdings, ranks);
  WritePlan plan;
  std::vector<std::int64_t> load(ranks.size(), 0);
  for (const auto& [tensor_name, holders] : tensors) {
    plan.tensors.push_back(holders.tensor);
    std::int64_t covered = 0;
    for (const auto& [region, list] : holders.regions) {
      // Ranks may hold different runs of the region: each stretch between two ends gets one writer.
      std::set<std::int64_t> ends;
      for (const Holder& holder : list) {
        ends.insert(holder.begin);
        ends.insert(holder.end);
      }
      for (auto end = std::next(ends.begin()); end != ends.end(); ++end) {
        const std::int64_t begin = *std::prev(end);
        const Holder* writer = nullptr;
        for (const Holder& holder : list) {
          if (holder.begin > begin || holder.end < *end) continue;
          if (writer == nullptr || load[holder.rank] < load[writer->rank]) writer = &holder;
        }
        PITON_ASSERT(writer != nullptr, "{}: nobody holds elements {} to {} of a region",
                     tensor_name, begin, *end);
        load[writer->rank] += (*end - begin) * size_bytes(holders.tensor.dtype);
        covered += *end - begin;
        if (writer->rank == ranks.rank()) plan.jobs.push_back({writer->index, begin, *end});
      }
    }
    PITON_ASSERT(covered == holders.tensor.shape.elements(), "{}: the ranks hold {} of {} elements",
                 tensor_name, covered, holders.tensor.shape.elements());
  }
  std::sort(plan.jobs.begin(), plan.jobs.end(), [](const WriteJob& a, const WriteJob& b) {
    return std::pair(a.holding, a.begin) < std::pair(b.holding, b.begin);
  });
  return plan;
}

std::vector<CanonicalTensor> all_tensors(const std::vector<Holding>& holdings,
                                         Communicator& ranks) {
  std::vector<CanonicalTensor> result;
  for (const auto& [name, holders] : gather_holders(holdings, ranks))
    result.push_back(holders.tensor);
  return result;
}

std::vector<int> spread(const std::vector<std::int64_t>& sizes, int workers) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::int64_t> load(workers, 0);
  std::vector<int> result(sizes.size(), 0);
  for (const std::size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += sizes[i];
    result[i] = static_cast<int>(least - load.begin());
  }
  return result;
}

}  // namespace piton
