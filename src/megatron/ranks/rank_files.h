// The layout of Megatron-LM and its derivatives with a folder for each rank.
//
//   DIR/mp_rank_00/model_optim_rng.pt        T ranks, P = 1
//   DIR/mp_rank_00_000/model_optim_rng.pt    P > 1; model_rng.pt if the optimizer is elsewhere
//   DIR/mp_rank_00/distrib_optim.pt          of a distributed optimizer
//   DIR/mp_rank_00[_PPP]_DDD/optim.pt        of one before June 2023, of data-parallel rank DDD
//                                            (megatron/ranks/rank_optimizer.h)
//   DIR/mp_rank_00[_PPP]_EEE/...             of expert rank EEE (megatron/ranks/rank_folders.h)
//
// Where there are several expert ranks, the optimizer is a list of two: of all weights but those of
// experts, and of the experts of the rank. Both are in model_optim_rng.pt and distrib_optim.pt; the
// first is None in a distrib_optim.pt of another rank than the first of its tensor rank.
//
// Sources: megatron/core/optimizer/{optimizer,distrib_optimizer}.py and
// megatron/core/distributed/param_and_grad_buffer.py of Megatron-core 0.16.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/format/megatron_files.h"
#include "megatron/format/named_tensors.h"
#include "megatron/format/optimizer_groups.h"
#include "megatron/ranks/rank_folders.h"
#include "megatron/ranks/rank_optimizer.h"
#include "pickle/torch_file.h"

namespace piton {

class RankFiles final : public MegatronFiles {
 public:
  // Throws Error(kData) where a rank is missing, its file is damaged, or of another iteration.
  explicit RankFiles(const std::filesystem::path& folder);

  std::string form() const override { return "mp_rank"; }
  std::filesystem::path folder() const override { return folder_; }
  const MegatronDivision& division() const override { return division_; }
  const PickleValue& facts() const override { return rank(0, 0).model().root(); }
  std::string facts_file() const override { return file_of(0, 0); }
  BoxedTensors tensors(int t, int p, int chunk) const override;
  bool has_optimizer() const override;
  BoxedTensors masters(int t, int p, int chunk) override;
  BoxedMoments moments(int t, int p, int chunk) override;
  OptimizerCounts optimizer_counts() override;
  const PickleValue* optimizer_facts() override;
  std::string file_of(int t, int p) const override {
    return rank(t, p).model().file().path().string();
  }

 private:
  struct ModelFile {
    std::unique_ptr<TorchFile> weights;
    std::unique_ptr<TorchFile> optimizer;  // distrib_optim.pt, where the optimizer is distributed
  };
  struct Rank {
    std::map<int, ModelFile> models;  // by expert rank
    // That all tensors but experts are taken from.
    const ModelFile& first() const { return models.begin()->second; }
    const TorchFile& model() const { return *first().weights; }
    // optim.pt of data-parallel ranks, opened when they are first asked for.
    std::vector<std::unique_ptr<TorchFile>> share_files;
    std::unique_ptr<RankOptimizer> shares;
  };
  void compare_saves() const;
  bool has_expert_ranks() const { return division_.expert > 1 || division_.experts_by_tensor; }
  void refuse_shares() const;
  std::string share_name(int t, int p, int d) const;
  // Null where the optimizer is not divided over data-parallel ranks.
  const RankOptimizer* shares(int t, int p);
  void open_shares(int t, int p, std::int64_t said);
  // The weights of a chunk, which own what the second refers to.
  struct Chunk {
    BoxedTensors weights;
    OrderedWeights ordered;
  };
  // The files that have all experts together which rank (t, p) needs, in the order of experts.
  std::vector<const ModelFile*> models_with_experts(const RankPlace& place) const;
  const ModelFile& model_with_experts(const RankPlace& place) const;
  NamedTensors named(const TorchFile& file, int chunk) const;
  // Which weights an optimizer has.
  enum class Part { kAll, kNoExperts, kExperts };
  Chunk in_order(const TorchFile& file, int chunk, Part part) const;
  std::vector<Chunk> chunks_in_order(const TorchFile& file, Part part) const;
  static const PickleValue* part_of(const PickleValue* optimizers, Part part,
                                    const TorchFile& file);
  BoxedTensors masters_of(const ModelFile& file, int chunk, Part part) const;
  BoxedMoments moments_of(const ModelFile& file, int chunk, Part part) const;
  // What `of` finds for all weights of a rank, in the files of its expert ranks.
  template <typename Of>
  BoxedTensors with_experts(const RankPlace& place, const Of& of) const;
  const Rank& rank(int t, int p) const {
    return ranks_[static_cast<std::size_t>(t)][static_cast<std::size_t>(p)];
  }
  Rank& rank(int t, int p) {
    return ranks_[static_cast<std::size_t>(t)][static_cast<std::size_t>(p)];
  }

  std::filesystem::path folder_;
  MegatronDivision division_;
  std::vector<std::vector<Rank>> ranks_;  // [t][p]
  std::map<std::pair<int, int>, std::map<int, std::filesystem::path>> share_folders_;
};

}  // namespace piton
