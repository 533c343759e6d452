// The layout of Megatron-core's dist_checkpointing, which is that of
// torch.distributed.checkpoint: whole tensors in boxes, whoever wrote them.
//
//   DIR/metadata.json      {"sharded_backend": "torch_dist", ...}; absent in folders of torch alone
//   DIR/.metadata          a pickle of Metadata: for each tensor its type, size and boxes, and for
//                          each box its file, offset and length
//   DIR/__R_S.distcp       the boxes one after another, each a file of torch.save
//   DIR/common.pt          a dict with args, iteration and checkpoint_version; may be absent
//
// Layers are one tensor with a first dim more ("decoder.layers.mlp.linear_fc1.weight" of
// [layers, rows, columns]) or have their numbers in the names; so are the experts of a layer
// ("decoder.layers.mlp.experts.experts.linear_fc1.weight" of [layers, experts, rows, columns]).
// Rows are in the order of one tensor rank: gate before up, groups ascending.
//
// States of a distributed optimizer that Megatron-core before 0.14 wrote
// (fully_sharded_model_space) are flat pieces: [layers,] [F, G, N] where ranks divide the weight
// into F x G tiles of N elements, which are cut anywhere.
//
// Source: torch/distributed/checkpoint/{metadata,filesystem}.py of PyTorch 2.1 to 2.15;
// megatron/core/dist_checkpointing of Megatron-core 0.5 to 0.16.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatron/format/megatron_files.h"
#include "pickle/torch_file.h"

namespace piton {

inline constexpr const char* kTorchDistMetadata = ".metadata";
inline constexpr const char* kTorchDistCommon = "common.pt";
inline constexpr const char* kTorchDistBackend = "metadata.json";

bool has_torch_dist(const std::filesystem::path& folder);

class TorchDist final : public MegatronFiles {
 public:
  // Throws Error(kData) with the file and the tensor: boxes that leave a gap, overlap, or are not
  // what their files hold.
  explicit TorchDist(const std::filesystem::path& folder);

  std::string form() const override { return "torch_dist"; }
  std::filesystem::path folder() const override { return folder_; }
  const MegatronDivision& division() const override { return division_; }
  const PickleValue& facts() const override { return common_ ? common_->root() : no_facts_; }
  std::string facts_file() const override;
  BoxedTensors tensors(int t, int p, int chunk) const override;
  std::string file_of(int t, int p) const override;
  bool has_optimizer() const override { return has_optimizer_; }
  BoxedTensors masters(int t, int p, int chunk) override;
  BoxedMoments moments(int t, int p, int chunk) override;
  OptimizerCounts optimizer_counts() override;
  bool has_buckets() const override;
  std::vector<FlatVector> buckets(const BucketPlace& place, const char* kind) override;

 private:
  using Sizes = std::vector<std::int64_t>;
  // A box of a tensor as the metadata has it.
  struct Box {
    Sizes start;
    Sizes extent;
    std::string file;
    std::int64_t offset = -1;  // of a file of torch.save; -1: not said yet
    std::int64_t length = 0;
  };
  struct Tensor {
    std::string dtype;
    Sizes shape;
    std::map<Sizes, Box> boxes;  // by start
  };

  struct Place {
    const RegularFile* file = nullptr;
    std::int64_t offset = 0;
  };

  void check_backend() const;
  void read_metadata(const PickleValue& metadata);
  void read_tensor(const std::string& name, const PickleValue& value);
  void read_place(const PickleValue& index, const PickleValue& place);
  void set_place(const std::string& name, const PickleValue& place, Box& box);
  void check_boxes(const std::string& name, const Tensor& tensor) const;
  const RegularFile& file(const std::string& name);
  const RegularFile& bytes_of(const std::string& name, const Box& box);
  Place open_box(const std::string& name, const Tensor& tensor, const Box& box);
  void add(const std::string& name, const Tensor& tensor, BoxedTensors& to);
  const BoxedTensor* weight_named(const std::string& name) const;
  void add_state(const std::string& name, const Tensor& tensor, BoxedTensors& to);
  void add_flat(const std::string& name, const Tensor& tensor, const BoxedTensor& weight,
                BoxedTensors& to);
  BoxedTensors keyed(const BoxedTensors& named) const;
  BoxedTensors states(const char* kind);

  std::filesystem::path folder_;
  MegatronDivision division_{.whole = true, .all_layers = true};
  std::unique_ptr<TorchFile> common_;
  PickleValue no_facts_;
  std::map<std::string, Tensor> stored_;  // after the constructor: states of the optimizer
  std::map<std::string, Box> objects_;    // of the optimizer, by name
  std::map<std::string, std::unique_ptr<RegularFile>> files_;
  // By name; layers have their numbers there.
  BoxedTensors weights_;
  BoxedTensors masters_;
  bool has_optimizer_ = false;
};

}  // namespace piton
