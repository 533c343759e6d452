// The weights of a Megatron checkpoint as canonical tensors (checkpoint/tensor_source.h).
//
//   DIR/latest_checkpointed_iteration.txt    a number, or "release"
//   DIR/iter_0000010/ or DIR/release/        files in one of the layouts of megatron_files.h
//
// The model and its division are read from the arguments in the checkpoint, or from `given` if it
// has none. Both are compared with the files: all ranks must exist, with every tensor in its shape.
// Supports the trees and names of all versions (megatron/format/names.h) and the orders of qkv by
// checkpoint_version. Where an optimizer has fp32 copies of 16-bit weights, they are taken in the
// place of these; a note reports it. Adam's moments are there after open_optimizer().
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "megatron/format/arguments.h"
#include "megatron/format/canonical_pieces.h"
#include "megatron/format/megatron_files.h"
#include "megatron/format/model_parts.h"
#include "megatron/format/run_progress.h"
#include "megatron/ranks/optimizer_buffer.h"
#include "megatron/ranks/rank_weights.h"

namespace piton {

// True if it has Megatron's tracker and files, or is a folder of such files, and is not a
// checkpoint of Piton.
bool is_megatron_folder(const std::filesystem::path& folder);

// Facts that the user may have to give.
struct MegatronGiven {
  // Called for a checkpoint without arguments, with the rows of its table (padded). Empty: throws.
  std::function<ModelConfig(std::int64_t padded_vocabulary)> model;
  std::optional<std::int64_t> vocabulary;  // without padding
};

class MegatronSource final : public TensorSource {
 public:
  // Throws Error(kData) with the file, argument or tensor.
  explicit MegatronSource(const std::filesystem::path& folder, const MegatronGiven& given = {});

  // Finds what the optimizer has of every weight: exp_avg.NAME, exp_avg_sq.NAME, and main.NAME of
  // 16-bit weights, all fp32. tensors(kOptimizer) and read() have them from then on. Throws
  // Error(kData) that names what is missing or contradicts the weights.
  void open_optimizer();

  const ModelConfig& model() const { return model_; }
  // Of the ranks that wrote it.
  const MegatronLayout& layout() const { return layout_; }
  // "mp_rank", "torch_dist", ...
  std::string form() const { return files_->form(); }
  std::int64_t iteration() const { return run_.iteration; }
  // megatron/format/arguments.h; "": not said.
  const std::string& model_type() const { return model_type_; }
  // True if these are weights alone (a folder "release", or no iteration): they start a new run.
  bool is_release() const;
  // Its steps and loss scale are known after open_optimizer().
  const MegatronRun& run() const { return run_; }
  // The stored type of the weights, without the optimizer's copies.
  DType weight_dtype() const { return weight_dtype_; }
  // False if the checkpoint has no arguments, and `given` supplied the model.
  bool describes_model() const { return describes_model_; }
  const std::vector<std::string>& notes() const { return notes_; }

  std::string where() const override { return files_->folder().string(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  void read_arguments(const MegatronGiven& given);
  void compare(const MegatronArguments& read, const std::string& where);
  void read_first_ranks();
  void choose_masters();
  bool has_masters();
  void add_rank(int t, int p, int chunk);
  void check_copy(const BoxedTensor& head, int t, const std::string& where) const;
  // The vectors of a distributed optimizer on one of the ranks of layout_, and its weights.
  struct BucketRank {
    BucketPlace place;
    std::vector<MegatronTensor> tensors;
    RankWeights weights;
    OptimizerBuffer buffer;
  };
  // Of the rank with these weights, of all of them or of those of which `has` is true.
  void add_bucket_rank(const BoxedTensors& whole, const BucketPlace& place,
                       const MegatronLayout& modules, const RankChunk& weights,
                       const std::function<bool(const std::string& key)>& has);
  void find_buckets();
  void add_bucket_masters();
  void add_bucket_moments();
  void add_moments(const BoxedMoments& moments, const std::vector<MegatronTensor>& tensors,
                   const std::string& where);

  std::unique_ptr<MegatronFiles> files_;
  ModelConfig model_;
  std::string model_type_;
  MegatronParts parts_;
  MegatronLayout layout_;
  bool from_masters_ = false;
  std::string why_no_masters_;          // "": they are not of these weights
  MegatronLayout stored_;               // as the files are divided: whole tensors are of one rank
  std::int64_t stored_tensors_ = 0;     // of tensor rank 0
  bool has_groups_ = false;             // of experts (megatron/format/grouped_experts.h)
  std::int64_t first_latent_rows_ = 0;  // its rows of a matrix that makes latents
  MegatronRun run_;
  DType weight_dtype_ = DType::kF32;
  bool describes_model_ = true;
  CanonicalPieces pieces_;
  CanonicalPieces first_moments_;
  CanonicalPieces second_moments_;
  std::vector<std::unique_ptr<BucketRank>> bucket_ranks_;
  std::vector<std::string> notes_;
  std::optional<std::size_t> optimizer_note_;  // place in notes_
};

}  // namespace piton
