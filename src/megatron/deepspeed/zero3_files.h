// Weights and optimizers that DeepSpeed's ZeRO-3 has divided over D data-parallel ranks.
//
//   DIR/NAME/zero_pp_rank_D_mp_rank_TT_model_states.pt            of rank D and tensor rank TT:
//     {"param_shapes": [{NAME: SIZE, ...} of each group], "args", "iteration", "global_steps",
//      "module": the tree of mp_rank_TT_model_states.pt, of tensors without elements,
//      "frozen_param_shapes": {NAME: SIZE, ...}, "frozen_param_fragments": {NAME: VECTOR, ...}}
//   DIR/NAME/[bf16_]zero_pp_rank_D_mp_rank_TT_optim_states.pt
//     {"optimizer_state_dict": {"partition_count": D, "fp32_flat_groups": [VECTOR of each group],
//        "optimizer_state_dict": {"state": {GROUP: {"exp_avg": VECTOR, "exp_avg_sq": VECTOR}}}}}
//
// A parameter of n elements is divided into D parts of n / D, rounded up; the last ones end with
// padding. The vectors of a rank, one behind another, are its parts of all parameters in the order
// of param_shapes. A frozen parameter has its parts in the model's files, in its own type, and no
// moments. So weights are fp32 copies; "module" shows what they are copies of.
//
// Source: deepspeed/runtime/zero/stage3.py (_rigid_state_dict), deepspeed/runtime/engine.py
// (_get_zero_param_shapes) and deepspeed/utils/zero_to_fp32.py of DeepSpeed 0.5 to 0.19.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/deepspeed/zero_vectors.h"
#include "megatron/format/megatron_files.h"
#include "pickle/torch_file.h"

namespace piton {

bool has_zero3_files(const std::filesystem::path& folder);

class Zero3Files final : public MegatronFiles {
 public:
  // Throws Error(kData) where a file is missing, damaged, or of another iteration.
  explicit Zero3Files(const std::filesystem::path& folder);

  std::string form() const override { return "deepspeed"; }
  std::filesystem::path folder() const override { return folder_; }
  const MegatronDivision& division() const override { return division_; }
  const PickleValue& facts() const override { return models_[0][0]->root(); }
  std::string facts_file() const override { return file_of(0, 0); }
  BoxedTensors tensors(int t, int p, int chunk) const override;
  std::string file_of(int t, int p) const override;
  bool has_optimizer() const override { return true; }
  // The weights are the optimizer's copies.
  BoxedTensors masters(int /*t*/, int /*p*/, int /*chunk*/) override { return {}; }
  BoxedMoments moments(int t, int p, int chunk) override;
  OptimizerCounts optimizer_counts() override;
  std::optional<DType> copies_of() const override;

 private:
  using Paths = std::map<std::pair<int, int>, std::filesystem::path>;  // by tensor rank and part
  void check_all_there(const Paths& models, const Paths& states, int parts) const;
  void open(const Paths& models, const Paths& states);
  void compare_model(const TorchFile& own) const;
  void compare_states(const TorchFile& own, std::size_t parts, const OptimizerCounts& wanted) const;
  // Each one of a tensor rank under its name.
  using EachTensor = std::function<void(const std::string& name, const BoxedTensor& tensor)>;
  void visit_divided(int t, ZeroState state, const EachTensor& each) const;
  void visit_frozen(int t, const EachTensor& each) const;
  BoxedTensors named(int t, ZeroState state) const;

  std::filesystem::path folder_;
  MegatronDivision division_{.all_layers = true};
  // [tensor rank][part]; models of the first part alone if none has frozen weights.
  std::vector<std::vector<std::unique_ptr<TorchFile>>> models_;
  std::vector<std::vector<std::unique_ptr<TorchFile>>> states_;
};

}  // namespace piton
