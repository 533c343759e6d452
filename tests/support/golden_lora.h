// The adapters of tests/golden/lora (tools/oracle/lora.py), and the models that they are for.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/peft_source.h"
#include "checkpoint/load_values.h"
#include "checkpoint/safetensors.h"
#include "generate/inference.h"
#include "huggingface/family.h"
#include "huggingface/hf_source.h"
#include "kernels/reference/kernels.h"
#include "session/session.h"
#include "support/golden_huggingface.h"
#include "support/host_machine.h"
#include "support/tensors.h"

namespace piton::test {

inline constexpr const char* kLoraCases[] = {
    "bloom",     "deepseek-v2",  "deepseek-v3",    "deepseek-v3_dora",    "gpt-oss",
    "gpt2",      "gpt2_dora",    "granite4-mamba", "granite4-mamba_dora", "lfm2",
    "lfm2_dora", "llama",        "mixtral",        "nemotron-h",          "nemotron-h-moe",
    "phi3",      "qwen2",        "qwen2-moe",      "qwen2_dora",          "qwen2_tied",
    "qwen3.5",   "qwen3.5_dora", "qwen3-next",     "qwen3-next_dora"};

inline std::filesystem::path lora_folder(const std::string& name) {
  return std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/lora" / name;
}

// QLoRA: the frozen matrices are held in NF4.
inline constexpr const char* kQloraCases[] = {"nf4", "nf4_dora"};
inline bool is_qlora(const std::string& name) { return name.starts_with("nf4"); }

// Cases of DoRA, and of a table that is trained with the head, have the models of those of LoRA.
inline std::filesystem::path lora_base(const std::string& name) {
  if (is_qlora(name)) return lora_folder("nf4_base");
  return golden_folder(name.substr(0, name.find('_')));
}

// The cases with the gated delta rule, whose norms of heads divide by small numbers: in fp32 small
// models lose digits, so they are computed in fp64, by the reference, too.
inline bool loses_digits(const std::string& name) { return name.starts_with("qwen3"); }

inline std::unique_ptr<Kernels> reference_kernels(ThreadPool&) { return make_reference_kernels(); }

// The model of a case and its adapter, as files.
struct LoraFiles {
  explicit LoraFiles(const std::string& name)
      : base(lora_base(name)),
        family(hf_family(base.config())),
        adapter(lora_folder(name), model(), family),
        expected(lora_folder(name) / "expected.safetensors") {}

  ModelConfig model() const {
    ModelConfig config = base.model();
    config.hidden_dropout = config.attention_dropout = 0;
    return config;
  }
  std::vector<std::int32_t> tokens() const {
    const Tensor ids = expected.tensor("tokens");
    return {ids.data<std::int32_t>(), ids.data<std::int32_t>() + ids.elements()};
  }

  HfSource base;
  HfFamily family;
  PeftSource adapter;
  SafetensorsFile expected;
};

// Both loads.
inline void load_lora(Session& session, piton::TensorSource& base, piton::TensorSource& adapter,
                      HostMachine& machine) {
  StoreContext context{session.mesh(), machine.device, machine.arena, *machine.stream};
  load_weights(base,
               {.parameters = base_parameters(session.parameters()), .sharded = &session.sharded()},
               context);
  load_weights(adapter,
               {.parameters = trained_parameters(session.parameters(), session.settings().adapters),
                .sharded = &session.sharded()},
               context);
  session.publish_values();
}

inline std::vector<double> logits_of(Session& session, const ModelConfig& model,
                                     const std::vector<std::int32_t>& tokens) {
  Inference inference(session.context(false), session.pipeline(), session.mesh(), model);
  const std::vector<float> logits = inference.whole_vocabulary(inference.logits(tokens, 1));
  return {logits.begin(), logits.end()};
}

inline double largest_distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(a[i] - b[i]);
    if (!(distance <= worst)) worst = distance;  // NaN too
  }
  return worst;
}

inline std::vector<double> values_of(piton::TensorSource& source, const CanonicalTensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.shape.elements()));
  source.read(tensor.name, whole_run(tensor.shape), DType::kF64,
              reinterpret_cast<std::byte*>(values.data()));
  return values;
}

// Each trained parameter has the gradient that `wanted` has under its name, within 1e-5 of its
// length, and no other parameter has one.
inline void expect_gradients(const Session& session, piton::TensorSource& wanted,
                             const std::string& name) {
  std::map<std::string, std::vector<double>> ours;
  for (const Parameter* parameter : session.parameters()) {
    EXPECT_EQ(parameter->gradient.defined(), parameter->trainable) << parameter->name;
    if (!parameter->trainable) continue;
    for (const Piece& piece : parameter->pieces)
      ours[piece.name] = values(parameter->gradient.slice(0, piece.local_row, piece.extent[0]));
  }
  EXPECT_EQ(ours.size(), wanted.tensors(TensorKind::kWeight).size()) << name;
  std::size_t unused = 0;
  for (const CanonicalTensor& tensor : wanted.tensors(TensorKind::kWeight)) {
    ASSERT_TRUE(ours.contains(tensor.name)) << name << " " << tensor.name;
    const std::vector<double> right = values_of(wanted, tensor);
    double squares = 0;
    for (const double one : right) squares += one * one;
    // An expert that no token chooses has none.
    if (squares == 0) ++unused;
    ASSERT_TRUE(squares > 0 || tensor.name.find(".experts.") != std::string::npos) << tensor.name;
    EXPECT_LE(largest_distance(ours.at(tensor.name), right), 1e-5 * std::sqrt(squares) + 1e-9)
        << name << " " << tensor.name;
  }
  EXPECT_LT(2 * unused, ours.size()) << name;
}

}  // namespace piton::test
