// Adapters in a GGUF file, as llama.cpp has them (convert_lora_to_gguf.py, common/lora): read as
// canonical tensors (nn/adapters.h), and written.
//
//   general.type "adapter", adapter.type "lora", general.architecture that of the model,
//   adapter.lora.alpha f32: an adapter of rank r has the scale alpha / r; 0: the scale 1
//   NAME.lora_a [r, in] and NAME.lora_b [out, r] of each tensor NAME of the model's file that has
//   one ("blk.0.attn_q.weight")
//
// Of experts, whose matrices are one tensor NAME ("blk.0.ffn_up_exps.weight"), they are [experts,
// r, in] and [experts, out, r]. Rows of B are in the order of the rows of NAME. All tensors are
// held in memory.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "gguf/gguf_file.h"
#include "gguf/gguf_places.h"
#include "model/config.h"
#include "nn/adapters.h"

namespace piton {

class GgufAdapterSource final : public TensorSource {
 public:
  // `model`: that the adapter is for. Throws Error(kData) for a file that is no adapter, and for a
  // tensor that is no part of one of the model's linears, has another shape or lacks its partner.
  GgufAdapterSource(const std::filesystem::path& path, const ModelConfig& model);

  const Adapters& adapters() const { return adapters_; }

  std::string where() const override { return where_; }
  // fp32; none of kOptimizer.
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  struct Held {
    Shape shape;
    std::vector<float> values;
  };
  struct Module {
    const GgufTensor* a = nullptr;
    const GgufTensor* b = nullptr;
  };
  void add_module(const GgufFile& file, const std::string& name, const Module& module,
                  const std::vector<GgufPlace>& places, const std::map<std::string, Shape>& shapes);

  std::string where_;
  double alpha_ = 0;
  Adapters adapters_;
  std::map<std::string, Held> tensors_;
};

// Whether the file says that it is an adapter, and no model. Throws as GgufFile.
bool is_gguf_adapter(const std::filesystem::path& path);

// What a file of adapters is, read without the model that it is for: for piton inspect.
struct GgufAdapterSummary {
  std::string name;          // general.name; may be ""
  std::string architecture;  // of the model
  double alpha = 0;
  std::vector<std::int64_t> ranks;   // each once, ascending
  std::vector<std::string> targets;  // last parts of the names of adapted tensors, ascending
  std::int64_t modules = 0;          // that are adapted
  std::int64_t parameters = 0;
  std::vector<GgufTensor> tensors;  // as in the file
};

// Throws Error(kData) for a file that is no adapter; whether tensors fit a model is not checked.
GgufAdapterSummary gguf_adapter_summary(const std::filesystem::path& path);

struct GgufAdapterWritten {
  const ModelConfig& model;
  std::string architecture;  // general.architecture
  const Adapters& adapters;
  std::string name;  // general.name; may be ""
};

// `source` has the tensors of the adapters; they are written as F32. Throws Error(kUsage) for what
// such a file cannot hold: magnitudes, tensors that are trained in full, a scale times rank that is
// not the same for all, and single matrices of a tensor that holds several.
void write_gguf_adapter(const std::filesystem::path& path, TensorSource& source,
                        const GgufAdapterWritten& written);

}  // namespace piton
