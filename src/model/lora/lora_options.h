// Options of low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685), with the flags of
// MindSpeed-LLM and ModelLink, and what they mean for a model.
//
//   y = W x + scale B (A dropout(x))      scale = alpha / r, or alpha / sqrt(r) with rsLoRA
//                                         (Kalajdzievski 2023, arXiv:2312.03732)
//
// With --use-dora (Liu et al. 2024, arXiv:2402.09353) every row of W + scale B A is brought to a
// trained length (ops/linear_adapter.h).
//
// lora_targets.h has the names of modules.
//
// The head of a classifier is trained in full. So is a pooler that the base does not have
// (train/run/adapter_run.h), in place of an adapter of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "model/config.h"
#include "nn/adapters.h"
#include "ops/weight.h"

namespace piton {

struct LoraOptions {
  std::vector<std::string> target_modules;
  std::int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  bool rank_stabilized = false;
  bool use_dora = false;
  std::vector<std::string> rank_pattern;   // MODULE=R
  std::vector<std::string> alpha_pattern;  // MODULE=ALPHA
  std::vector<std::int64_t> layers;        // empty: all
  std::vector<std::string> modules_to_save;
  std::string adapter_name = "default";
  bool quantized_base = false;
  std::string frozen_weights = "auto";

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"lora-target-modules",
             "linears that get a low-rank adapter, by Hugging Face's or Megatron's names (q_proj "
             "v_proj, linear_qkv, ...), or all-linear (default: none)",
             same},
      target_modules);
    v(Option{"lora-r", "rank of an adapter", same}, rank);
    v(Option{"lora-alpha", "an adapter's product is multiplied by this / rank", same}, alpha);
    v(Option{"lora-rank-pattern",
             "other ranks of some adapters, as in q_proj=8 layers.3.down_proj=32; the first that "
             "names an adapter counts",
             {.resume = Resume::kMustMatch, .placeholder = "MODULE=R"}},
      rank_pattern);
    v(Option{"lora-alpha-pattern",
             "the same of --lora-alpha",
             {.resume = Resume::kMustMatch, .placeholder = "MODULE=ALPHA"}},
      alpha_pattern);
    v(Option{"lora-layers-to-transform",
             "layers whose linears get adapters, from 0 (default: all)",
             {.resume = Resume::kMustMatch, .placeholder = "N"}},
      layers);
    v(Option{"lora-dropout", "dropout rate of the input of an adapter", same}, dropout);
    v(Option{"lora-use-rslora",
             "divide --lora-alpha by the square root of the rank instead",
             {.aliases = {"use-rslora"}, .resume = Resume::kMustMatch}},
      rank_stabilized);
    v(Option{"use-dora",
             "adapters have the length of each row of a weight as a separate parameter (DoRA)",
             same},
      use_dora);
    v(Option{"lora-modules-to-save",
             "modules that are trained in full: word_embeddings, lm_head, norms, or a norm's name",
             same},
      modules_to_save);
    v(Option{"lora-adapter-name",
             "name of the adapter; PEFT keeps one that is not \"default\" in a folder of this name",
             same},
      adapter_name);
    v(Option{"qlora",
             "hold the matrices of the layers, which adapters leave as they are, in 4 bits (NF4 "
             "with double quantization)",
             same},
      quantized_base);
    v(Option{"frozen-weights",
             "weights that adapters leave as they are, in memory: packed: also in the forms that "
             "products of this processor read, up to two; rows: as they are stored, for the least "
             "memory, which slows products down on AVX-512 and AMX; auto: packed if memory has "
             "room for it. The numbers are the same",
             {.choices = {"auto", "packed", "rows"}}},
      frozen_weights);
  }

  // Whether the run trains adapters.
  bool given() const { return !target_modules.empty(); }
  FrozenForms frozen_forms() const {
    return frozen_weights == "rows" ? FrozenForms::kRows : FrozenForms::kFewest;
  }
  // Of an adapter of this rank and alpha.
  double scale(std::int64_t of_rank, double of_alpha) const;
  // The adapters of this model; none if no target is given. Throws Error(kUsage) that names the
  // flag: a rank below 1, a target or a module that the model does not have, with a list of those
  // that it has.
  Adapters resolve(const ModelConfig& config) const;
};

// Throws Error(kData) for adapters that the model has, and does not compute: of routers and gates
// of shared experts, and of experts that do not all have one of the same rank and scale. Merging
// needs no check. `where`: the files.
void check_computed(const ModelConfig& config, const Adapters& adapters, const std::string& where);

// Throws Error(kUsage) for adapters that are not one of several to choose from by text
// (Adapters::choices): they train a part of the model in full, or are of experts.
void check_can_be_chosen(const Adapters& adapters, const std::string& where);

}  // namespace piton
