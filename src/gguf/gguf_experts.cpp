#include "gguf/gguf_experts.h"

#include "base/error.h"

namespace piton {
namespace {

constexpr std::int64_t kMostExperts = 1024;  // LLAMA_MAX_EXPERTS

// Of a layer. All are bounded by the file, as each has a matrix in it.
void check_experts_of(const GgufKeys& keys, std::int64_t layer, std::int64_t experts) {
  const std::string name = fmt::format("blk.{}.ffn_down_exps.weight", layer);
  const auto found = keys.description().shapes.find(name);
  if (found != keys.description().shapes.end() && found->second.size() == 3 &&
      found->second[0] == experts)
    return;
  if (keys.has_tensor(fmt::format("blk.{}.ffn_down.0.weight", layer))) {
    throw Error(Fault::kData,
                "{}: blk.{}.ffn_down.0.weight: has a tensor for each expert, an older form that "
                "llama.cpp left; wanted {}, of all; convert the original model again",
                keys.where(), layer, name);
  }
  if (found == keys.description().shapes.end()) {
    throw Error(Fault::kData, "{}: missing tensor {}; is the copy complete?", keys.where(), name);
  }
  throw Error(Fault::kData, "{}: {} is [{}], wanted matrices of {} experts, as the keys say",
              keys.where(), name, fmt::join(found->second, ", "), experts);
}

}  // namespace

void read_gguf_experts(GgufExperts experts, const GgufKeys& keys, ModelConfig& model) {
  model.experts.reset();
  const GgufValue* count = keys.find_own(keys.description().architecture + ".expert_count");
  const bool none = count == nullptr || (count->is_integer() && count->integer() == 0);
  if (none && experts != GgufExperts::kAll) return;
  if (experts == GgufExperts::kNone)
    keys.refuse("expert_count", "0, as models of this architecture have no experts");
  model.experts = {.experts = keys.size("expert_count"), .choices = keys.size("expert_used_count")};
  if (keys.size("expert_group_count", 1) != 1)
    keys.refuse("expert_group_count", "1: a token chooses among all experts");
  if (experts == GgufExperts::kAll) {
    model.ffn_hidden = keys.size(
        kExpertWidth, std::max<std::int64_t>(1, model.ffn_hidden / model.experts->choices));
  }
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    check_experts_of(keys, layer, model.experts->experts);
}

void write_gguf_experts(GgufExperts experts, const ExpertFacts& facts, const ModelConfig& model,
                        GgufDescription& out) {
  if (facts.shared_ffn_hidden != 0 || !facts.dense_layers.empty()) {
    throw Error(
        Fault::kData, "Piton has no words yet for {} there",
        facts.shared_ffn_hidden != 0 ? "an MLP that all tokens share" : "layers without experts");
  }
  if (experts == GgufExperts::kNone) return;
  if (facts.experts > kMostExperts) {
    throw Error(Fault::kData, "{} experts, of which llama.cpp holds {} at most", facts.experts,
                kMostExperts);
  }
  out.add("expert_count", GgufValue::u32(facts.experts));
  out.add("expert_used_count", GgufValue::u32(facts.choices));
  if (experts == GgufExperts::kAll) out.add(kExpertWidth, GgufValue::u32(model.ffn_hidden));
}

}  // namespace piton
