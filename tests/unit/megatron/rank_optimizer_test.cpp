// Optimizers in files of data-parallel ranks (tools/oracle/megatron_shares.py): what is missing, of
// another update or of another length is refused by its name. Their contents: optimizer_test.cpp.
#include "megatron/ranks/rank_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/files/files.h"
#include "megatron/megatron_source.h"
#include "megatron/ranks/master_weights.h"
#include "pickle/torch_writer.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/megatron/compare_sources.h"
#include "unit/megatron/edited_file.h"
#include "unit/megatron/param_groups.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class DataParallelShares : public testing::Test {
 protected:
  // The folder of its files.
  fs::path copied(const std::string& name) {
    fs::copy(fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron/resume" / name, dir_ / name,
             fs::copy_options::recursive);
    return dir_ / name / "iter_0000006";
  }
  static std::string refusal(const fs::path& folder) {
    return message_of(Fault::kData, [&] { MegatronSource(folder).open_optimizer(); });
  }
  TempFolder dir_;
};

TEST_F(DataParallelShares, ThatAreMissingAreNamed) {
  const fs::path files = copied("shares");
  fs::remove_all(files / "mp_rank_01_001");
  EXPECT_THAT(refusal(files), HasSubstr("1 of 3 files of the optimizer's data-parallel ranks are "
                                        "missing: mp_rank_01_001/optim.pt; copy them too"));
  // The weights are there.
  EXPECT_THAT(MegatronSource(files).notes().back(), HasSubstr("optimizer's state stays behind"));
  for (int t = 0; t < 2; ++t) fs::remove_all(files / fmt::format("mp_rank_{:02}_002", t));
  EXPECT_THAT(refusal(files), HasSubstr("missing: mp_rank_00_002/optim.pt")) << "by the arguments";
  const fs::path stages = copied("shares_gpt");
  fs::remove_all(stages / "mp_rank_00_001_001");
  EXPECT_THAT(refusal(stages), HasSubstr("missing: mp_rank_00_001_001/optim.pt"));
  fs::remove_all(stages / "mp_rank_00_001");
  EXPECT_THAT(refusal(stages), HasSubstr("1 of 4 ranks are missing: mp_rank_00_001; copy them"));
}

TEST_F(DataParallelShares, OfAnotherUpdateOrIterationAreNamed) {
  const fs::path files = copied("shares_half");
  const FileEdits later{.numbers = {{"optimizer/optimizer/param_groups/0/step", 7},
                                    {"optimizer/optimizer/param_groups/1/step", 7}}};
  EditedFile(files / "mp_rank_00_001/optim.pt", later);
  EXPECT_THAT(refusal(files),
              AllOf(HasSubstr("no fp32 copies of the bf16 weights are found in the optimizer ("),
                    HasSubstr("mp_rank_00_001/optim.pt: after 7 updates, and "),
                    HasSubstr("mp_rank_00_000/optim.pt after 6: are the files of one iteration?")));
  const fs::path ranks = copied("shares");
  for (int part = 0; part < 3; ++part)
    EditedFile(ranks / fmt::format("mp_rank_01_{:03}/optim.pt", part), later);
  EXPECT_THAT(refusal(ranks), HasSubstr("2 counts of updates (6, 7), wanted one"));
  EditedFile(ranks / "mp_rank_01/model_rng.pt", {.numbers = {{"iteration", 7}}});
  EXPECT_THAT(refusal(ranks), AllOf(HasSubstr("mp_rank_01/model_rng.pt: iteration: got 7, but "),
                                    HasSubstr("mp_rank_00/model_rng.pt has 6")));
}

TEST_F(DataParallelShares, OfOtherLengthsAreRefused) {
  const fs::path files = copied("shares");
  const fs::path share = files / "mp_rank_00_001/optim.pt";
  const auto first = static_cast<std::int64_t>(TorchFile(share)
                                                   .root()
                                                   .find("optimizer")
                                                   ->find("optimizer")
                                                   ->find("state")
                                                   ->pairs[0]
                                                   .second->find("exp_avg")
                                                   ->tensor.shape[0]);
  EditedFile(share, {.dropped = {"optimizer/optimizer/state/0/exp_avg_sq"}});
  EXPECT_THAT(refusal(files), HasSubstr("has no exp_avg_sq of the optimizer's parameter 0"));
  EditedFile(share, {.lengths = {{"optimizer/optimizer/state/0/exp_avg", first - 1}}});
  EXPECT_THAT(
      refusal(files),
      AllOf(HasSubstr("mp_rank_00_001/optim.pt: exp_avg of the optimizer's parameter 0 has "),
            HasSubstr(fmt::format("{} elements, wanted {} of ", first - 1, first)),
            HasSubstr("(one of 3 data-parallel ranks)")));
  fs::remove(share);
  fs::copy_file(files / "mp_rank_00_000/optim.pt", share);
  EXPECT_THAT(refusal(files),
              AllOf(HasSubstr("mp_rank_00_001/optim.pt: params has ["),
                    HasSubstr("of one of 3 data-parallel ranks: is a rank missing")));
  fs::resize_file(share, fs::file_size(share) / 2);
  EXPECT_THAT(refusal(files), HasSubstr("mp_rank_00_001/optim.pt: "));

  const fs::path half = copied("shares_half");
  EditedFile(half / "mp_rank_00_002/optim.pt",
             {.lengths = {{"optimizer/shard_fp32_from_float16_groups/0/0", 3}}});
  EXPECT_THAT(refusal(half),
              HasSubstr("shard_fp32_from_float16_groups, 0 has 3 elements, wanted "));
  EditedFile(half / "mp_rank_00_002/optim.pt", {.dropped = {"optimizer"}});
  EXPECT_THAT(refusal(half), HasSubstr("mp_rank_00_002/optim.pt: has no \"optimizer\""));
}

TEST_F(DataParallelShares, AreOfAsManyRanksAsTheArgumentsSay) {
  const FileEdits two{.numbers = {{"args/data_parallel_size", 2}}};
  const fs::path files = copied("shares_half");
  EditedFile(files / "mp_rank_00/model_rng.pt", two);
  EXPECT_THAT(refusal(files), HasSubstr("has optim.pt of data-parallel rank 2, but the arguments "
                                        "say data_parallel_size 2"));
  const fs::path one = copied("shares_one");
  EditedFile(one / "mp_rank_00/model_optim_rng.pt", two);
  EXPECT_THAT(refusal(one), HasSubstr("keeps the optimizer of data-parallel rank 0 of 2 alone"));
}

// mp_rank_TT_NNN is both the name of a stage and of a data-parallel rank.
TEST_F(DataParallelShares, AreNotTakenForStages) {
  EXPECT_EQ(MegatronSource(copied("shares")).layout().pipeline, 1);
  const fs::path files = copied("shares_gpt");
  fs::copy(files / "mp_rank_00_000_000", files / "mp_rank_00_002");
  EXPECT_THAT(refusal(files),
              HasSubstr("mp_rank_00_002 has optim.pt of a model without stages, but "
                        "there are stages (mp_rank_00_000)"));
  fs::remove_all(files / "mp_rank_00_002");
  fs::copy_file(files / "mp_rank_00_000_000/optim.pt", files / "mp_rank_00_001/optim.pt");
  EXPECT_THAT(refusal(files), HasSubstr("mp_rank_00_001: has the model of a stage, and optim.pt of "
                                        "a data-parallel rank"));
}

// Writes an optimizer of vectors whose elements are `values`, in groups.
class MadeShares : public testing::Test {
 protected:
  using Floats = std::vector<float>;
  const TorchFile* write(const std::vector<std::vector<Floats>>& groups) {
    const fs::path path = dir_ / fmt::format("{}.pt", files_.size());
    TorchWriter out(path);
    out.begin_dict();
    out.text("optimizer");
    out.begin_dict();
    out.text("state");
    out.begin_dict();
    std::int64_t number = 0;
    for (const auto& group : groups) {
      for (const Floats& floats : group) {
        out.integer(number++);
        out.begin_dict();
        for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
          out.text(kind);
          out.tensor("F32", std::vector<std::int64_t>{std::ssize(floats)});
        }
        out.end_dict();
      }
    }
    out.end_dict();
    test::write_param_groups(out, groups);
    out.end_dict();
    out.end_dict();
    for (const auto& group : groups) {
      for (const Floats& floats : group) {
        for (int kind = 0; kind < 2; ++kind) out.append(std::as_bytes(std::span(floats)));
      }
    }
    out.commit();
    return files_.emplace_back(std::make_unique<TorchFile>(path)).get();
  }
  static Floats numbers(int first, int last) {
    Floats floats(static_cast<std::size_t>(last - first));
    std::iota(floats.begin(), floats.end(), static_cast<float>(first));
    return floats;
  }
  // All elements, row by row.
  static Floats elements(const BoxedTensor& tensor) {
    Floats floats(static_cast<std::size_t>(tensor.rows * tensor.columns));
    for (const TensorBox& box : tensor.boxes) {
      for (std::int64_t row = 0; row < box.rows; ++row) {
        const std::int64_t at = (box.row + row) * tensor.columns + box.column;
        box.file->read_at(
            box.offset + 4 * row * box.stride,
            std::as_writable_bytes(std::span(floats).subspan(
                static_cast<std::size_t>(at), static_cast<std::size_t>(box.columns))));
      }
    }
    return floats;
  }

  TempFolder dir_;
  std::vector<std::unique_ptr<TorchFile>> files_;
  BoxedTensor norm_{.rows = 4, .columns = 1};
  BoxedTensor a_{.rows = 3, .columns = 4};
  BoxedTensor c_{.rows = 5, .columns = 4};
  BoxedTensor d_{.rows = 5, .columns = 1};
};

// The first chunk has the norm and a: a in elements 0 to 11 of its buffer, the norm behind it. In
// the second d is before c. Two ranks have 8 of 16 elements, and 13 of 25.
TEST_F(MadeShares, AreCutInEachChunkByItself) {
  const TorchFile* first = write({{numbers(0, 8), numbers(0, 8)}, {numbers(0, 5)}});
  const TorchFile* second = write({{numbers(8, 12), numbers(8, 20)}, {numbers(0, 4)}});
  const std::vector<OrderedWeights> chunks{{{"norm", &norm_}, {"a", &a_}},
                                           {{"c", &c_}, {"d", &d_}}};
  const std::vector<BoxedMoments> moments = RankOptimizer({first, second}).moments(chunks);
  ASSERT_EQ(moments.size(), 2U);
  EXPECT_EQ(elements(moments[0].first.at("a")), numbers(0, 12));
  EXPECT_EQ(elements(moments[0].first.at("norm")), numbers(0, 4));
  EXPECT_EQ(elements(moments[1].first.at("c")), numbers(0, 20));
  EXPECT_EQ(elements(moments[1].second.at("d")), numbers(0, 5));
  EXPECT_EQ(moments[0].first.size(), 2U);
  // In the other order they are of other lengths, and one alone has not all.
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           RankOptimizer({second, first}).moments(chunks);
                         }),
              HasSubstr("0 has 4 elements, wanted 8 of a (one of 2 data-parallel ranks)"));
  EXPECT_THAT(message_of(Fault::kData, [&] { RankOptimizer({first}).moments(chunks); }),
              HasSubstr("params has [2, 1] entries, wanted [2, 2]"));
}

// A router in fp32 among weights of 16 bits is trained itself.
TEST_F(MadeShares, OfCopiesAreThoseOfNarrowWeightsAlone) {
  const fs::path path = dir_ / "copies.pt";
  TorchWriter out(path);
  out.begin_list();
  out.begin_list();
  for (const BoxedTensor* one : {&a_, &c_})
    out.tensor("F32", std::vector<std::int64_t>{one->rows, one->columns});
  out.end_list();
  out.end_list();
  const Floats values = numbers(0, 32);
  out.append(std::as_bytes(std::span(values)));
  out.commit();
  const TorchFile file(path);
  const BoxedTensor router{.dtype = DType::kF32, .rows = 3, .columns = 4};
  a_.dtype = c_.dtype = DType::kBF16;
  const BoxedTensors copies =
      masters_of_groups(file, file.root(), {{{"a", &a_}, {"router", &router}, {"c", &c_}}}, 0);
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(elements(copies.at("a")), numbers(0, 12));
  EXPECT_EQ(elements(copies.at("c")), numbers(12, 32));
}

}  // namespace
}  // namespace piton
