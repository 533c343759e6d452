// Mixtures of experts as GGUF files. That llama.cpp computes what Piton does, and that its
// converter writes the same bytes, is held by tools/oracle/gguf_files.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/files/files.h"
#include "codes/code_format.h"
#include "gguf/gguf_source.h"
#include "gguf/gguf_writer.h"
#include "huggingface/config_keys.h"
#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "unit/gguf/written_gguf.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::floats_of;
using test::HfFolder;
using testing::HasSubstr;

// A folder whose rows of experts are whole blocks of `values`: copies of what it has, in turn.
void widen(HfFolder& folder, std::int64_t values) {
  for (auto& [name, tensor] : folder.tensors) {
    if (!name.ends_with("down_proj.weight") && !name.ends_with("gate_proj.weight") &&
        !name.ends_with("up_proj.weight"))
      continue;
    const bool down = name.ends_with("down_proj.weight");
    const Tensor wide =
        host_tensor(DType::kF32, {down ? tensor.dim(0) : values, down ? values : tensor.dim(1)});
    for (std::int64_t i = 0; i < wide.elements(); ++i) {
      wide.data<float>()[i] =
          tensor.data<float>()[i % tensor.elements()] + static_cast<float>(i % 7);
    }
    tensor = wide;
  }
  folder.edit_config(
      [&](nlohmann::ordered_json& config) { config["moe_intermediate_size"] = values; });
  folder.write();
}

class GgufOfExperts : public testing::Test {
 protected:
  // llama.cpp divides the weights of the experts of a token by their sum.
  GgufOfExperts() {
    qwen_.edit_config([](nlohmann::ordered_json& config) { config["norm_topk_prob"] = true; });
  }

  fs::path write(const fs::path& folder, std::optional<GgmlType> type = {}) {
    return files_.write(folder, type);
  }

  // What is wrong with the Mixtral of the golden folder, with another head.
  std::string refusal(const std::function<void(GgufHeader&)>& edit) {
    return files_.refusal(test::golden_folder("mixtral"), edit);
  }

  static const GgufTensor& tensor(const GgufSource& source, const std::string& name) {
    return *std::ranges::find(source.file().header().tensors, name, &GgufTensor::name);
  }

  HfFolder qwen_{"qwen3-moe"};
  test::GgufWorkshop files_;
};

TEST_F(GgufOfExperts, OfEveryTypeIsReadAsItWasWritten) {
  for (const std::int64_t width : {18, 32, 256}) {
    if (width != 18) widen(qwen_, width);
    for (const std::optional<GgmlType> type :
         {std::optional<GgmlType>{}, std::optional(GgmlType::kF16), std::optional(GgmlType::kBF16),
          std::optional(GgmlType::kQ80), std::optional(GgmlType::kQ40),
          std::optional(GgmlType::kQ4K), std::optional(GgmlType::kQ5K),
          std::optional(GgmlType::kQ6K)}) {
      SCOPED_TRACE(fmt::format("{} {}", width, type ? piton::name(*type) : "as it is"));
      GgufSource source(write(qwen_.path(), type));
      HfSource folder(qwen_.path());
      EXPECT_EQ(source.architecture().name, "qwen3moe");
      EXPECT_EQ(model_difference(model_in_gguf(folder.model()), source.model()), "");
      if (width == 256 && type) {
        EXPECT_EQ(source.stored_type("layers.1.mlp.experts.5.down.weight"), *type);
      }
      AsGgufHolds held(folder, source);
      for (const CanonicalTensor& one : folder.tensors(TensorKind::kWeight)) {
        EXPECT_EQ(floats_of(source, one), floats_of(held, one)) << one.name;
        if (!type) {
          EXPECT_EQ(floats_of(source, one), floats_of(folder, one)) << one.name;
        }
      }
    }
  }
}

TEST_F(GgufOfExperts, StacksTheMatricesOfALayer) {
  HfSource folder(qwen_.path());
  GgufSource source(write(qwen_.path(), GgmlType::kF16));
  EXPECT_EQ(tensor(source, "blk.1.ffn_gate_inp.weight").type, GgmlType::kF32);
  EXPECT_EQ(tensor(source, "blk.1.ffn_gate_exps.weight").shape,
            (std::vector<std::int64_t>{6, 18, 32}));
  EXPECT_EQ(tensor(source, "blk.1.ffn_up_exps.weight").shape,
            (std::vector<std::int64_t>{6, 18, 32}));
  const GgufSource plain(write(qwen_.path()));
  const GgufTensor& down = tensor(plain, "blk.1.ffn_down_exps.weight");
  EXPECT_EQ(down.shape, (std::vector<std::int64_t>{6, 32, 18}));
  std::vector<float> stored(6 * 32 * 18);
  plain.file().file().read_at(plain.file().offset(down), std::as_writable_bytes(std::span(stored)));
  for (std::int64_t expert = 0; expert < 6; ++expert) {
    const std::vector<float> one = floats_of(
        folder,
        {fmt::format("layers.1.mlp.experts.{}.down.weight", expert), DType::kF32, Shape{32, 18}});
    EXPECT_EQ(std::memcmp(one.data(), stored.data() + expert * 32 * 18, one.size() * 4), 0);
  }
}

// The codes of an expert are those that a file of this matrix alone would have.
TEST_F(GgufOfExperts, GivesTheCodesOfAnExpert) {
  widen(qwen_, 32);
  HfSource folder(qwen_.path());
  GgufSource source(write(qwen_.path(), GgmlType::kQ80));
  const CanonicalTensor up{"layers.0.mlp.experts.4.up.weight", DType::kF32, Shape{32, 32}};
  const CodeFormat format{Quantization::kQ80, 32};
  ASSERT_EQ(source.stored_format(up.name), format);
  EXPECT_EQ(source.stored_format("layers.0.mlp.router.weight"), std::nullopt);
  const std::vector<float> values = floats_of(folder, up);
  for (std::int64_t row = 0; row < 32; ++row) {
    std::vector<std::byte> wanted(34), got(34);
    encode_row(format, std::span(values).subspan(static_cast<std::size_t>(row) * 32, 32),
               {.codes = wanted.data(), .scales = wanted.data() + 32}, "x");
    source.read_codes(up.name, {row, 0, 32}, {.codes = got.data(), .scales = got.data() + 32});
    EXPECT_EQ(got, wanted) << row;
  }
}

TEST_F(GgufOfExperts, IsAModelOfItsFamily) {
  const GgufSource mixtral(write(test::golden_folder("mixtral")));
  EXPECT_EQ(mixtral.architecture().name, "llama");
  EXPECT_EQ(mixtral.family(), "mixtral");
  EXPECT_EQ(GgufSource(write(test::golden_folder("llama"))).family(), "llama");
  EXPECT_EQ(GgufSource(write(qwen_.path())).family(), "qwen3_moe");
}

TEST_F(GgufOfExperts, WhoseRulesLlamaCppDoesNotHaveIsRefused) {
  HfFolder plain("qwen3-moe");  // norm_topk_prob is false
  EXPECT_THAT(message_of(Fault::kData, [&] { write(plain.path()); }),
              HasSubstr("as \"qwen3moe\": there is no word for weights of experts that do not add "
                        "up to 1; convert it to another format"));
  HfSource folder(qwen_.path());
  ModelConfig many = folder.model();
  many.experts->experts = 1025;
  EXPECT_THAT(message_of(Fault::kData, [&] { describe_gguf(many, "qwen3_moe", "x"); }),
              HasSubstr("as \"qwen3moe\": 1025 experts, of which llama.cpp holds 1024 at most"));
  ModelConfig distant = folder.model();
  distant.positions = PositionKind::kAlibi;
  EXPECT_THAT(message_of(Fault::kData, [&] { describe_gguf(distant, "gpt2", "x"); }),
              HasSubstr("no architecture of llama.cpp holds this model (qwen3_moe)"));
}

TEST_F(GgufOfExperts, WhoseKeysContradictItsTensorsIsRefused) {
  const auto set = [](GgufHeader& header, const std::string& key, std::int64_t value) {
    test::set_entry(header, key, GgufValue::u32(value));
  };
  const auto named = test::tensor_of;
  EXPECT_THAT(refusal([&](GgufHeader& h) { set(h, "llama.expert_count", 65536); }),
              HasSubstr("blk.0.ffn_down_exps.weight is [5, 32, 22], wanted matrices of 65536 "
                        "experts, as the keys say"));
  EXPECT_THAT(
      refusal([&](GgufHeader& h) { set(h, "llama.expert_used_count", 6); }),
      HasSubstr("describes a model that cannot be: --moe-router-topk: got 6, wanted 1 to 5"));
  EXPECT_THAT(refusal([&](GgufHeader& h) { set(h, "llama.expert_used_count", 0); }),
              HasSubstr("llama.expert_used_count: got 0, wanted a positive integer"));
  EXPECT_THAT(refusal([&](GgufHeader& h) { set(h, "llama.expert_group_count", 2); }),
              HasSubstr("llama.expert_group_count: got 2, wanted 1: a token chooses among all"));
  EXPECT_THAT(refusal([&](GgufHeader& h) { set(h, "llama.expert_count", 0); }),
              HasSubstr("missing tensors (6): blk.0.ffn_down.weight"));
  EXPECT_THAT(refusal([&](GgufHeader& h) { named(h, "blk.1.ffn_down_exps.weight").name = "x"; }),
              HasSubstr("missing tensor blk.1.ffn_down_exps.weight; is the copy complete?"));
  EXPECT_THAT(refusal([&](GgufHeader& h) {
                named(h, "blk.0.ffn_down_exps.weight").name = "blk.0.ffn_down.0.weight";
              }),
              HasSubstr("blk.0.ffn_down.0.weight: has a tensor for each expert, an older form that "
                        "llama.cpp left; wanted blk.0.ffn_down_exps.weight, of all"));
  EXPECT_THAT(refusal([&](GgufHeader& h) {
                h.entries[0].value = GgufValue::string("qwen2");
                for (GgufEntry& entry : h.entries) {
                  if (entry.key.starts_with("llama.")) entry.key = "qwen2" + entry.key.substr(5);
                }
              }),
              HasSubstr("qwen2.expert_count: got 5, wanted 0, as models of this architecture have "
                        "no experts"));
  EXPECT_THAT(refusal([&](GgufHeader& h) {
                h.entries[0].value = GgufValue::string("qwen3moe");
                for (GgufEntry& entry : h.entries) {
                  if (entry.key.starts_with("llama.")) entry.key = "qwen3moe" + entry.key.substr(5);
                }
                set(h, "qwen3moe.expert_count", 0);
              }),
              HasSubstr("qwen3moe.expert_count: got 0, wanted a positive integer"));
}

// llama.cpp takes what feed_forward_length leaves for each expert.
TEST_F(GgufOfExperts, HasItsWidthFromEitherKey) {
  const fs::path path = write(qwen_.path());
  GgufFile file(path);
  GgufDescription description{.architecture = "qwen3moe", .entries = file.header().entries};
  for (const GgufTensor& one : file.header().tensors) description.shapes[one.name] = one.shape;
  std::erase_if(description.entries,
                [](const GgufEntry& entry) { return entry.key.ends_with("feed_forward_length"); });
  description.add("feed_forward_length", GgufValue::u32(54));
  EXPECT_EQ(gguf_model(description, "x").ffn_hidden, 18);
  description.entries.pop_back();
  description.add("expert_feed_forward_length", GgufValue::u32(18));
  EXPECT_EQ(gguf_model(description, "x").ffn_hidden, 18);
}

// llama.cpp has experts in all layers of Qwen 2 MoE.
TEST_F(GgufOfExperts, OfQwen2HasTheMlpThatAllTokensShare) {
  HfFolder folder("qwen2-moe");
  EXPECT_THAT(message_of(Fault::kData, [&] { write(folder.path()); }),
              HasSubstr("as \"qwen2moe\": llama.cpp has experts in all layers there"));
  folder.edit_config(
      [](nlohmann::ordered_json& config) { config["mlp_only_layers"] = nlohmann::json::array(); });
  const std::string first = "model.layers.0.mlp.";
  std::erase_if(folder.tensors, [&](const auto& one) { return one.first.starts_with(first); });
  const std::map<std::string, Tensor> tensors = folder.tensors;
  for (const auto& [name, tensor] : tensors) {
    const std::string second = "model.layers.1.mlp.";
    if (name.starts_with(second)) folder.tensors[first + name.substr(second.size())] = tensor;
  }
  folder.write();
  for (const std::optional<GgmlType> type : {std::optional<GgmlType>{}, {GgmlType::kQ80}}) {
    GgufSource source(write(folder.path(), type));
    EXPECT_EQ(source.architecture().name, "qwen2moe");
    EXPECT_EQ(tensor(source, "blk.0.ffn_gate_inp_shexp.weight").shape,
              (std::vector<std::int64_t>{32}));
    EXPECT_EQ(tensor(source, "blk.0.ffn_gate_inp_shexp.weight").type, GgmlType::kF32);
    HfSource original(folder.path());
    EXPECT_EQ(model_difference(model_in_gguf(original.model()), source.model()), "");
    AsGgufHolds held(original, source);
    for (const CanonicalTensor& one : original.tensors(TensorKind::kWeight))
      EXPECT_EQ(floats_of(source, one), floats_of(held, one)) << one.name;
  }
}

TEST_F(GgufOfExperts, WhoseFormLlamaCppDoesNotHaveIsRefused) {
  const auto refused = [](const std::string& golden, void (*change)(ExpertFacts & facts)) {
    ModelConfig model = HfSource(test::golden_folder(golden)).model();
    change(*model.experts);
    return message_of(Fault::kData, [&] { describe_gguf(model, "", "x"); });
  };
  EXPECT_THAT(refused("qwen3-moe", [](ExpertFacts& facts) { facts.shared_ffn_hidden = 8; }),
              HasSubstr("as \"qwen3moe\": llama.cpp has no MLP that all tokens share there"));
  EXPECT_THAT(refused("mixtral", [](ExpertFacts& facts) { facts.choice_bias = true; }),
              HasSubstr("as \"llama\": llama.cpp has no bias of the choice there"));
  EXPECT_THAT(refused("glm4-moe", [](ExpertFacts& facts) { facts.dense_layers = {1}; }),
              HasSubstr("as \"glm4moe\": llama.cpp has experts in all layers after the first one "
                        "with experts there"));
  EXPECT_THAT(refused("glm4-moe", [](ExpertFacts& facts) { facts.choice_bias = false; }),
              HasSubstr("as \"glm4moe\": llama.cpp has a bias of the choice there"));
  EXPECT_THAT(refused("glm4-moe", [](ExpertFacts& facts) { facts.shared_ffn_hidden = 0; }),
              HasSubstr("as \"glm4moe\": llama.cpp has an MLP that all tokens share there"));
  EXPECT_THAT(
      refused("glm4-moe", [](ExpertFacts& facts) { facts.shared_ffn_hidden = 15; }),
      HasSubstr("as \"glm4moe\": llama.cpp has an MLP that all tokens share only as wide as "
                "some experts together there"));
  EXPECT_THAT(refused("glm4-moe", [](ExpertFacts& facts) { facts.groups.largest = 1; }),
              HasSubstr("as \"glm4moe\": there is no word for its experts"));
}

// The norm of all key heads of OLMoE is as wide as that of all query heads in llama.cpp.
TEST_F(GgufOfExperts, OfOlmoeHasAKeyValueHeadForEachHead) {
  ModelConfig model = HfSource(test::golden_folder("olmoe")).model();
  EXPECT_THAT(message_of(Fault::kData, [&] { describe_gguf(model, "olmoe", "x"); }),
              HasSubstr("as \"olmoe\": llama.cpp has a key-value head for each head there"));
  model.groups = model.heads;
  const GgufDescription description = describe_gguf(model, "olmoe", "x");
  EXPECT_EQ(description.architecture, "olmoe");
  EXPECT_THAT(description.shapes.at("blk.1.attn_k_norm.weight"), testing::ElementsAre(32));
}

// With fewer, that of GLM-4.5 holds the model.
TEST_F(GgufOfExperts, OfDotsHasAKeyValueHeadForEachHead) {
  ModelConfig model = HfSource(test::golden_folder("dots1")).model();
  model.window_before.reset();
  model.full_attention_every = 0;
  EXPECT_EQ(describe_gguf(model, "dots1", "x").architecture, "glm4moe");
  model.groups = model.heads;
  const GgufDescription description = describe_gguf(model, "dots1", "x");
  EXPECT_EQ(description.architecture, "dots1");
  EXPECT_TRUE(description.shapes.contains("blk.1.exp_probs_b.bias"));
}

TEST_F(GgufOfExperts, WhoseKeysSayAnotherRuleIsRefused) {
  const auto refused = [&](const std::string& golden, const std::string& key, std::int64_t value) {
    return files_.refusal(test::golden_folder(golden), [&](GgufHeader& header) {
      test::set_entry(header, key, GgufValue::u32(value));
    });
  };
  EXPECT_THAT(refused("glm4-moe", "glm4moe.expert_gating_func", 4),
              HasSubstr("glm4moe.expert_gating_func: got 4, wanted 1, a softmax, or 2, sigmoids"));
  EXPECT_THAT(refused("glm4-moe", "glm4moe.leading_dense_block_count", 2),
              HasSubstr("glm4moe.leading_dense_block_count: got 2, wanted fewer than block_count"));
  EXPECT_THAT(refused("glm4-moe", "glm4moe.leading_dense_block_count", 0),
              HasSubstr("missing tensor blk.0.ffn_down_exps.weight; is the copy complete?"));
  EXPECT_THAT(refused("glm4-moe", "glm4moe.expert_shared_count", 2),
              HasSubstr("blk.1.ffn_down_shexp.weight is [32, 14], the keys say [32, 28]"));
  EXPECT_THAT(refused("glm4-moe", "glm4moe.expert_shared_count", 2147483647),
              HasSubstr("glm4moe.expert_shared_count: got 2147483647, wanted so many that the MLP "
                        "of all tokens is narrower than 2^31"));
  EXPECT_THAT(
      refused("glm4-moe", "glm4moe.expert_group_count", 3),
      HasSubstr("describes a model that cannot be: --moe-router-num-groups: got 3, wanted a "
                "divisor of --num-experts, which is 8"));
  EXPECT_THAT(refused("ernie4.5-moe", "ernie4_5-moe.interleave_moe_layer_step", 2),
              HasSubstr("ernie4_5-moe.interleave_moe_layer_step: got 2, wanted 1"));
}

}  // namespace
}  // namespace piton
