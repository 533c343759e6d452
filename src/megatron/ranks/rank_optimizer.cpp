#include "megatron/ranks/rank_optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "megatron/format/flat_boxes.h"

namespace piton {
namespace {

using EntryKind = PickleValue::Kind;

std::string path_of(const TorchFile& file) { return file.file().path().string(); }

const PickleValue& saved_by(const TorchFile& file) {
  const PickleValue* saved = file.root().find("optimizer");
  if (saved == nullptr)
    throw Error(Fault::kData, "{}: has no \"optimizer\", wanted its state there", path_of(file));
  return *saved;
}

// The lists of an entry of each group; those without entries are left out, as their writer does.
std::vector<std::vector<const PickleValue*>> lists_of(const PickleValue& groups,
                                                      const char* inner) {
  std::vector<std::vector<const PickleValue*>> lists;
  for (const PickleValue* group : groups.items) {
    const PickleValue* list = inner == nullptr ? group : group->find(inner);
    if (list != nullptr && list->kind == EntryKind::kList && !list->items.empty())
      lists.push_back(list->items);
  }
  return lists;
}

std::int64_t elements_in(const BoxedTensor& weight) { return weight.rows * weight.columns; }

bool is_narrow(const BoxedTensor& weight) { return size_bytes(weight.dtype) == 2; }

// Throws where a file has another number of entries than the pieces that it must have.
template <typename Groups>
void compare_counts(const TorchFile& file, const char* what,
                    const std::vector<std::vector<const PickleValue*>>& lists, const Groups& groups,
                    std::size_t ranks) {
  std::vector<std::size_t> got;
  std::vector<std::size_t> wanted;
  for (const auto& list : lists) got.push_back(list.size());
  for (const auto& group : groups) wanted.push_back(group.size());
  if (got == wanted) return;
  throw Error(Fault::kData,
              "{}: {} has [{}] entries, wanted [{}] of the groups of one of {} data-parallel "
              "ranks: is a rank missing, or is it the optimizer of another model?",
              path_of(file), what, fmt::join(got, ", "), fmt::join(wanted, ", "), ranks);
}

}  // namespace

RankOptimizer::RankOptimizer(std::vector<const TorchFile*> files) : files_(std::move(files)) {
  OptimizerCounts first;
  for (const TorchFile* file : files_) {
    OptimizerCounts own;
    piton::add_counts(*file, saved_by(*file), own);
    if (file == files_.front()) first = own;
    if (own.steps == first.steps) continue;
    throw Error(Fault::kData,
                "{}: after {} updates, and {} after {}: are the files of one iteration?",
                path_of(*file), fmt::join(own.steps, ", "), path_of(*files_.front()),
                fmt::join(first.steps, ", "));
  }
}

RankOptimizer::Pieces RankOptimizer::pieces(const std::vector<OrderedWeights>& chunks,
                                            std::size_t rank) const {
  Pieces pieces;
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    std::int64_t total = 0;
    for (const auto& one : chunks[chunk]) total += elements_in(*one.second);
    const auto ranks = static_cast<std::int64_t>(files_.size());
    const std::int64_t share = (total + ranks - 1) / ranks;
    const std::int64_t first = static_cast<std::int64_t>(rank) * share;
    const std::int64_t last = std::min(first + share, total);
    std::int64_t at = total;  // of the weight in the buffer
    for (const auto& [key, weight] : chunks[chunk]) {
      const std::int64_t size = elements_in(*weight);
      at -= size;
      const std::int64_t begin = std::max(first - at, std::int64_t{0});
      const std::int64_t end = std::min(last - at, size);
      if (begin < end) pieces.push_back({chunk, key, weight, begin, end});
    }
  }
  return pieces;
}

std::vector<RankOptimizer::Pieces> RankOptimizer::groups(const std::vector<OrderedWeights>& chunks,
                                                         std::size_t rank) const {
  Pieces matrices = pieces(chunks, rank);
  Pieces vectors;
  for (const Piece& piece : matrices) {
    if (piece.weight->columns == 1) vectors.push_back(piece);
  }
  std::erase_if(matrices, [](const Piece& piece) { return piece.weight->columns == 1; });
  std::vector<Pieces> groups;
  for (Pieces* group : {&matrices, &vectors}) {
    std::ranges::stable_sort(*group, {}, [](const Piece& one) { return is_narrow(*one.weight); });
    if (!group->empty()) groups.push_back(std::move(*group));
  }
  return groups;
}

void RankOptimizer::add_piece(const TorchFile& file, const PickleValue* value,
                              const std::string& label, const Piece& piece,
                              BoxedTensors& tensors) const {
  if (value == nullptr || value->kind != EntryKind::kTensor)
    throw Error(Fault::kData, "{}: has no {}", path_of(file), label);
  const TorchTensor stored = file.tensor(*value, label);
  if (stored.dtype != "F32" || stored.shape.size() != 1 || !stored.contiguous())
    throw Error(Fault::kData, "{}: {} is no vector of fp32", path_of(file), label);
  if (stored.shape[0] != piece.end - piece.begin) {
    throw Error(Fault::kData,
                "{}: {} has {} elements, wanted {} of {} (one of {} data-parallel ranks): is a "
                "rank missing, or is it the optimizer of another model?",
                path_of(file), label, stored.shape[0], piece.end - piece.begin, piece.key,
                files_.size());
  }
  BoxedTensor& tensor = tensors[piece.key];
  tensor.rows = piece.weight->rows;
  tensor.columns = piece.weight->columns;
  add_flat_boxes({file.file(), stored.offset, piece.begin, piece.end}, {.columns = tensor.columns},
                 tensor);
}

std::vector<BoxedTensors> RankOptimizer::copies(const std::vector<OrderedWeights>& chunks) const {
  constexpr const char* kCopies = "shard_fp32_from_float16_groups";
  std::vector<BoxedTensors> copies(chunks.size());
  for (std::size_t rank = 0; rank < files_.size(); ++rank) {
    const TorchFile& file = *files_[rank];
    const PickleValue* saved = saved_by(file).find(kCopies);
    if (saved == nullptr) throw Error(Fault::kData, "{}: has no {}", path_of(file), kCopies);
    std::vector<Pieces> wanted = groups(chunks, rank);
    for (Pieces& group : wanted)
      std::erase_if(group, [](const Piece& piece) { return !is_narrow(*piece.weight); });
    std::erase_if(wanted, [](const Pieces& group) { return group.empty(); });
    const auto lists = lists_of(*saved, nullptr);
    compare_counts(file, kCopies, lists, wanted, files_.size());
    for (std::size_t group = 0; group < lists.size(); ++group) {
      for (std::size_t i = 0; i < lists[group].size(); ++i) {
        const Piece& piece = wanted[group][i];
        add_piece(file, lists[group][i], fmt::format("{}, {}", kCopies, i), piece,
                  copies[piece.chunk]);
      }
    }
  }
  return copies;
}

std::vector<BoxedMoments> RankOptimizer::moments(const std::vector<OrderedWeights>& chunks) const {
  std::vector<BoxedMoments> moments(chunks.size());
  for (std::size_t rank = 0; rank < files_.size(); ++rank) {
    const TorchFile& file = *files_[rank];
    const PickleValue* optimizer = torch_optimizer(saved_by(file));
    const PickleValue* param_groups =
        optimizer == nullptr ? nullptr : optimizer->find("param_groups");
    if (param_groups == nullptr)
      throw Error(Fault::kData, "{}: an optimizer without groups of parameters", path_of(file));
    const std::map<std::int64_t, const PickleValue*> states = by_number(*optimizer->find("state"));
    const std::vector<Pieces> wanted = groups(chunks, rank);
    const auto lists = lists_of(*param_groups, "params");
    compare_counts(file, "params", lists, wanted, files_.size());
    for (std::size_t group = 0; group < lists.size(); ++group) {
      for (std::size_t i = 0; i < lists[group].size(); ++i) {
        const std::int64_t number = lists[group][i]->integer;
        const auto state = states.find(number);
        const Piece& piece = wanted[group][i];
        const auto add = [&](const char* kind, BoxedTensors& tensors) {
          add_piece(file, state == states.end() ? nullptr : state->second->find(kind),
                    fmt::format("{} of the optimizer's parameter {}", kind, number), piece,
                    tensors);
        };
        add("exp_avg", moments[piece.chunk].first);
        add("exp_avg_sq", moments[piece.chunk].second);
      }
    }
  }
  return moments;
}

void RankOptimizer::add_counts(OptimizerCounts& counts) const {
  for (const TorchFile* file : files_) piton::add_counts(*file, saved_by(*file), counts);
}

}  // namespace piton
