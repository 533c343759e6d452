// The layouts of DeepSpeed, as Megatron-DeepSpeed and AscendSpeed use them.
//
//   DIR/latest                               the name of the folder: "global_step100", "release"
//   DIR/NAME/mp_rank_TT_model_states.pt      {"module": MODEL, "args", "iteration", ...} of tensor
//                                            rank TT; MODEL is the tree of mp_rank_TT/
//                                            model_optim_rng.pt (megatron/ranks/rank_files.h)
// Where the model is a pipeline (deepspeed.pipe.PipelineModule), its layers have numbers in place
// of names: 1 is the embedding, 2 a transposition, 3 the first layer, L + 4 the final norm. So
//   mp_rank_NN_model_states.pt               NN = stage * T + TT; {"module": {"module":
//                                            {"tied_modules.embed. ...": ..., "3. ...": ...}}}
// or, written by DeepSpeed itself,
//   layer_LL-model_TT-model_states.pt        the tensors of one layer, without its number
//
// Optimizers are in separate files (megatron/deepspeed/deepspeed_optimizer.h). ZeRO-3 divides
// the weights too (megatron/deepspeed/zero3_files.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "megatron/deepspeed/deepspeed_optimizer.h"
#include "megatron/format/megatron_files.h"
#include "megatron/format/named_tensors.h"
#include "pickle/torch_file.h"

namespace piton {

inline constexpr const char* kDeepSpeedTracker = "latest";
inline constexpr int kFirstPipelineLayer = 3;

bool has_deepspeed_files(const std::filesystem::path& folder);

class DeepSpeedFiles final : public MegatronFiles {
 public:
  // Throws Error(kData) where a file is missing or damaged.
  explicit DeepSpeedFiles(const std::filesystem::path& folder);

  std::string form() const override { return "deepspeed"; }
  std::filesystem::path folder() const override { return folder_; }
  const MegatronDivision& division() const override { return division_; }
  const PickleValue& facts() const override { return first_->root(); }
  std::string facts_file() const override { return first_->file().path().string(); }
  BoxedTensors tensors(int t, int p, int chunk) const override;
  std::string file_of(int t, int p) const override;
  bool has_optimizer() const override { return has_optimizer_; }
  BoxedTensors masters(int t, int p, int chunk) override;
  BoxedMoments moments(int t, int p, int chunk) override;
  OptimizerCounts optimizer_counts() override { return optimizer_.counts(); }

 private:
  // Tensors of a rank: of one file, under names that begin with `prefix`.
  struct Part {
    const TorchFile* file = nullptr;
    const PickleValue* tree = nullptr;
    std::string prefix;
  };

  void place_rank_files(const std::vector<int>& numbers);
  void place_layer_files(const std::map<std::pair<int, int>, std::filesystem::path>& layers);
  const TorchFile& open(const std::filesystem::path& path);
  void add_to(NamedTensors& named, std::set<std::string>& tied, const std::string& stored,
              const std::function<BoxedTensor()>& make) const;
  BoxedTensors states(int t, ZeroState state);

  std::filesystem::path folder_;
  MegatronDivision division_{.all_layers = true};
  std::vector<std::unique_ptr<TorchFile>> files_;
  const TorchFile* first_ = nullptr;
  std::vector<const TorchFile*> rank_files_;  // mp_rank_NN_model_states.pt by NN
  DeepSpeedOptimizer optimizer_;
  std::vector<std::vector<Part>> ranks_;  // [t]
  bool has_optimizer_ = false;
  bool pipeline_ = false;  // layers have numbers
};

}  // namespace piton
