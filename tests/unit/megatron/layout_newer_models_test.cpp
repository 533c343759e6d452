// The gated delta rule, gpt-oss and Mamba-2 in Megatron's files: those of Megatron-core's own
// modules (tools/oracle/megatron_newer.py), those that are written, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/files/files.h"
#include "checkpoint/values.h"
#include "huggingface/hf_source.h"
#include "megatron/format/norm_gains.h"
#include "megatron/megatron_source.h"
#include "megatron/megatron_writer.h"
#include "megatron/ranks/rank_weights.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/megatron/compare_sources.h"
#include "unit/megatron/edited_file.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kNewerModels = fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron/newer";
constexpr const char* kPlainFile = "mp_rank_00/model_optim_rng.pt";

HfSource folder_of(const char* name) {
  return HfSource(fs::path(PITON_SOURCE_DIR) / "tests/golden/huggingface" / name);
}

std::vector<float> values_of(TensorSource& source, const std::string& name, const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  source.read(name, whole_run(shape), DType::kF32, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

class NewerModels : public testing::Test {
 protected:
  std::string refusal(const char* name, const FileEdits& edits) {
    const fs::path folder = dir_ / "edited";
    fs::remove_all(folder);
    fs::copy(kNewerModels / name / "plain", folder, fs::copy_options::recursive);
    EditedFile(folder / kPlainFile, edits);
    return message_of(Fault::kData, [&] { MegatronSource{folder}; });
  }

  TempFolder dir_;
};

TEST_F(NewerModels, OfMegatronCoreHaveTheWeightsOfOneProcess) {
  for (const char* kind : {"next", "dense", "oss", "hybrid"}) {
    for (const char* division : {"divided", "dist"}) {
      SCOPED_TRACE(fmt::format("{} {}", kind, division));
      MegatronSource wanted(kNewerModels / kind / "plain");
      MegatronSource got(kNewerModels / kind / division);
      EXPECT_EQ(got.model(), wanted.model());
      expect_same(wanted, got);
    }
  }
}

TEST_F(NewerModels, OfMegatronCoreAreTheModelOfTheirArguments) {
  const ModelConfig next = MegatronSource(kNewerModels / "next/plain").model();
  const DeltaFacts facts{.attention_every = 4,
                         .key_heads = 2,
                         .value_heads = 4,
                         .key_size = 6,
                         .value_size = 5,
                         .width = 4};
  EXPECT_EQ(next.delta, facts);
  EXPECT_TRUE(next.output_gate);
  EXPECT_TRUE(next.gains_from_one);
  EXPECT_EQ(next.mtp_layers, 1);
  EXPECT_EQ(next.family, "qwen3_next");
  EXPECT_EQ(MegatronSource(kNewerModels / "dense/plain").model().family, "qwen3_5");
  const ModelConfig oss = MegatronSource(kNewerModels / "oss/plain").model();
  EXPECT_EQ(oss.family, "gpt_oss");
  EXPECT_EQ(oss.softmax, SoftmaxKind::kLearnable);
  EXPECT_EQ(oss.activation, ActivationKind::kGeluFast);
  EXPECT_EQ(oss.gate_rule, (GateRule{.bound = 0.4, .offset = 1}));
  EXPECT_EQ(oss.window_before, 8);
  EXPECT_EQ(oss.full_attention_every, 2);
  EXPECT_EQ(oss.rotary_scaling.kind, RotaryScaling::Kind::kYarn);
  EXPECT_FALSE(oss.rotary_scaling.whole_pairs);
  EXPECT_TRUE(oss.biases);
}

TEST_F(NewerModels, WithMamba2AreTheModelOfTheirLetters) {
  const ModelConfig hybrid = MegatronSource(kNewerModels / "hybrid/plain").model();
  const StateSpaceFacts facts{.attention_layers = {2, 4},
                              .heads = 4,
                              .groups = 2,
                              .head_size = 6,
                              .state_size = 10,
                              .width = 4};
  EXPECT_EQ(hybrid.state_space, facts);
  EXPECT_EQ(StateSpaceOptions::of(hybrid).pattern, "M-M*EM*-");
  EXPECT_EQ(hybrid.layers, 5);
  EXPECT_EQ(hybrid.family, "mamba2");
  EXPECT_EQ(hybrid.experts->ffn_hidden, 8);
  EXPECT_EQ(hybrid.ffn_hidden, 24);
}

// Megatron-core stores gain - 1 also of the norm inside the rule.
TEST_F(NewerModels, HaveGainsInsideTheRuleLessOne) {
  MegatronSource source(kNewerModels / "dense/plain");
  const TorchFile file(kNewerModels / "dense/plain" / kPlainFile);
  const std::string name = "decoder.layers.0.self_attention.out_norm.weight";
  const PickleValue& weights = *file.root().find("model");
  const TorchTensor stored = file.tensor(*weights.find(name.c_str()), name);
  std::vector<std::byte> bytes(static_cast<std::size_t>(stored.shape[0] * 2));
  file.file().read_at(stored.offset, bytes);
  std::vector<float> wanted(static_cast<std::size_t>(stored.shape[0]));
  convert_values(bytes.data(), DType::kBF16, reinterpret_cast<std::byte*>(wanted.data()),
                 DType::kF32, stored.shape[0]);
  for (float& gain : wanted) gain += 1;
  EXPECT_EQ(values_of(source, "layers.0.delta.norm.weight", {stored.shape[0]}), wanted);
}

TEST_F(NewerModels, AreWrittenInEveryForm) {
  for (const char* name :
       {"qwen3-next", "qwen3.5", "gpt-oss", "nemotron-h", "nemotron-h-moe", "mamba2"}) {
    HfSource folder = folder_of(name);
    const ModelConfig& model = folder.model();
    // What the files hold of gains inside the rule.
    ShiftedGains stored(folder, model, -1);
    ShiftedGains wanted(stored, model, 1);
    for (const MegatronForm form : {MegatronForm::kRankFiles, MegatronForm::kTorchDist}) {
      SCOPED_TRACE(fmt::format("{} {}", name, static_cast<int>(form)));
      const TempFolder dir;
      // Some have an MLP of an odd width, or one group of heads.
      const bool even = model.ffn_hidden % 2 == 0 && !model.state_space;
      const bool ranks = form == MegatronForm::kRankFiles && even;
      MegatronWriteOptions options{
          .layout = {.tensor = ranks ? 2 : 1, .expert_tensor = model.biases ? 1 : 0},
          .form = form,
          .tree = MegatronTree::kTransformer};
      options.layout.padded_vocabulary =
          megatron_padded_vocabulary(model.vocabulary, 16, options.layout.tensor);
      options.layout.check(model);
      write_megatron(dir.path(), folder, model, options);
      MegatronSource got(dir.path());
      expect_same(wanted, got);
      EXPECT_EQ(got.model().delta, model.delta);
      EXPECT_EQ(got.model().state_space, model.state_space);
      EXPECT_EQ(got.model().bare_layers, model.bare_layers);
      EXPECT_EQ(got.model().mlp_layers, model.mlp_layers);
      EXPECT_EQ(got.model().gate_rule, model.gate_rule);
      EXPECT_EQ(got.model().rotary_scaling, model.rotary_scaling);
      EXPECT_EQ(got.model().window_before, model.window_before);
    }
  }
}

// The boundary of stages divides attention from the experts of its layer.
TEST_F(NewerModels, WithMamba2AreWrittenForRanks) {
  MegatronSource wanted(kNewerModels / "hybrid/plain");
  const TempFolder dir;
  write_megatron(dir.path(), wanted, wanted.model(),
                 {.layout = {.tensor = 2, .pipeline = 2, .expert = 2, .padded_vocabulary = 64},
                  .tree = MegatronTree::kTransformer});
  MegatronSource got(dir.path());
  EXPECT_EQ(got.model(), wanted.model());
  expect_same(wanted, got);
  EXPECT_TRUE(fs::exists(dir.path() / "release/mp_rank_01_001_001/model_optim_rng.pt"));
}

// Moments that are twice the stored weight, and its square.
TEST_F(NewerModels, HaveTheMomentsOfTheirWeights) {
  for (const char* kind : {"dense", "hybrid"}) {
    MegatronSource source(kNewerModels / kind / "optimizer");
    source.open_optimizer();
    EXPECT_EQ(source.run().steps, 5);
    for (const CanonicalTensor& tensor : source.tensors(TensorKind::kWeight)) {
      SCOPED_TRACE(tensor.name);
      const std::vector<float> weights = values_of(source, tensor.name, tensor.shape);
      const std::vector<float> first = values_of(source, "exp_avg." + tensor.name, tensor.shape);
      const std::vector<float> second =
          values_of(source, "exp_avg_sq." + tensor.name, tensor.shape);
      const float shift = is_shifted_gain(source.model(), tensor.name) ? 1 : 0;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const float stored = weights[i] - shift;
        EXPECT_NEAR(first[i], 2 * stored, 1e-6);
        EXPECT_NEAR(second[i], stored * stored, 1e-6);
      }
    }
  }
}

// Of a model whose ranks divide what torch_dist has in parts.
TEST_F(NewerModels, AreCutAsTheirRanksHaveThem) {
  for (const char* kind : {"next", "oss", "hybrid"}) {
    SCOPED_TRACE(kind);
    MegatronSource source(kNewerModels / kind / "plain");
    const ModelConfig& model = source.model();
    const MegatronLayout stored{.padded_vocabulary = model.vocabulary, .apart_states = true};
    BoxedTensors whole;
    for (const MegatronTensor& tensor : megatron_tensors(model, stored, 0, 0, 0)) {
      const Shape& shape = tensor.assembly.shape;
      const std::int64_t columns = shape.ndim() > 1 ? shape[1] : 1;
      whole[tensor.key] = {.rows = shape[0],
                           .columns = columns,
                           .boxes = {{.rows = shape[0], .columns = columns, .stride = columns}}};
    }
    MegatronLayout layout = stored;
    layout.tensor = 2;
    layout.apart_states = false;
    const RankWeights own = weights_of_rank(whole, stored, model, layout, {.t = 1});
    for (const MegatronTensor& tensor : megatron_tensors(model, layout, 1, 0, 0)) {
      const BoxedTensor& got = own.weights.at(tensor.key);
      const Shape& shape = tensor.assembly.shape;
      EXPECT_EQ(got.rows, shape[0]) << tensor.key;
      EXPECT_EQ(got.columns, shape.ndim() > 1 ? shape[1] : 1) << tensor.key;
      std::int64_t elements = 0;
      for (const TensorBox& box : got.boxes) elements += box.rows * box.columns;
      EXPECT_EQ(elements, shape.elements()) << tensor.key;
    }
    const std::string lost =
        fmt::format("layers.{}.experts.0.fc2.weight", model.state_space ? 4 : 1);
    whole.erase(lost);
    EXPECT_EQ(
        message_of(Fault::kData, [&] { weights_of_rank(whole, stored, model, layout, {.t = 1}); }),
        "missing tensor: " + lost);
  }
}

TEST_F(NewerModels, ThatMegatronDescribesOtherwiseAreRefused) {
  EXPECT_THAT(refusal("dense", {.lists = {{"args/linear_attention_freq", {1, 0, 1, 1}}}}),
              HasSubstr("argument linear_attention_freq: got a list, wanted a number N, or a list "
                        "of 4 ones with a zero in every N-th place"));
  EXPECT_THAT(refusal("dense", {.numbers = {{"args/linear_num_value_heads", 2}}}),
              HasSubstr("layers.0.delta_rate is [4, 1], the arguments say [2]"));
  EXPECT_THAT(refusal("dense", {.dropped = {"args/experimental_attention_variant"}}),
              HasSubstr("missing tensors"));
  EXPECT_THAT(refusal("hybrid", {.dropped = {"args/hybrid_override_pattern"}}),
              HasSubstr("layers.1.mamba_start_norm.weight"));
  EXPECT_THAT(refusal("hybrid", {.numbers = {{"args/num_layers", 7}}}),
              HasSubstr("argument hybrid_override_pattern: got M-M*EM*-, wanted letters of a model "
                        "that is possible (--num-layers: got 7"));
  EXPECT_THAT(refusal("hybrid", {.numbers = {{"args/norm_epsilon", 1}}}),
              HasSubstr("argument norm_epsilon: got 1, wanted 1e-05, which the norms inside"));
  EXPECT_THAT(refusal("hybrid", {.dropped = {"args/num_experts"}}),
              HasSubstr("argument num_experts: got nothing, wanted the experts of a layer"));
  EXPECT_THAT(refusal("oss", {.dropped = {"args/yarn_rotary_scaling_factor"}}),
              HasSubstr("argument yarn_rotary_scaling_factor: got nothing, wanted a number"));
  EXPECT_THAT(refusal("oss", {.lists = {{"args/window_size", {8, 3}}}}),
              HasSubstr("argument window_size: got a list, wanted two numbers, of earlier keys"));
  EXPECT_THAT(refusal("oss", {.dropped = {"args/softmax_type"}}),
              HasSubstr("which its arguments do not mention"));
  EXPECT_THAT(refusal("oss", {.dropped = {"model/decoder.layers.0.mlp.experts.local_experts.1."
                                          "linear_fc1.bias"}}),
              HasSubstr("missing tensors (1): layers.0.experts.1.fc1.bias"));
}

TEST_F(NewerModels, WhoseHeadsTensorRanksDoNotDivideAreRefused) {
  const ModelConfig model = MegatronSource(kNewerModels / "dense/plain").model();
  const MegatronLayout layout{.tensor = 4, .padded_vocabulary = 64};
  ModelConfig narrow = model;
  narrow.groups = 4;
  EXPECT_EQ(message_of(Fault::kUsage, [&] { layout.check(narrow); }),
            "--target-tensor-parallel-size: got 4, wanted a divisor of the 2 heads of keys "
            "(--linear-num-key-heads)");
  const ModelConfig hybrid = MegatronSource(kNewerModels / "hybrid/plain").model();
  MegatronLayout ranks = layout;
  ranks.expert_tensor = 1;
  ModelConfig four = hybrid;
  four.groups = 4;
  EXPECT_EQ(message_of(Fault::kUsage, [&] { ranks.check(four); }),
            "--target-tensor-parallel-size: got 4, wanted a divisor of the 2 groups of its heads "
            "(--mamba-num-groups)");
  ranks = {.pipeline = 2, .chunks = 2, .padded_vocabulary = 64};
  EXPECT_THAT(message_of(Fault::kUsage, [&] { ranks.check(hybrid); }),
              HasSubstr("have no virtual stages"));
}

}  // namespace
}  // namespace piton
