#include "optim/matrix_rounds.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "comm/message_lanes.h"

namespace piton {

std::vector<MatrixRound> make_matrix_rounds(const std::vector<CutMatrix>& matrices,
                                            std::int64_t most_elements) {
  std::vector<MatrixRound> rounds, small;
  std::int64_t elements = most_elements;  // of the last round of whole matrices
  // The matrices that every rank of a group holds, by group, in the order of the list.
  std::vector<std::pair<Communicator*, std::vector<CutMatrix>>> groups;
  for (const CutMatrix& matrix : matrices) {
    const int holders = matrix.cut.holders(matrix.elements);
    if (holders == 1) {
      elements += matrix.elements;
      if (rounds.empty() || elements > most_elements) {
        rounds.emplace_back();
        elements = matrix.elements;
      }
      rounds.back().push_back({.span = matrix.span});
    } else if (holders < matrix.cut.ranks->size()) {
      small.push_back({{.span = matrix.span}});
    } else {
      auto group =
          std::ranges::find(groups, matrix.cut.ranks, [](const auto& g) { return g.first; });
      if (group == groups.end()) group = groups.insert(group, {matrix.cut.ranks, {}});
      group->second.push_back(matrix);
    }
  }
  for (auto& [ranks, list] : groups) {
    std::ranges::stable_sort(list, std::greater<>(), &CutMatrix::elements);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto owner = static_cast<int>(i % static_cast<std::size_t>(ranks->size()));
      if (owner == 0) rounds.emplace_back();
      rounds.back().push_back({.span = list[i].span, .owner = owner});
    }
  }
  rounds.insert(rounds.end(), small.begin(), small.end());
  return rounds;
}

void connect_holders(const std::vector<MatrixRound>& rounds,
                     const std::vector<CutMatrix>& matrices) {
  std::map<std::size_t, const CutMatrix*> of_span;
  for (const CutMatrix& matrix : matrices) of_span[matrix.span] = &matrix;
  std::vector<std::pair<Communicator*, std::set<int>>> groups;  // in the order of their rounds
  for (const MatrixRound& round : rounds) {
    for (const MatrixOfRound& one : round) {
      const CutMatrix& matrix = *of_span.at(one.span);
      const int holders = matrix.cut.holders(matrix.elements);
      if (holders == 1) continue;
      Communicator* ranks = matrix.cut.ranks;
      auto group = std::ranges::find(groups, ranks, [](const auto& g) { return g.first; });
      if (group == groups.end()) group = groups.insert(group, {ranks, {}});
      if (ranks->rank() != one.owner) {
        group->second.insert(one.owner);
        continue;
      }
      for (int rank = 0; rank < holders; ++rank) {
        if (rank != one.owner) group->second.insert(rank);
      }
    }
  }
  for (const auto& [ranks, members] : groups) connect(*ranks, {members.begin(), members.end()});
}

}  // namespace piton
