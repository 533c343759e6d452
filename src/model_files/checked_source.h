// The tensors of a checkpoint of Piton for one reader: the bytes of each are compared with their
// hash when it is first read. Where all ranks load a checkpoint, load_checkpoint()
// (checkpoint/store.h) shares the comparisons.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/native_source.h"

namespace piton {

enum class WeightsKind : std::uint8_t {
  kTrained,
  kAverage,  // their moving average (pretrain --ema-decay), under the names of the weights
};

class CheckedSource final : public TensorSource {
 public:
  // `manifest`: that of `folder`. Compares the headers of files with it; throws Error(kData).
  CheckedSource(const std::filesystem::path& folder, const Manifest& manifest, WeightsKind kind);

  // Whether the checkpoint has the moving average.
  static bool has_average(const Manifest& manifest);

  std::string where() const override { return source_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  NativeSource source_;
  bool average_;
  std::map<std::string, std::size_t> unchecked_;  // place in the manifest
};

}  // namespace piton
