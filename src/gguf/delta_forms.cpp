// Models with the gated delta rule: Qwen3-Next and Qwen 3.5, the latter without experts and with
// them.
#include "gguf/forms.h"
#include "gguf/gguf_delta.h"
#include "model/families.h"

namespace piton {
namespace {

constexpr GgufExperts kOfQwen3Next{.have = GgufPart::kAlways,
                                   .own_width = true,
                                   .shared = GgufPart::kAlways,
                                   .shared_width = true,
                                   .shared_gate = true};

}  // namespace

// Experts of Qwen 3.5 are those of Qwen3-Next, so the models are the same; only files differ.
std::vector<GgufArchitecture> delta_forms() {
  return {{.name = "qwen3next",
           .families = {"qwen3_next"},
           .facts = qwen3_next_facts,
           .read = read_gguf_delta,
           .write = write_gguf_delta,
           .experts = kOfQwen3Next,
           .norm_after_attention = true,
           .has_later_layers = true,
           .delta = GgufDelta::kByKeyHead},
          {.name = "qwen35",
           .families = {"qwen3_5_text", "qwen3_5"},
           .facts = qwen3_5_facts,
           .read = read_gguf_delta,
           .write = write_gguf_delta,
           .norm_after_attention = true,
           .has_later_layers = true,
           .delta = GgufDelta::kTiled,
           .has_sections = true},
          {.name = "qwen35moe",
           .families = {"qwen3_5_moe_text"},
           .facts = qwen3_next_facts,
           .read = read_gguf_delta,
           .write = write_gguf_delta,
           .experts = kOfQwen3Next,
           .norm_after_attention = true,
           .has_later_layers = true,
           .delta = GgufDelta::kTiled,
           .has_sections = true}};
}

}  // namespace piton
