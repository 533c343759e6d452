// The tensors of one checkpoint folder of Piton (checkpoint/manifest.h).
//
// Files are opened on first use. Opening only checks the manifest: before the first read, call
// check_headers(), after which several threads may read. The bytes of each tensor are checked on at
// least one rank: by check_hash(), or after share_checks() as they are read, and by check_rest().
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "checkpoint/manifest.h"
#include "checkpoint/tensor_source.h"

namespace piton {

class NativeSource final : public TensorSource {
 public:
  // `manifest`: that of `folder`. Without `optimizer` the source has only the weights.
  NativeSource(std::filesystem::path folder, Manifest manifest, bool optimizer);

  std::string where() const override { return folder_.string(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

  bool reads_in_parallel() const override { return true; }

  // Compares headers and lengths with the manifest, for every file that has a tensor of the source.
  // Files of optimizer state may be missing if only weights are loaded; existing ones are checked
  // all the same. Throws Error(kData).
  void check_headers();

  // Checks tensor number `index` of the manifest. Throws Error(kData) if its bytes changed after
  // saving.
  void check_hash(std::size_t index);
  // Divides the tensors of the source among `ranks`. From now on read() checks those of `rank` that
  // it reads as a whole, and throws as check_hash().
  void share_checks(int rank, int ranks);
  // After all reads: checks the tensors of this rank that read() has not.
  void check_rest();

 private:
  bool has(const StoredTensor& one) const {
    return optimizer_ || one.tensor.kind == TensorKind::kWeight;
  }
  const RegularFile& open(const std::string& name);
  void expect_hash(const StoredTensor& one, const std::string& hash) const;
  void check_header(const std::string& name,
                    const std::map<std::string, const StoredTensor*>& tensors);

  std::filesystem::path folder_;
  Manifest manifest_;
  bool optimizer_;
  std::map<std::string, std::size_t> index_;  // of a tensor of the source in the manifest
  std::map<std::string, RegularFile> files_;
  std::mutex open_or_check_;
  std::set<std::size_t> unchecked_;  // that this rank has to check, by place in the manifest
};

}  // namespace piton
