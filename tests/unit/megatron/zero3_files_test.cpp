// Files of DeepSpeed's ZeRO-3, which DeepSpeed has written (tools/oracle/deepspeed_zero3.py): the
// weights are those of the undivided model; what is missing, of another iteration or of another
// size is refused by its name. Moments: optimizer_test.cpp.
#include "megatron/deepspeed/zero3_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "megatron/megatron_source.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/megatron/compare_sources.h"
#include "unit/megatron/edited_file.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

class Zero3 : public testing::Test {
 protected:
  static fs::path golden(const std::string& name) {
    return fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron/resume" / name;
  }
  fs::path copied(const std::string& name) {
    fs::copy(golden(name), dir_ / name, fs::copy_options::recursive);
    return dir_ / name / "global_step6";
  }
  static fs::path model(const fs::path& files, int part, int t) {
    return files / fmt::format("zero_pp_rank_{}_mp_rank_{:02}_model_states.pt", part, t);
  }
  static fs::path states(const fs::path& files, int part, int t) {
    return files / fmt::format("zero_pp_rank_{}_mp_rank_{:02}_optim_states.pt", part, t);
  }
  static std::string refusal(const fs::path& folder) {
    return message_of(Fault::kData, [&] { MegatronSource{folder}; });
  }
  static FileEdits after(std::int64_t updates) {
    FileEdits edits;
    for (int group = 0; group < 20; ++group)
      edits.numbers[fmt::format("optimizer_state_dict/optimizer_state_dict/state/{}/step", group)] =
          updates;
    return edits;
  }
  TempFolder dir_;
};

TEST_F(Zero3, WeightsAreThoseOfTheWholeModel) {
  MegatronSource wanted(golden("llama"));
  for (const char* name : {"zero3", "zero3_half"}) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(is_megatron_folder(golden(name)));
    MegatronSource got(golden(name));
    EXPECT_EQ(got.form(), "deepspeed");
    EXPECT_EQ(got.iteration(), 6);
    const bool half = std::string(name) == "zero3_half";
    EXPECT_EQ(got.layout().tensor, half ? 1 : 2);
    EXPECT_EQ(got.weight_dtype(), half ? DType::kBF16 : DType::kF32);
    expect_same(wanted, got);
    ASSERT_TRUE(got.run().schedule.has_value());
    EXPECT_EQ(got.run().schedule->position, 24);
  }
}

TEST_F(Zero3, FrozenWeightsAreInTheModelsFiles) {
  MegatronSource wanted(golden("llama"));
  MegatronSource got(golden("zero3_frozen"));
  const std::vector<CanonicalTensor> tensors = got.tensors(TensorKind::kWeight);
  std::size_t frozen = 0;
  for (CanonicalTensor tensor : tensors) {
    frozen += tensor.dtype == DType::kBF16 ? 1 : 0;
    // In the type of the frozen ones both have the same bytes.
    EXPECT_EQ(bytes_of(got, tensor), bytes_of(wanted, tensor)) << tensor.name;
  }
  EXPECT_EQ(frozen, 3U);
  EXPECT_THAT(message_of(Fault::kData, [&] { got.open_optimizer(); }),
              HasSubstr("the optimizer lacks moments (6): exp_avg.word_embeddings.weight"));

  const fs::path files = copied("zero3_frozen");
  EditedFile(model(files, 1, 0), {.lengths = {{"frozen_param_fragments/"
                                               "embedding.word_embeddings.weight",
                                               7}}});
  EXPECT_THAT(refusal(files), HasSubstr("has [7, 1] elements of bf16, wanted 1024 in each of 2"));
  EditedFile(model(files, 1, 0),
             {.dropped = {"frozen_param_fragments/embedding.word_embeddings.weight"}});
  EXPECT_THAT(refusal(files),
              HasSubstr("has no frozen_param_fragments of embedding.word_embeddings.weight"));
  EditedFile(model(files, 1, 0), {.dropped = {"frozen_param_fragments"}});
  EXPECT_THAT(refusal(files), HasSubstr("1 of 2 files have frozen_param_fragments"));
}

TEST_F(Zero3, FilesThatAreMissingAreNamed) {
  const fs::path files = copied("zero3");
  fs::remove(states(files, 1, 1));
  fs::remove(model(files, 2, 0));
  EXPECT_THAT(refusal(files), AllOf(HasSubstr("2 of 12 files are missing: "),
                                    HasSubstr("zero_pp_rank_2_mp_rank_00_model_states.pt"),
                                    HasSubstr("zero_pp_rank_1_mp_rank_01_optim_states.pt")));
  for (int t = 0; t < 2; ++t) {
    for (int part = 1; part < 3; ++part) {
      fs::remove(model(files, part, t));
      fs::remove(states(files, part, t));
    }
  }
  EXPECT_THAT(refusal(files), HasSubstr("8 of 12 files are missing: ")) << "by partition_count";
  fs::remove(states(files, 0, 0));
  fs::remove(states(files, 0, 1));
  EXPECT_THAT(refusal(files), HasSubstr("2 of 4 files are missing: "));
}

// As files of ZeRO 1 and 2 do, for each group.
TEST_F(Zero3, PartsMayBeCountedInAList) {
  const fs::path files = copied("zero3");
  const auto count = [&](std::int64_t parts) {
    for (int t = 0; t < 2; ++t) {
      for (int part = 0; part < 3; ++part) {
        EditedFile(states(files, part, t),
                   {.lists = {{"optimizer_state_dict/partition_count", {parts, parts}}}});
      }
    }
  };
  count(3);
  MegatronSource wanted(golden("llama"));
  MegatronSource got(files);
  expect_same(wanted, got);
  count(2);
  EXPECT_THAT(refusal(files), HasSubstr("partition_count is 2, but there are 3 files"));
}

TEST_F(Zero3, FilesOfAnotherIterationAreNamed) {
  const fs::path files = copied("zero3");
  EditedFile(states(files, 2, 1), after(7));
  EXPECT_THAT(refusal(files),
              AllOf(HasSubstr("zero_pp_rank_2_mp_rank_01_optim_states.pt: after 7 updates, and "),
                    HasSubstr("zero_pp_rank_0_mp_rank_00_optim_states.pt after 6")));
  for (int t = 0; t < 2; ++t) {
    for (int part = 0; part < 3; ++part) EditedFile(states(files, part, t), after(7));
  }
  EXPECT_THAT(refusal(files), AllOf(HasSubstr("is after 7 updates, and "),
                                    HasSubstr("_model_states.pt after 6: are they of one")));
  EditedFile(model(files, 1, 1), {.numbers = {{"iteration", 5}}});
  EXPECT_THAT(refusal(files),
              HasSubstr("zero_pp_rank_1_mp_rank_01_model_states.pt: iteration is 5, "
                        "and 6 in "));
}

TEST_F(Zero3, SizesThatContradictAreRefused) {
  const fs::path files = copied("zero3");
  const std::string optimizer = "optimizer_state_dict/";
  EditedFile(states(files, 1, 0), {.lengths = {{optimizer + "fp32_flat_groups/0", 20}}});
  EXPECT_THAT(
      refusal(files),
      AllOf(HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt: the vectors of its groups "
                      "have "),
            HasSubstr(": is it of another model?")));
  EditedFile(states(files, 1, 0), {.numbers = {{optimizer + "partition_count", 4}}});
  EXPECT_THAT(refusal(files), HasSubstr("partition_count is 4, but there are 3 files"));
  EditedFile(states(files, 1, 0), {.numbers = {{optimizer + "partition_count", 3}},
                                   .dropped = {optimizer + "fp32_flat_groups"}});
  EXPECT_THAT(refusal(files), HasSubstr("has no list fp32_flat_groups, wanted a file of ZeRO-3"));

  const fs::path half = copied("zero3_half");
  const std::string shapes = "param_shapes/0/embedding.word_embeddings.weight/0";
  const fs::path first = half / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt";
  EditedFile(first, {.dropped = {optimizer + "optimizer_state_dict/state/1/exp_avg"}});
  EXPECT_THAT(message_of(Fault::kData, [&] { MegatronSource(half).open_optimizer(); }),
              HasSubstr("has no exp_avg of group 1"));
  for (const std::int64_t rows : {std::int64_t{64}, std::int64_t{1} << 30}) {
    EditedFile(model(half, 0, 0), {.numbers = {{shapes, rows}}});
    EXPECT_THAT(refusal(half), HasSubstr(": is it of another model?"));
  }
  EditedFile(model(half, 0, 0), {.numbers = {{shapes, -1}}});
  EXPECT_THAT(refusal(half), HasSubstr("param_shapes has no names and sizes of weights"));
  EditedFile(model(half, 0, 0), {.dropped = {"param_shapes"}});
  EXPECT_THAT(refusal(half), HasSubstr("has no list param_shapes"));
}

}  // namespace
}  // namespace piton
