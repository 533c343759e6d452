// Megatron's distributed optimizer of April 2022 to June 2023: a file of each data-parallel rank.
//
//   DIR/mp_rank_TT[_PPP]_DDD/optim.pt of data-parallel rank DDD:
//     {"optimizer": {"optimizer": {"state": {NUMBER: {"exp_avg": VECTOR, "exp_avg_sq": VECTOR}},
//                                  "param_groups": [{"params": [NUMBER, ...], "step"}, ...]},
//                    "shard_fp32_from_float16_groups": [[VECTOR of each weight of 16 bits]
//                                                       of each group]},
//      "opt_param_scheduler": {...}}
//
// The parameters of a chunk are next to each other in a buffer of N elements, in the reverse
// of the model's order. Of D ranks, rank d has elements [d s, (d + 1) s), s = N / D rounded up: the
// ends of some parameters, and others whole. Its file has these pieces in the model's order, of all
// chunks one after another: those of matrices in a group, those of vectors in the next; in a group
// those of fp32 weights, then of 16-bit ones. A group without pieces is left out. Nothing is named:
// the length of every piece is compared.
//
// Source: megatron/optimizer/distrib_optimizer.py (build_model_gbuf_range,
// build_optimizer_group_ranges, build_model_and_main_param_groups, state_dict),
// megatron/model/distributed.py and megatron/checkpointing.py of Megatron-LM 3.0 and 23.04;
// ascendspeed/optimizer/distrib_optimizer.py.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "megatron/format/megatron_files.h"
#include "megatron/format/optimizer_groups.h"
#include "pickle/torch_file.h"

namespace piton {

class RankOptimizer {
 public:
  // `files`: of data-parallel ranks 0, 1, ... of one model rank, all of them; they outlive this.
  // Throws Error(kData) where they are of different updates.
  explicit RankOptimizer(std::vector<const TorchFile*> files);

  // By chunk, of `chunks`, which are in the model's order: the fp32 copies of 16-bit weights, and
  // the moments. Throw Error(kData) with the file and the piece whose length is another.
  std::vector<BoxedTensors> copies(const std::vector<OrderedWeights>& chunks) const;
  std::vector<BoxedMoments> moments(const std::vector<OrderedWeights>& chunks) const;
  void add_counts(OptimizerCounts& counts) const;

 private:
  // Elements [begin, end) of a weight.
  struct Piece {
    std::size_t chunk = 0;
    std::string key;
    const BoxedTensor* weight = nullptr;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  using Pieces = std::vector<Piece>;
  Pieces pieces(const std::vector<OrderedWeights>& chunks, std::size_t rank) const;
  std::vector<Pieces> groups(const std::vector<OrderedWeights>& chunks, std::size_t rank) const;
  void add_piece(const TorchFile& file, const PickleValue* value, const std::string& label,
                 const Piece& piece, BoxedTensors& tensors) const;

  std::vector<const TorchFile*> files_;
};

}  // namespace piton
