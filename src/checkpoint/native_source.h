// The tensors of one checkpoint folder of Piton (checkpoint/manifest.h).
//
// Files are opened when first asked for. Opening changes nothing and checks nothing but the
// manifest: before the first read, check_headers() and, for each tensor on one rank at least,
// check_hash().
#pragma once

#include <filesystem>
#include <map>

#include "checkpoint/manifest.h"
#include "checkpoint/tensor_source.h"

namespace piton {

class NativeSource final : public TensorSource {
 public:
  // `manifest` of `folder`. Without `optimizer` the source has the weights alone.
  NativeSource(std::filesystem::path folder, Manifest manifest, bool optimizer);

  std::string where() const override { return folder_.string(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

  // Headers and lengths against the manifest, of every file that holds a tensor of the source.
  // Files of optimizer state may have been removed where weights alone are loaded; those that are
  // there are looked at all the same. Throws Error(kData).
  void check_headers();

  // Tensor number `index` of the manifest. Throws Error(kData) if its bytes are not those that were
  // saved.
  void check_hash(std::size_t index);
  // Each tensor of the source by one of `ranks`: those of `rank`.
  void check_hashes(int rank, int ranks);

 private:
  bool has(const StoredTensor& one) const {
    return optimizer_ || one.tensor.kind == TensorKind::kWeight;
  }
  const RegularFile& open(const std::string& name);
  void check_header(const std::string& name,
                    const std::map<std::string, const StoredTensor*>& tensors);

  std::filesystem::path folder_;
  Manifest manifest_;
  bool optimizer_;
  std::map<std::string, std::size_t> index_;  // of a tensor of the source in the manifest
  std::map<std::string, RegularFile> files_;
};

}  // namespace piton
