// The folders of a checkpoint that has one for each rank, by their names:
//
//   mp_rank_TT                 T tensor ranks
//   mp_rank_TT_PPP             and P > 1 stages
//   mp_rank_TT_EEE             and R > 1 expert ranks, without stages
//   mp_rank_TT_PPP_EEE         and both
//   mp_rank_TT[_PPP]_DDD       optim.pt of data-parallel rank DDD, of before June 2023
//
// mp_rank_TT_NNN is a data-parallel rank if it has no model but optim.pt, an expert rank if the
// arguments say expert_model_parallel_size > 1, and else a stage.
//
// Process r of a stage is tensor rank r mod T and expert rank r / X mod R, where an expert is split
// over X ranks. Process r < X R writes its folder: all (TT, EEE) for X = T, fewer for X < T.
//
// Sources: get_checkpoint_name and save_checkpoint in megatron/training/checkpointing.py of
// Megatron-LM 0.16; initialize_model_parallel in megatron/core/parallel_state.py.
#pragma once

#include <compare>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "megatron/format/megatron_files.h"

namespace piton {

inline constexpr const char* kRankShare = "optim.pt";

struct RankPlace {
  int t = 0;
  int p = 0;
  int e = 0;
  auto operator<=>(const RankPlace&) const = default;
};

// "mp_rank_01_000_003": without stages or expert ranks where there is one.
std::string rank_folder_name(const RankPlace& place, int stages, int expert_ranks);

bool has_rank_files(const std::filesystem::path& folder);

struct RankFolders {
  MegatronDivision division;                          // without virtual stages
  std::map<RankPlace, std::filesystem::path> models;  // files
  // Folders with a share of the optimizer, of (t, p) by data-parallel rank.
  std::map<std::pair<int, int>, std::map<int, std::filesystem::path>> shares;
};

// Throws Error(kData) where a rank is missing, or there twice.
RankFolders find_rank_folders(const std::filesystem::path& folder);

}  // namespace piton
