// Files of expert ranks: those of Megatron-core's own modules (tools/oracle/megatron_experts.py),
// those that are written, and errors for damaged ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "huggingface/hf_source.h"
#include "megatron/megatron_source.h"
#include "megatron/megatron_writer.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/megatron/compare_sources.h"
#include "unit/megatron/edited_file.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const fs::path kGolden = fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron/experts";
constexpr const char* kFile = "model_optim_rng.pt";

TEST(ExpertRanks, OfMegatronCoreHaveTheWeightsOfOneProcess) {
  MegatronSource wanted(kGolden / "plain");
  struct Division {
    const char* name;
    int tensor, pipeline, expert, expert_tensor;
  };
  for (const Division& one : {Division{"experts", 1, 1, 2, 1}, Division{"divided", 2, 2, 2, 2},
                              Division{"whole-experts", 2, 1, 2, 1},
                              Division{"transformer", 1, 1, 2, 1}, Division{"dist", 1, 1, 2, 0}}) {
    SCOPED_TRACE(one.name);
    MegatronSource got(kGolden / one.name);
    EXPECT_EQ(got.layout().tensor, one.tensor);
    EXPECT_EQ(got.layout().pipeline, one.pipeline);
    EXPECT_EQ(got.layout().expert, one.expert);
    EXPECT_EQ(got.layout().expert_tensor, one.expert_tensor);
    EXPECT_EQ(got.model(), wanted.model());
    expect_same(wanted, got);
  }
}

class DamagedExpertRanks : public testing::Test {
 protected:
  void SetUp() override { fs::copy(kGolden / "experts", folder(), fs::copy_options::recursive); }

  fs::path folder() const { return dir_ / "experts"; }
  fs::path file(int rank) const { return folder() / fmt::format("mp_rank_00_{:03}", rank) / kFile; }
  std::string refusal() const {
    return message_of(Fault::kData, [&] { MegatronSource{folder()}; });
  }

  TempFolder dir_;
};

TEST_F(DamagedExpertRanks, ThatAreMissingAreNamed) {
  fs::remove_all(folder() / "mp_rank_00_001");
  EXPECT_THAT(refusal(), HasSubstr("1 of 2 ranks are missing: mp_rank_00_001; copy them too"));
  fs::remove_all(folder());
  fs::copy(kGolden / "divided", folder(), fs::copy_options::recursive);
  fs::remove_all(folder() / "mp_rank_01_000_001");
  EXPECT_THAT(refusal(), HasSubstr("1 of 8 ranks are missing: mp_rank_01_000_001; copy them too"));
}

TEST_F(DamagedExpertRanks, WithAGapAreMissing) {
  fs::rename(folder() / "mp_rank_00_001", folder() / "mp_rank_00_002");
  EXPECT_THAT(refusal(), HasSubstr("1 of 3 ranks are missing: mp_rank_00_001; copy them too"));
}

TEST_F(DamagedExpertRanks, ThatAreMoreThanTheArgumentsSayAreRefused) {
  fs::copy(folder() / "mp_rank_00_001", folder() / "mp_rank_00_002", fs::copy_options::recursive);
  EXPECT_THAT(refusal(), HasSubstr("argument expert_model_parallel_size: got 2, but the files are "
                                   "of 3"));
}

TEST_F(DamagedExpertRanks, OfOtherNumbersOfExpertsAreRefused) {
  const std::string expert = "model/decoder.layers.1.mlp.experts.local_experts.1.";
  EditedFile(file(1), {.dropped = {expert + "linear_fc1.weight", expert + "linear_fc2.weight"}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("mp_rank_00_001/model_optim_rng.pt: has 1 experts of a "
                                         "layer, and "),
                               HasSubstr("mp_rank_00_000/model_optim_rng.pt has 2: are they of one "
                                         "model?")));
}

TEST_F(DamagedExpertRanks, WithoutATensorAreNamed) {
  EditedFile(file(1),
             {.dropped = {"model/decoder.layers.1.mlp.experts.local_experts.1.linear_fc2.weight"}});
  EXPECT_THAT(refusal(), HasSubstr("mp_rank_00_001/model_optim_rng.pt: has no "
                                   "layers.1.experts.1.fc2.weight, which "));
  fs::copy_file(kGolden / "experts/mp_rank_00_001" / kFile, file(1),
                fs::copy_options::overwrite_existing);
  EditedFile(file(0), {.dropped = {"model/decoder.layers.0.input_layernorm.weight"}});
  EXPECT_THAT(refusal(), HasSubstr("mp_rank_00_000/model_optim_rng.pt: has no "
                                   "layers.0.input_norm.weight, which "));
}

TEST_F(DamagedExpertRanks, ThatDoNotDivideTheExpertsAreRefused) {
  for (const int rank : {0, 1}) EditedFile(file(rank), {.numbers = {{"args/num_experts", 5}}});
  EXPECT_THAT(refusal(), HasSubstr("got 2, wanted a divisor of the 5 experts of a layer"));
}

TEST_F(DamagedExpertRanks, WithExpertsSplitFurtherThanTheOthersAreRefused) {
  for (const int rank : {0, 1})
    EditedFile(file(rank), {.numbers = {{"args/expert_tensor_parallel_size", 2}}});
  EXPECT_THAT(refusal(), HasSubstr("argument expert_tensor_parallel_size: got 2, wanted a divisor "
                                   "of the 1 tensor ranks"));
}

// Megatron-core chains two optimizers: one of experts, one of all else.
TEST_F(DamagedExpertRanks, WithAnOptimizerKeepTheirWeights) {
  for (const int rank : {0, 1}) {
    EditedFile(file(rank), {.renamed = {{"iteration", "optimizer"}}, .lists = {{"iteration", {}}}});
  }
  MegatronSource wanted(kGolden / "plain");
  MegatronSource got(folder());
  expect_same(wanted, got);
  EXPECT_THAT(message_of(Fault::kData, [&] { got.open_optimizer(); }),
              HasSubstr("wanted a list of two optimizers, that of the experts and before it that "
                        "of all else"));
}

// Their contents: foreign_resume_test.cpp.
TEST(OptimizersOfExpertRanks, ThatMissAPartAreRefused) {
  const fs::path golden = fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron/resume";
  const TempFolder dir;
  const auto copied = [&](const char* name) {
    fs::copy(golden / name, dir / name, fs::copy_options::recursive);
    return dir / name / "iter_0000006";
  };
  const auto refusal = [](const fs::path& folder) {
    return message_of(Fault::kData, [&] { MegatronSource(folder).open_optimizer(); });
  };
  const fs::path groups = copied("experts_groups");
  EditedFile(groups / "mp_rank_00_001/model_optim_rng.pt", {.dropped = {"optimizer/1/state"}});
  EXPECT_THAT(refusal(groups),
              HasSubstr("mp_rank_00_001/model_optim_rng.pt: has no state of an optimizer"));
  const fs::path buffer = copied("experts_buffer");
  fs::remove(buffer / "mp_rank_00_001/distrib_optim.pt");
  EXPECT_THAT(refusal(buffer),
              HasSubstr("mp_rank_00_001/model_optim_rng.pt: has no state of an optimizer"));
  fs::copy(buffer / "mp_rank_00_000/distrib_optim.pt", buffer / "mp_rank_00_001/distrib_optim.pt");
  EXPECT_THAT(refusal(buffer),
              HasSubstr("mp_rank_00_001/distrib_optim.pt: its copies of the weights are not those "
                        "of "));
}

TEST(ExpertRanks, AreWrittenForEveryDivision) {
  const TempFolder dir;
  HfSource wanted(fs::path(PITON_SOURCE_DIR) / "tests/golden/huggingface/mixtral");
  MegatronWriteOptions options{.layout = {.tensor = 2, .pipeline = 2, .expert = 5},
                               .tree = MegatronTree::kCore,
                               .arguments = true};
  options.layout.padded_vocabulary =
      megatron_padded_vocabulary(wanted.model().vocabulary, 16, options.layout.tensor);
  options.layout.check(wanted.model());
  write_megatron(dir.path(), wanted, wanted.model(), options);
  MegatronSource got(dir.path());
  EXPECT_EQ(got.layout().expert, 5);
  expect_same(wanted, got);

  const TorchFile file(dir / "release/mp_rank_01_001_003" / kFile);
  const PickleValue& weights = *file.root().find("model");
  const std::string experts = "decoder.layers.0.mlp.experts.local_experts.";
  EXPECT_NE(weights.find((experts + "0.linear_fc1.weight").c_str()), nullptr);
  EXPECT_EQ(weights.find((experts + "1.linear_fc1.weight").c_str()), nullptr);
  EXPECT_NE(weights.find("decoder.final_layernorm.weight"), nullptr);
  const PickleValue* said = file.root().find(kMegatronArguments);
  ASSERT_NE(said, nullptr);
  EXPECT_EQ(said->find("expert_model_parallel_size")->integer, 5);
  EXPECT_EQ(said->find("expert_tensor_parallel_size")->integer, 2);

  options.layout.expert = 2;
  EXPECT_EQ(message_of(Fault::kUsage, [&] { options.layout.check(wanted.model()); }),
            "--target-expert-parallel-size: got 2, wanted a divisor of the 5 experts of a layer");
}

TEST(Experts, AreWrittenAsTorchDist) {
  const TempFolder dir;
  HfSource mixtral(fs::path(PITON_SOURCE_DIR) / "tests/golden/huggingface/mixtral");
  MegatronSource mixed(kGolden / "plain");  // its first layer has no experts
  const auto written = [&](TensorSource& wanted, const ModelConfig& model, MegatronTree tree) {
    MegatronWriteOptions options{.layout = {.expert = 2},
                                 .form = MegatronForm::kTorchDist,
                                 .tree = tree,
                                 .max_file_bytes = 20'000};
    options.layout.padded_vocabulary = megatron_padded_vocabulary(model.vocabulary, 16, 1);
    const fs::path folder = dir / fmt::format("{}-{}", model.vocabulary, static_cast<int>(tree));
    fs::create_directories(folder);
    write_megatron(folder, wanted, model, options);
    MegatronSource got(folder);
    EXPECT_EQ(got.layout().expert, 2);
    expect_same(wanted, got);
    return read_text_file(folder / "release/.metadata");
  };
  const std::string alike = written(mixtral, mixtral.model(), MegatronTree::kTransformer);
  EXPECT_THAT(alike, HasSubstr("decoder.layers.mlp.experts.experts.linear_fc1.weight"));
  EXPECT_THAT(alike, HasSubstr("mlp.experts.experts.linear_fc2._extra_state/shard_1.4_2.5"));
  EXPECT_THAT(alike, HasSubstr("decoder.layers.pre_mlp_layernorm.weight"));
  const std::string own = written(mixtral, mixtral.model(), MegatronTree::kCore);
  EXPECT_THAT(own, HasSubstr("decoder.layers.mlp.linear_fc1.layer_norm_weight"));
  const std::string other = written(mixed, mixed.model(), MegatronTree::kTransformer);
  EXPECT_THAT(other, HasSubstr("decoder.layers.1.mlp.experts.experts.linear_fc1.weight"));
  EXPECT_THAT(other, HasSubstr("1.mlp.experts.experts.linear_fc2._extra_state/shard_3_4"));
  EXPECT_THAT(other, HasSubstr("decoder.layers.0.mlp.linear_fc1.layer_norm_weight"));
}

TEST(Experts, KeepTheirBiasesOfTheChoice) {
  const TempFolder dir;
  HfSource wanted(fs::path(PITON_SOURCE_DIR) / "tests/golden/huggingface/glm4-moe");
  ModelConfig model = wanted.model();
  model.experts->bias_rate = 0.25;
  EXPECT_NE(model_in_megatron(model).experts, model.experts);  // of groups it sums two scores
  model.experts->groups.largest = model.experts->choices / model.experts->groups.chosen;
  EXPECT_EQ(model_in_megatron(model).experts, model.experts);
  MegatronWriteOptions options{.layout = {.expert = 4}, .tree = MegatronTree::kCore};
  options.layout.padded_vocabulary = megatron_padded_vocabulary(model.vocabulary, 16, 1);
  write_megatron(dir.path(), wanted, model, options);
  MegatronSource got(dir.path());
  EXPECT_EQ(got.model().experts, model.experts);
  expect_same(wanted, got);
  const TorchFile file(dir / "release/mp_rank_00_002" / kFile);
  EXPECT_NE(file.root().find("model")->find("decoder.layers.1.mlp.router.expert_bias"), nullptr);

  const TempFolder half;
  options.dtype = DType::kBF16;
  write_megatron(half.path(), wanted, model, options);
  MegatronSource narrow(half.path());
  for (const CanonicalTensor& one : narrow.tensors(TensorKind::kWeight)) {
    const bool bias = one.name.ends_with("router.bias");
    EXPECT_EQ(one.dtype, bias ? DType::kF32 : DType::kBF16) << one.name;
  }
}

}  // namespace
}  // namespace piton
