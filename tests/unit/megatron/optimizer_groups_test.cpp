// The optimizers of Megatron's checkpoints: golden ones (tools/oracle/megatron_resume.py,
// megatron_flat_states.py, megatron_shares.py, deepspeed_zero3.py) have the same moments in every
// form; those of other models, or damaged ones, are refused.
#include "megatron/format/optimizer_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/files/files.h"
#include "megatron/megatron_source.h"
#include "megatron/ranks/optimizer_buffer.h"
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

fs::path golden_run(const std::string& name) {
  return fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron/resume" / name;
}

std::string refusal_of(const fs::path& folder) {
  return message_of(Fault::kData, [&] { MegatronSource(folder).open_optimizer(); });
}

// Moments, and copies of 16-bit weights.
void expect_same_states(MegatronSource& wanted, MegatronSource& got) {
  const std::vector<CanonicalTensor> all = wanted.tensors(TensorKind::kOptimizer);
  EXPECT_GT(all.size(), 10U);
  for (const CanonicalTensor& tensor : all)
    EXPECT_EQ(bytes_of(got, tensor), bytes_of(wanted, tensor)) << tensor.name;
}

TEST(MegatronOptimizer, HasTheSameMomentsInEveryForm) {
  MegatronSource wanted(golden_run("llama"));
  EXPECT_TRUE(wanted.tensors(TensorKind::kOptimizer).empty()) << "not opened yet";
  wanted.open_optimizer();
  EXPECT_EQ(wanted.run().steps, 6);
  EXPECT_EQ(wanted.run().iteration, 6);
  EXPECT_EQ(wanted.run().consumed_samples, 24);
  for (const char* name : {"buffer", "half", "zero", "flat", "buckets", "shares", "shares_half",
                           "shares_one", "zero3", "zero3_half"}) {
    SCOPED_TRACE(name);
    MegatronSource got(golden_run(name));
    got.open_optimizer();
    EXPECT_EQ(got.run().steps, 6);
    EXPECT_EQ(got.run().iteration, 6);
    EXPECT_EQ(got.run().consumed_samples, 24);
    expect_same_states(wanted, got);
  }
}

// 36 experts of two ranks, whose first matrices are all before the second ones
// (tools/oracle/megatron_experts_resume.py).
TEST(MegatronOptimizer, OfManyExpertsIsFoundInTheOrderOfGroups) {
  MegatronSource got(golden_run("many_buckets"));
  EXPECT_EQ(got.weight_dtype(), DType::kBF16);
  got.open_optimizer();
  EXPECT_EQ(got.run().steps, 6);
  EXPECT_EQ(got.layout().expert, 2);
  // The copies are where the moments are.
  std::set<std::vector<std::byte>> moments;
  for (const CanonicalTensor& tensor : got.tensors(TensorKind::kOptimizer))
    moments.insert(bytes_of(got, tensor));
  EXPECT_GE(std::ssize(moments), 2 * 36 * 3) << "each has its own";
}

TEST(MegatronOptimizer, OfStagesHasTheSameMomentsInFilesOfDataParallelRanks) {
  MegatronSource wanted(golden_run("gpt"));
  MegatronSource got(golden_run("shares_gpt"));
  wanted.open_optimizer();
  got.open_optimizer();
  EXPECT_EQ(got.layout().tensor, 2);
  EXPECT_EQ(got.layout().pipeline, 2);
  EXPECT_EQ(got.run().steps, 6);
  ASSERT_TRUE(got.run().schedule.has_value());
  EXPECT_EQ(got.run().schedule->position, 24);
  expect_same(wanted, got);
  expect_same_states(wanted, got);
}

TEST(MegatronOptimizer, HasTheCopiesOfNarrowWeights) {
  MegatronSource wanted(golden_run("llama"));
  for (const char* name : {"half", "flat", "buckets", "shares_half", "shares_one", "zero3_half"}) {
    SCOPED_TRACE(name);
    MegatronSource half(golden_run(name));
    EXPECT_EQ(half.weight_dtype(), DType::kBF16);
    half.open_optimizer();
    std::size_t copies = 0;
    for (CanonicalTensor tensor : half.tensors(TensorKind::kOptimizer)) {
      if (!tensor.name.starts_with("main.")) continue;
      const std::vector<std::byte> copy = bytes_of(half, tensor);
      tensor.name = tensor.name.substr(5);
      EXPECT_EQ(copy, bytes_of(wanted, tensor)) << tensor.name;
      ++copies;
    }
    EXPECT_EQ(copies, wanted.tensors(TensorKind::kWeight).size());
  }
}

class MegatronOptimizerFiles : public testing::Test {
 protected:
  fs::path copied(const std::string& name) {
    fs::copy(golden_run(name), dir_ / name, fs::copy_options::recursive);
    return dir_ / name;
  }
  TempFolder dir_;
};

TEST_F(MegatronOptimizerFiles, ThatAreCutOrOfAnotherRankAreRefused) {
  const fs::path cut = copied("buffer");
  const fs::path file = cut / "iter_0000006/mp_rank_01/distrib_optim.pt";
  fs::resize_file(file, fs::file_size(file) / 2);
  EXPECT_THAT(message_of(Fault::kData, [&] { MegatronSource{cut}; }),
              HasSubstr("mp_rank_01/distrib_optim.pt: "));
  fs::copy_file(cut / "iter_0000006/mp_rank_00/distrib_optim.pt", file,
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal_of(cut), HasSubstr("its copies of the weights are not those of "));
  fs::remove(file);
  fs::remove(cut / "iter_0000006/mp_rank_00/distrib_optim.pt");
  EXPECT_THAT(refusal_of(cut), HasSubstr("has no state of an optimizer"));
}

TEST_F(MegatronOptimizerFiles, OfZeroWithoutAPartOrOfAnotherRankAreRefused) {
  const fs::path parts = copied("zero") / "global_step6";
  const auto part = [&](int number, int rank) {
    return parts / fmt::format("zero_pp_rank_{}_mp_rank_{:02}_optim_states.pt", number, rank);
  };
  fs::remove(part(1, 1));
  EXPECT_THAT(refusal_of(dir_ / "zero"),
              HasSubstr("has no zero_pp_rank_1_mp_rank_01_optim_states.pt; copy it too"));
  fs::remove(part(2, 1));
  fs::remove(part(1, 0));
  fs::remove(part(2, 0));
  EXPECT_THAT(refusal_of(dir_ / "zero"),
              AllOf(HasSubstr("exp_avg of group 0 ends before "), HasSubstr("; is it of ")));
  fs::remove(part(0, 0));
  fs::remove(part(0, 1));
  EXPECT_THAT(refusal_of(dir_ / "zero"), HasSubstr("keeps no optimizer"));
}

// ZeRO 1 with weights in bf16: the parts of the optimizer have the copies in fp32.
TEST_F(MegatronOptimizerFiles, OfZeroHaveTheCopiesOfNarrowWeights) {
  const fs::path half = copied("zero");
  for (int t = 0; t < 2; ++t) {
    EditedFile(half / fmt::format("global_step6/mp_rank_{:02}_model_states.pt", t),
               {.narrowed = "module"});
  }
  MegatronSource wanted(golden_run("zero"));
  MegatronSource got(half);
  EXPECT_EQ(got.weight_dtype(), DType::kBF16);
  expect_same(wanted, got);
}

// The head has no separate copy, the other weights have: those of another rank are not taken.
TEST_F(MegatronOptimizerFiles, OfZeroAndATiedHeadAreThoseOfTheWeights) {
  const fs::path files = copied("zero") / "global_step6";
  for (int t = 0; t < 2; ++t) {
    EditedFile(
        files / fmt::format("mp_rank_{:02}_model_states.pt", t),
        {.dropped = {"args/untie_embeddings_and_output_weights", "module/output_layer.weight"},
         .narrowed = "module"});
  }
  MegatronSource untied(golden_run("zero"));
  const auto same = [&](MegatronSource& tied) {
    EXPECT_TRUE(tied.model().tied);
    int count = 0;
    for (CanonicalTensor tensor : tied.tensors(TensorKind::kWeight)) {
      tensor.dtype = DType::kF32;
      count += bytes_of(tied, tensor) == bytes_of(untied, tensor) ? 1 : 0;
    }
    return count;
  };
  MegatronSource own(files);
  const auto all = std::ssize(own.tensors(TensorKind::kWeight));
  EXPECT_GT(all, 10);
  EXPECT_EQ(same(own), all);

  for (int part = 0; part < 3; ++part) {
    const auto path = [&](int t) {
      return files / fmt::format("zero_pp_rank_{}_mp_rank_{:02}_optim_states.pt", part, t);
    };
    fs::rename(path(0), files / "first");
    fs::rename(path(1), path(0));
    fs::rename(files / "first", path(1));
  }
  MegatronSource other(files);
  EXPECT_THAT(other.notes().back(), HasSubstr("no fp32 copies of the weights are found in it"));
  EXPECT_EQ(same(other), 0) << "weights in bf16";
}

// A file of an optimizer, as torch.save makes it of AdamW.state_dict().
struct MadeState {
  std::vector<std::int64_t> shape;
  std::int64_t step = 5;
  bool has_square = true;
};

class MadeOptimizer : public testing::Test {
 protected:
  // Groups of parameters, numbered through.
  const TorchFile& write(const std::vector<std::vector<MadeState>>& groups) {
    const fs::path path = dir_ / fmt::format("{}.pt", next_++);
    TorchWriter out(path);
    std::int64_t elements = 0;
    std::int64_t number = 0;
    out.begin_dict();
    out.text("state");
    out.begin_dict();
    for (const auto& group : groups) {
      for (const MadeState& state : group) {
        out.integer(number++);
        out.begin_dict();
        out.text("step");
        out.integer(state.step);
        std::int64_t size = 1;
        for (const std::int64_t one : state.shape) size *= one;
        out.text("exp_avg");
        out.tensor("F32", state.shape);
        elements += size;
        if (state.has_square) {
          out.text("exp_avg_sq");
          out.tensor("F32", state.shape);
          elements += size;
        }
        out.end_dict();
      }
    }
    out.end_dict();
    test::write_param_groups(out, groups);
    out.end_dict();
    out.append(std::vector<std::byte>(static_cast<std::size_t>(4 * elements)));
    out.commit();
    file_ = std::make_unique<TorchFile>(path);
    return *file_;
  }
  // Of two chunks: a norm and two matrices, then a matrix and a bias.
  std::vector<BoxedMoments> moments(const std::vector<std::vector<MadeState>>& groups) {
    const TorchFile& file = write(groups);
    return moments_of_groups(
        file, file.root(), {{{"norm", &norm_}, {"a", &a_}, {"b", &b_}}, {{"c", &c_}, {"d", &d_}}});
  }
  std::string refusal(const std::vector<std::vector<MadeState>>& groups) {
    return message_of(Fault::kData, [&] { moments(groups); });
  }

  TempFolder dir_;
  int next_ = 0;
  std::unique_ptr<TorchFile> file_;
  BoxedTensor norm_{.rows = 4, .columns = 1};
  BoxedTensor a_{.rows = 3, .columns = 4};
  BoxedTensor b_{.rows = 4, .columns = 3};
  BoxedTensor c_{.rows = 5, .columns = 4};
  BoxedTensor d_{.rows = 5, .columns = 1};
};

TEST_F(MadeOptimizer, IsInTheOrderOfItsGroupsOverAllChunks) {
  const MadeState a{{3, 4}};
  const MadeState b{{4, 3}};
  const MadeState c{{5, 4}};
  const MadeState norm{{4}};
  const MadeState d{{5}};
  for (const auto& groups : {std::vector<std::vector<MadeState>>{{a, b, c}, {norm, d}},
                             {{norm, d}, {a, b, c}},
                             {{norm}, {a, b}, {c}, {d}}}) {
    const std::vector<BoxedMoments> got = moments(groups);
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].first.size(), 3U);
    EXPECT_EQ(got[1].second.size(), 2U);
    EXPECT_EQ(got[0].first.at("b").rows, 4);
    EXPECT_EQ(got[1].first.at("c").rows, 5);
    EXPECT_GT(got[0].second.at("a").boxes[0].offset, got[0].first.at("a").boxes[0].offset);
  }
  OptimizerCounts counts;
  add_counts(*file_, file_->root(), counts);
  EXPECT_EQ(counts.steps, std::set<std::int64_t>{5});
}

TEST_F(MadeOptimizer, OfAnotherOrderOrModelIsRefused) {
  const MadeState a{{3, 4}};
  const MadeState b{{4, 3}};
  const MadeState c{{5, 4}};
  const MadeState norm{{4}};
  const MadeState d{{5}};
  EXPECT_THAT(refusal({{b, a, c}, {norm, d}}),
              HasSubstr("the moments of the optimizer's parameter 0 are [4, 3], and the weight in "
                        "its place is a, [3, 4]; is it the optimizer of another model?"));
  EXPECT_THAT(refusal({{a, b, c, c}, {norm, d}}),
              HasSubstr("parameter 3 are [5, 4], and the weight in its place is none"));
  EXPECT_THAT(refusal({{a, b, c}, {norm, {{5}, 5, false}}}),
              HasSubstr("the optimizer has no exp_avg_sq of its parameter 4"));
  OptimizerCounts counts;
  write({{a, {{4, 3}, 6}}});
  add_counts(*file_, file_->root(), counts);
  EXPECT_EQ(counts.steps, (std::set<std::int64_t>{5, 6}));
}

// What a file nests deeper than any optimizer does is not searched.
TEST(OptimizerCounts, AreFoundInTenListsAndNotInMore) {
  const TempFolder dir;
  const auto steps = [&](int lists) {
    const fs::path path = dir / fmt::format("{}.pt", lists);
    TorchWriter out(path);
    out.begin_dict();
    out.text("state");
    for (int i = 0; i < lists; ++i) out.begin_list();
    out.begin_dict();
    out.text("step");
    out.integer(7);
    out.end_dict();
    for (int i = 0; i < lists; ++i) out.end_list();
    out.end_dict();
    out.commit();
    const TorchFile file(path);
    OptimizerCounts counts;
    add_counts(file, file.root(), counts);
    return counts.steps;
  };
  EXPECT_EQ(steps(0), std::set<std::int64_t>{7});
  EXPECT_EQ(steps(10), std::set<std::int64_t>{7});
  EXPECT_EQ(steps(11), std::set<std::int64_t>());
}

// Vectors of a distributed optimizer, in a file of floats.
class MadeBuffer : public testing::Test {
 protected:
  using Floats = std::vector<float>;

  // The file, which gets its floats in places().
  const RegularFile* opened() {
    if (!file_) {
      std::ofstream(dir_ / "floats", std::ios::app);
      file_ = std::make_unique<RegularFile>(dir_ / "floats");
    }
    return file_.get();
  }
  // After the elements that are there already.
  FlatVector vector_of(const Floats& floats) {
    const auto offset = static_cast<std::int64_t>(4 * all_.size());
    all_.insert(all_.end(), floats.begin(), floats.end());
    return {{{opened(), offset, 0, std::ssize(floats)}}};
  }
  BoxedTensor tensor_of(const Floats& floats, std::int64_t columns) {
    const std::int64_t rows = std::ssize(floats) / columns;
    const FlatVector vector = vector_of(floats);
    return tensor_in(vector, 0, rows, columns);
  }
  // Where each weight was found in "param", as the first of its elements.
  std::map<std::string, std::int64_t> places(std::vector<FlatVector> copies) {
    write_text_file(dir_ / "floats",
                    std::string(reinterpret_cast<const char*>(all_.data()), 4 * all_.size()));
    file_.reset();
    opened();
    OrderedWeights weights;
    for (auto& [key, tensor] : weights_) {
      for (TensorBox& box : tensor.boxes) box.file = file_.get();
      weights.emplace_back(key, &tensor);
    }
    for (FlatVector& vector : copies) {
      for (FlatPart& part : vector.parts) part.file = file_.get();
    }
    const OptimizerBuffer buffer(copies, weights);
    std::map<std::string, std::int64_t> found;
    if (!buffer.found()) return found;
    EXPECT_TRUE(buffer.tensors({}).empty()) << "other vectors";
    for (const auto& [key, tensor] : buffer.copies())
      found[key] = (tensor.boxes.front().offset - copies.front().parts.front().offset) / 4;
    return found;
  }
  void add(const std::string& key, const Floats& floats, std::int64_t columns) {
    weights_.emplace_back(key, tensor_of(floats, columns));
  }
  static Floats numbers(std::int64_t count, float first) {
    Floats floats;
    for (std::int64_t i = 0; i < count; ++i) floats.push_back(first + static_cast<float>(i));
    return floats;
  }
  // The floats at their places of a vector, zeros between them.
  static Floats laid(const std::vector<std::pair<std::int64_t, Floats>>& parts) {
    Floats floats;
    for (const auto& [at, part] : parts) {
      floats.resize(static_cast<std::size_t>(at));
      floats.insert(floats.end(), part.begin(), part.end());
    }
    return floats;
  }

  TempFolder dir_;
  Floats all_;
  std::vector<std::pair<std::string, BoxedTensor>> weights_;
  std::unique_ptr<RegularFile> file_;
};

TEST_F(MadeBuffer, FindsWeightsInEveryArrangement) {
  using Places = std::map<std::string, std::int64_t>;
  const Floats a = numbers(12, 1);
  const Floats zeros(70);
  const Floats c = numbers(10, 300);
  const Floats d = numbers(6, 500);
  add("a", a, 4);
  add("zeros", zeros, 1);
  add("c", c, 5);
  add("d", d, 1);
  // In reverse, at multiples of 64.
  EXPECT_EQ(places({vector_of(laid({{0, d}, {64, c}, {128, zeros}, {256, a}}))}),
            (Places{{"d", 0}, {"c", 64}, {"zeros", 128}, {"a", 256}}));
  // One behind another.
  EXPECT_EQ(places({vector_of(laid({{0, d}, {6, c}, {16, zeros}, {86, a}}))}),
            (Places{{"d", 0}, {"c", 6}, {"zeros", 16}, {"a", 86}}));
  // A bucket of two, then one behind it, whose weights are 64 apart again. The zeros, which look
  // alike at 128 and at 74, are where what follows is found.
  EXPECT_EQ(places({vector_of(laid({{0, d}, {64, c}, {74, zeros}, {74 + 128, a}}))}),
            (Places{{"d", 0}, {"c", 64}, {"zeros", 74}, {"a", 202}}));
  // Two vectors, in another order than the modules say.
  const FlatVector first = vector_of(laid({{0, c}, {64, d}}));
  const Places two = places({first, vector_of(laid({{0, a}, {64, zeros}}))});
  EXPECT_EQ(two, (Places{{"c", 0}, {"d", 64}, {"a", 70}, {"zeros", 134}}));
  // Of other weights, or too short.
  EXPECT_EQ(places({vector_of(laid({{0, d}, {64, c}, {128, zeros}, {256, numbers(12, 2)}}))}),
            Places());
  EXPECT_EQ(places({vector_of(laid({{0, d}, {64, c}, {128, zeros}, {256, numbers(11, 1)}}))}),
            Places());
}

}  // namespace
}  // namespace piton
