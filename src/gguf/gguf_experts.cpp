#include "gguf/gguf_experts.h"

#include "base/error.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

constexpr std::int64_t kMostExperts = 1024;  // LLAMA_MAX_EXPERTS
constexpr const char* kExpertScore = "expert_gating_func";
constexpr const char* kDenseFirst = "leading_dense_block_count";
constexpr const char* kSharedWidth = "expert_shared_feed_forward_length";
constexpr const char* kSharedCount = "expert_shared_count";
constexpr std::int64_t kMostWidth = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kSoftmaxKey = 1;
constexpr std::int64_t kSigmoidKey = 2;

// The numbers in the file of those from layer `first` on.
std::vector<std::int64_t> blocks_with_experts(const GgufExperts& form, const ModelConfig& model,
                                              std::int64_t first) {
  std::vector<std::int64_t> blocks;
  if (!form.in_letters) {
    for (std::int64_t layer = first; layer < model.layers; ++layer) blocks.push_back(layer);
    return blocks;
  }
  const std::vector<PatternLetter> letters = pattern_letters(model);
  for (std::size_t block = 0; block < letters.size(); ++block)
    if (letters[block].mlp) blocks.push_back(static_cast<std::int64_t>(block));
  return blocks;
}

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

// llama.cpp scores a group by its two best experts, as DeepSeek-V3 does. DeepSeek-V2, whose scores
// are a softmax, does it by the best one; its files have the same keys.
ExpertGroups read_groups(const GgufKeys& keys, ScoreKind score) {
  const std::int64_t count = keys.count("expert_group_count", 1);
  if (count <= 1) return {};
  return {.count = count,
          .chosen = keys.size("expert_group_used_count"),
          .largest = score == ScoreKind::kSoftmax ? 1 : 2};
}

void read_score(const GgufExperts& form, const GgufKeys& keys, ExpertFacts& facts) {
  const std::int64_t otherwise = form.score == ScoreKind::kSigmoid ? kSigmoidKey : kSoftmaxKey;
  const std::int64_t score = keys.count(kExpertScore, otherwise);
  if (score != kSoftmaxKey && score != kSigmoidKey)
    keys.refuse(kExpertScore, "1, a softmax, or 2, sigmoids");
  facts.score = score == kSigmoidKey ? ScoreKind::kSigmoid : ScoreKind::kSoftmax;
}

void read_rule(const GgufExperts& form, const GgufKeys& keys, ExpertFacts& facts) {
  facts.score = form.score;
  facts.normalized = form.normalized;
  if (!form.says_rule && keys.size("expert_group_count", 1) != 1)
    keys.refuse("expert_group_count", "1: a token chooses among all experts");
  if (form.says_rule || form.says_score) read_score(form, keys, facts);
  if (!form.says_rule) return;
  facts.normalized = keys.flag("expert_weights_norm", false);
  facts.weight_factor = keys.number("expert_weights_scale", 1.0);
  if (facts.weight_factor == 0) facts.weight_factor = 1;  // as llama.cpp takes it
  facts.groups = read_groups(keys, facts.score);
}
// The widths of an expert and of the MLP that all tokens share.
void read_widths(const GgufExperts& form, const GgufKeys& keys, ModelConfig& model) {
  ExpertFacts& facts = *model.experts;
  std::int64_t width = model.ffn_hidden;
  if (form.own_width)
    width = keys.size(kExpertWidth, std::max<std::int64_t>(1, model.ffn_hidden / facts.choices));
  if (form.shared != GgufPart::kNever) {
    facts.shared_gate = form.shared_gate;
    facts.shared_ffn_hidden = !form.shared_width ? keys.count(kSharedCount) * width
                              : form.shared_gate ? keys.size(kSharedWidth, model.ffn_hidden)
                                                 : keys.count(kSharedWidth, 0);
  }
  if (facts.shared_ffn_hidden > kMostWidth)
    keys.refuse(kSharedCount, "so many that the MLP of all tokens is narrower than 2^31");
  if (facts.dense_layers.empty()) model.ffn_hidden = width;
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
}

// Throws for what llama.cpp fixes otherwise, and no key says.
void check_can_hold(const GgufExperts& form, const ModelConfig& model) {
  const ExpertFacts& facts = *model.experts;
  const auto refuse = [](const std::string& what) {
    throw Error(Fault::kData, "llama.cpp has {} there", what);
  };
  if (facts.experts > kMostExperts) {
    throw Error(Fault::kData, "{} experts, of which llama.cpp holds {} at most", facts.experts,
                kMostExperts);
  }
  const bool shared = facts.shared_ffn_hidden != 0;
  if (shared && form.shared == GgufPart::kNever) refuse("no MLP that all tokens share");
  if (!shared && form.shared == GgufPart::kAlways) refuse("an MLP that all tokens share");
  if (shared && !form.shared_width && facts.shared_ffn_hidden % model.expert_ffn_hidden() != 0)
    refuse("an MLP that all tokens share only as wide as some experts together");
  if (facts.choice_bias && form.choice_bias == GgufPart::kNever) refuse("no bias of the choice");
  if (!facts.choice_bias && form.choice_bias == GgufPart::kAlways) refuse("a bias of the choice");
  for (std::size_t i = 0; i < facts.dense_layers.size(); ++i) {
    if (form.in_letters) continue;  // write_gguf_letters() sees to it
    if (!form.dense_first) refuse("experts in all layers");
    if (facts.dense_layers[i] != static_cast<std::int64_t>(i))
      refuse("experts in all layers after the first one with experts");
  }
}

void write_score(const ExpertFacts& facts, GgufDescription& out) {
  const bool sigmoid = facts.score == ScoreKind::kSigmoid;
  out.add(kExpertScore, GgufValue::u32(sigmoid ? kSigmoidKey : kSoftmaxKey));
}

void write_rule(const ExpertFacts& facts, GgufDescription& out) {
  out.add("expert_weights_norm", GgufValue::boolean(facts.normalized));
  out.add("expert_weights_scale", GgufValue::f32(facts.weight_factor));
  if (!facts.groups.divide()) return;
  out.add("expert_group_count", GgufValue::u32(facts.groups.count));
  out.add("expert_group_used_count", GgufValue::u32(facts.groups.chosen));
}

}  // namespace

void read_gguf_experts(const GgufExperts& form, const GgufKeys& keys, ModelConfig& model) {
  model.experts.reset();
  const GgufValue* count = keys.find("expert_count");
  const bool none = count == nullptr || (count->is_integer() && count->integer() == 0);
  if (none && form.have != GgufPart::kAlways) return;
  if (form.have == GgufPart::kNever)
    keys.refuse("expert_count", "0, as models of this architecture have no experts");
  ExpertFacts facts{.experts = keys.size("expert_count"),
                    .choices = keys.size("expert_used_count")};
  read_rule(form, keys, facts);
  const std::int64_t first = form.dense_first ? keys.count(kDenseFirst, 0) : 0;
  if (first >= model.layers) keys.refuse(kDenseFirst, "fewer than block_count");
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    if (layer < first || !model.has_mlp(layer)) facts.dense_layers.push_back(layer);
  const std::vector<std::int64_t> blocks = blocks_with_experts(form, model, first);
  if (blocks.empty()) keys.refuse("expert_count", "0, as no layer has an MLP");
  facts.choice_bias = form.choice_bias == GgufPart::kAlways ||
                      (form.choice_bias == GgufPart::kMaybe &&
                       keys.has_tensor(fmt::format("blk.{}.exp_probs_b.bias", blocks.front())));
  model.experts = facts;
  read_widths(form, keys, model);
  for (const std::int64_t block : blocks) check_experts_of(keys, block, facts.experts);
}

void write_gguf_experts(const GgufExperts& form, const ModelConfig& model, GgufDescription& out) {
  if (form.have == GgufPart::kNever) return;
  if (!model.experts) {
    if (!form.dense_first) return;
    // llama.cpp wants these also of models without experts.
    out.add(kDenseFirst, GgufValue::u32(model.layers));
    out.add(kExpertWidth, GgufValue::u32(model.ffn_hidden));
    out.add(kSharedCount, GgufValue::u32(0));
    return;
  }
  const ExpertFacts& facts = *model.experts;
  const std::int64_t width = model.expert_ffn_hidden();
  check_can_hold(form, model);
  out.add("expert_count", GgufValue::u32(facts.experts));
  out.add("expert_used_count", GgufValue::u32(facts.choices));
  if (form.own_width) out.add(kExpertWidth, GgufValue::u32(width));
  if (form.dense_first) out.add(kDenseFirst, GgufValue::u32(std::ssize(facts.dense_layers)));
  if (form.shared != GgufPart::kNever && form.shared_width)
    out.add(kSharedWidth, GgufValue::u32(facts.shared_ffn_hidden));
  if (form.shared != GgufPart::kNever && !form.shared_width)
    out.add(kSharedCount, GgufValue::u32(facts.shared_ffn_hidden / width));
  if (form.says_rule || form.says_score) write_score(facts, out);
  if (form.says_rule) write_rule(facts, out);
}

}  // namespace piton
