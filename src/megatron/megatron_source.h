// The weights of a Megatron checkpoint as canonical tensors (checkpoint/tensor_source.h).
//
//   DIR/latest_checkpointed_iteration.txt    a number, or "release"
//   DIR/iter_0000010/mp_rank_00/model_optim_rng.pt        T ranks, P = 1
//   DIR/release/mp_rank_00_000/model_optim_rng.pt         P > 1; model_rng.pt if the optimizer is
//                                                         elsewhere
//
// The model and its division are read from the arguments in the checkpoint, or from `given` if it
// has none. Both are compared with the files: all ranks must exist, with every tensor in its shape.
// Supports the trees and names of all versions (megatron/names.h) and the orders of qkv by
// checkpoint_version. Optimizer state is not read.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "megatron/arguments.h"
#include "pickle/torch_file.h"

namespace piton {

// True if it has Megatron's tracker and ranks, or is a folder of ranks, and is not a checkpoint of
// Piton.
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

  const ModelConfig& model() const { return model_; }
  const MegatronLayout& layout() const { return layout_; }
  std::int64_t iteration() const { return iteration_; }
  // False if the checkpoint has no arguments, and `given` supplied the model.
  bool says_its_model() const { return says_its_model_; }
  const std::vector<std::string>& notes() const { return notes_; }

  std::string where() const override { return folder_.string(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  // A tensor in a file; its rows are `stride` elements apart.
  struct Stored {
    const RegularFile* file = nullptr;
    DType dtype = DType::kF32;
    std::int64_t offset = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;  // of a tensor of one dim: 1
    std::int64_t stride = 0;
  };
  // Rows and columns of a canonical tensor, and where they are stored.
  struct Piece {
    std::int64_t row = 0, rows = 0;
    std::int64_t column = 0, columns = 0;
    std::int64_t stored_row = 0;
    Stored stored;
  };
  struct Canonical {
    CanonicalTensor tensor;
    std::vector<Piece> pieces;
  };
  using RankTensors = std::map<std::string, Stored>;  // by key

  void find_ranks(const std::filesystem::path& folder);
  void read_arguments(const MegatronGiven& given);
  RankTensors rank_tensors(const TorchFile& file, int chunk) const;
  Stored stored(const TorchFile& file, const PickleValue& value, const std::string& name) const;
  bool has_fused_mlp() const;
  void add_rank(int t, int p, int chunk);
  void add_pieces(const Assembly& assembly, const Stored& stored, const std::string& what);
  void check_cover();
  void read_piece(const Piece& piece, const TensorRun& run, std::int64_t columns,
                  std::int64_t first_column, DType dtype, std::byte* dst) const;

  std::filesystem::path folder_;
  std::vector<std::vector<std::unique_ptr<TorchFile>>> ranks_;  // [t][p]
  ModelConfig model_;
  MegatronLayout layout_;
  std::int64_t iteration_ = 0;
  bool says_its_model_ = true;
  std::map<std::string, Canonical> tensors_;
  std::vector<std::string> notes_;
};

}  // namespace piton
