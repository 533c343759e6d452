// Megatron checkpoints, written for every division and read back; and errors for damaged ones.
#include "megatron/megatron_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/files/files.h"
#include "huggingface/hf_source.h"
#include "megatron/format/arguments.h"
#include "megatron/format/run_progress.h"
#include "megatron/megatron_writer.h"
#include "pickle/pickle.h"
#include "pickle/pickle_writer.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/huggingface/hf_folder.h"
#include "unit/megatron/compare_sources.h"
#include "unit/megatron/edited_file.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path golden_model(const std::string& name) {
  return fs::path(PITON_SOURCE_DIR) / "tests/golden/huggingface" / name;
}

class Megatron : public testing::Test {
 protected:
  // The golden model of that name, divided.
  fs::path written(const std::string& name, int tensor, int pipeline,
                   const std::function<void(MegatronWriteOptions&)>& set = {}) {
    HfSource source(golden_model(name));
    MegatronWriteOptions options{.layout = {.tensor = tensor, .pipeline = pipeline},
                                 .iteration = 7};
    options.layout.padded_vocabulary =
        megatron_padded_vocabulary(source.model().vocabulary, 16, tensor);
    if (set) set(options);
    options.layout.check(source.model());
    const fs::path folder = dir_ / fmt::format("{}-{}", name, next_++);
    write_megatron(folder, source, source.model(), options);
    return folder;
  }
  // The arguments are called otherwise.
  static void without_arguments(const fs::path& folder) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file() || entry.path().extension() != ".pt") continue;
      std::map<std::string, std::string> members;
      {
        const RegularFile file(entry.path());
        for (const auto& [name, member] : read_zip(file))
          members[name] = read_member(file, member, 1 << 30);
      }
      ZipWriter zip(entry.path());
      for (auto& [name, bytes] : members) {
        const std::size_t at = name.ends_with("data.pkl") ? bytes.find("model_args") : bytes.npos;
        if (at != bytes.npos) bytes.replace(at, 10, "other_args");
        zip.add(name, bytes);
      }
      zip.commit();
    }
  }
  static std::string refusal(const fs::path& folder) {
    return message_of(Fault::kData, [&] { MegatronSource{folder}; });
  }

  TempFolder dir_;
  int next_ = 0;
};

TEST_F(Megatron, IsReadBackFromEveryDivision) {
  struct Division {
    const char* model;
    int tensor;
    int pipeline;
  };
  for (const auto& [model, tensor, pipeline] :
       {Division{"gpt2", 1, 1}, Division{"gpt2", 2, 1}, Division{"gpt2", 3, 2},
        Division{"llama3", 2, 2}, Division{"llama", 1, 2}, Division{"qwen3", 2, 1}}) {
    HfSource wanted(golden_model(model));
    for (const MegatronTree tree :
         {MegatronTree::kLegacy, MegatronTree::kCore, MegatronTree::kTransformer}) {
      MegatronSource got(
          written(model, tensor, pipeline, [&](MegatronWriteOptions& o) { o.tree = tree; }));
      EXPECT_EQ(got.layout().tensor, tensor);
      EXPECT_EQ(got.layout().pipeline, pipeline);
      EXPECT_EQ(got.iteration(), 7);
      EXPECT_EQ(got.model().vocabulary, wanted.model().vocabulary);
      expect_same(wanted, got);
    }
  }
}

TEST_F(Megatron, HasTheQkvOrderOfItsVersion) {
  HfSource wanted(golden_model("gpt2"));
  for (const double version : {0.0, 1.0, 2.0, 3.0}) {
    const fs::path folder =
        written("gpt2", 2, 1, [&](MegatronWriteOptions& o) { o.layout.version = version; });
    MegatronSource got(folder);
    EXPECT_EQ(got.layout().version, version);
    expect_same(wanted, got);
    // Row 5 of the packed rows on rank 1, by the order's own words: [3,np,hn], [np,hn,3],
    // [np,3,hn].
    const TorchFile file(folder / "release/mp_rank_01/model_optim_rng.pt");
    const TorchTensor packed = file.tensor(*file.root()
                                                .find("model")
                                                ->find("language_model")
                                                ->find("encoder")
                                                ->find("layers.0.self_attention.query_key_value."
                                                       "bias"),
                                           "bias");
    constexpr std::int64_t kHeads = 3;  // of the rank
    constexpr std::int64_t kSize = 6;
    const std::int64_t row = 2 * kSize * kHeads / 3 + 5;
    std::int64_t which = 0, head = 0, channel = 0;
    if (version == 0) {
      which = row / (kHeads * kSize);
      head = row / kSize % kHeads;
      channel = row % kSize;
    } else if (version == 1) {
      head = row / (kSize * 3);
      channel = row / 3 % kSize;
      which = row % 3;
    } else {
      head = row / (3 * kSize);
      which = row / kSize % 3;
      channel = row % kSize;
    }
    const char* names[] = {"query", "key", "value"};
    float expected = 0;
    float stored = 0;
    wanted.read(fmt::format("layers.0.attention.{}.bias", names[which]),
                {{(kHeads + head) * kSize + channel}, {1}, 0, 1}, DType::kF32,
                reinterpret_cast<std::byte*>(&expected));
    file.file().read_at(packed.offset + 4 * row, std::as_writable_bytes(std::span(&stored, 1)));
    EXPECT_EQ(stored, expected) << version;
  }
}

TEST_F(Megatron, ReadsRunsOfAnyShape) {
  HfSource wanted(golden_model("llama3"));
  MegatronSource got(written("llama3", 2, 1));
  for (const CanonicalTensor& tensor : wanted.tensors(TensorKind::kWeight)) {
    if (tensor.shape.ndim() != 2) continue;
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t columns = tensor.shape[1];
    for (const auto& [r, c, h, w] :
         {std::array{1L, 0L, rows - 1, columns}, std::array{0L, 3L, rows, columns - 5},
          std::array{rows / 2 - 1, columns / 2 - 2, 3L, 4L}}) {
      const std::int64_t all = h * w;
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, all}, {2, all - 1}, {w, w + 1}}) {
        const TensorRun run{{r, c}, {h, w}, begin, end};
        std::vector<float> x(static_cast<std::size_t>(run.size()));
        std::vector<float> y(x.size());
        wanted.read(tensor.name, run, DType::kF32, reinterpret_cast<std::byte*>(x.data()));
        got.read(tensor.name, run, DType::kF32, reinterpret_cast<std::byte*>(y.data()));
        ASSERT_EQ(x, y) << tensor.name << " " << begin;
      }
    }
  }
}

TEST_F(Megatron, ThatIsNotWholeIsRefusedByName) {
  const fs::path folder = written("llama3", 2, 2);
  fs::remove_all(folder / "release/mp_rank_01_000");
  EXPECT_THAT(refusal(folder),
              HasSubstr("1 of 4 ranks are missing: mp_rank_01_000; copy them too"));
  const fs::path other = written("qwen3", 2, 2);
  fs::remove(folder / "release/mp_rank_01_001/model_optim_rng.pt");
  fs::copy(other / "release/mp_rank_01_000", folder / "release/mp_rank_01_000");
  fs::copy(other / "release/mp_rank_01_001/model_optim_rng.pt",
           folder / "release/mp_rank_01_001/model_optim_rng.pt");
  EXPECT_THAT(refusal(folder), HasSubstr("the arguments say"));
  EXPECT_THAT(refusal(dir_.path()), HasSubstr("no checkpoint of Megatron"));
}

TEST_F(Megatron, WhoseArgumentsContradictItsFilesIsRefused) {
  const fs::path folder = written("llama3", 2, 1);
  fs::rename(folder / "release/mp_rank_01", folder / "gone");
  EXPECT_THAT(refusal(folder),
              HasSubstr("argument tensor_model_parallel_size: got 2, but the files are of 1"));
}

TEST_F(Megatron, WithExpertsThatAreNotInItsFilesIsRefused) {
  const auto with = [&](const char* name) {
    const fs::path folder = written("llama3", 1, 1);
    EditedFile(folder / "release/mp_rank_00/model_optim_rng.pt",
               {.numbers = {{"model_args/rotary_percent", 8}},
                .renamed = {{"model_args/rotary_percent", name}}});
    return refusal(folder);
  };
  EXPECT_THAT(with("num_experts"), HasSubstr("missing tensors (34): layers.0.router.weight"));
  EXPECT_THAT(with("expert_model_parallel_size"),
              HasSubstr("argument expert_model_parallel_size: got 8, but the files are of 1"));
}

// Copies of two iterations, or of two versions, would be joined into a model that never was.
TEST_F(Megatron, WhoseRanksAreOfDifferentSavesIsRefused) {
  const fs::path folder = written("llama3", 2, 1);
  const fs::path later = written("llama3", 2, 1, [](MegatronWriteOptions& o) { o.iteration = 8; });
  const fs::path file = folder / "release/mp_rank_01/model_optim_rng.pt";
  fs::copy_file(later / "release/mp_rank_01/model_optim_rng.pt", file,
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(folder),
              HasSubstr(fmt::format(
                  "{}: iteration: got 8, but {} has 7: the ranks are of different "
                  "saves; copy all of one",
                  file.string(), (folder / "release/mp_rank_00/model_optim_rng.pt").string())));
}

// Flags, or arguments, that call the head tied would lose it: nothing else would show that.
TEST_F(Megatron, WhoseHeadIsItsOwnIsNotTakenForTied) {
  for (const int stages : {1, 2}) {
    const fs::path folder = written("llama", 1, stages);
    HfSource source(golden_model("llama"));
    ModelConfig tied = source.model();
    tied.tied = true;
    const MegatronGiven given{.model = [&](std::int64_t) { return tied; }};
    without_arguments(folder);
    EXPECT_THAT(
        message_of(Fault::kData, [&] { MegatronSource(folder, given); }),
        HasSubstr("its head differs from the table of the embedding, but the model ties them"));
    tied.tied = false;
    EXPECT_NO_THROW(MegatronSource(folder, given));
  }
  // A copy is one.
  EXPECT_TRUE(MegatronSource(written("gpt2", 2, 2)).model().tied);
}

TEST_F(Megatron, WhoseFilesAreLinksToElsewhereIsRefused) {
  const fs::path folder = written("llama3", 2, 1);
  const fs::path file = folder / "release/mp_rank_01/model_optim_rng.pt";
  fs::rename(file, dir_ / "elsewhere.pt");
  fs::create_symlink(dir_ / "elsewhere.pt", file);
  EXPECT_THAT(refusal(folder), HasSubstr(file.string() + ": a link that leads out of the folder"));
  // The folder itself may be one.
  const fs::path whole = written("llama3", 2, 1);
  fs::rename(whole / "release", dir_ / "moved");
  fs::create_directory_symlink(dir_ / "moved", whole / "release");
  EXPECT_NO_THROW(MegatronSource{whole});
}

TEST_F(Megatron, OfAVersionThatIsNoneIsRefused) {
  for (const double version : {-1.0, 0.5, 4.0, std::nan("")}) {
    EXPECT_THAT(refusal(written("gpt2", 1, 1,
                                [&](MegatronWriteOptions& o) { o.layout.version = version; })),
                HasSubstr("checkpoint_version: got"))
        << version;
  }
}

TEST_F(Megatron, WithMorePaddingThanATableMayHaveIsRefused) {
  HfSource source(golden_model("llama"));
  const MegatronLayout layout{.padded_vocabulary = 2'000'000'000};
  EXPECT_THAT(message_of(Fault::kUsage, [&] { layout.check(source.model()); }),
              HasSubstr("got a table of 2000000000 rows for a vocabulary of 131, wanted at most "
                        "1048576 rows of padding"));
}

TEST_F(Megatron, ThatKeepsNoArgumentsHasToBeTold) {
  HfSource source(golden_model("llama"));
  const fs::path file = dir_.path() / "mp_rank_00/model_optim_rng.pt";
  TorchWriter out(file);
  const std::vector<std::int64_t> shape = {131, 32};
  out.begin_dict();
  out.text("checkpoint_version");
  out.number(3);
  out.text("model");
  out.begin_dict();
  out.text("embedding.word_embeddings.weight");
  out.tensor("F32", shape);
  out.end_dict();
  out.end_dict();
  out.append(std::vector<std::byte>(131 * 32 * 4));
  out.commit();
  EXPECT_THAT(refusal(dir_.path()), HasSubstr("stores no arguments, so its model is unknown"));
  const MegatronGiven given{.model = [&](std::int64_t) { return source.model(); }};
  const MegatronGiven many{.model = [&](std::int64_t) {
    ModelConfig model = source.model();
    model.layers = 2'000'000'000;
    return model;
  }};
  EXPECT_THAT(message_of(Fault::kData, [&] { MegatronSource(dir_.path(), many); }),
              HasSubstr("a model of 2000000000 layers, and the files hold 1 tensors"));
  EXPECT_THAT(message_of(Fault::kData, [&] { MegatronSource(dir_.path(), given); }),
              HasSubstr("missing tensors (14): layers.0.input_norm.weight, layers.0.qkv.weight"));
}

TEST_F(Megatron, WhoseTreeHoldsItselfIsRefused) {
  // A dict whose "model", and a hundred more, are the dict.
  std::string pickle("\x80\x02}q\x00(", 6);
  for (int i = 0; i < 100; ++i) {
    const std::string key = i == 0 ? "model" : fmt::format("{}", i);
    pickle += std::string("X") + static_cast<char>(key.size()) + std::string(3, '\0') + key;
    pickle += std::string("h\x00", 2);
  }
  pickle += "u.";
  ZipWriter zip(dir_.path() / "mp_rank_00/model_optim_rng.pt");
  zip.add("x/data.pkl", pickle);
  zip.commit();
  EXPECT_THAT(refusal(dir_.path()), HasSubstr("has no word_embeddings.weight"));
}

TEST_F(Megatron, ThatDoesNotDivideIsRefused) {
  HfSource source(golden_model("llama3"));
  const auto message = [&](int tensor, int pipeline) {
    MegatronLayout layout{.tensor = tensor, .pipeline = pipeline, .padded_vocabulary = 144};
    return message_of(Fault::kUsage, [&] { layout.check(source.model()); });
  };
  EXPECT_THAT(
      message(4, 1),
      HasSubstr("--target-tensor-parallel-size: got 4, wanted a divisor of the 2 groups of heads"));
  EXPECT_THAT(message(3, 1), HasSubstr("a divisor of the 4 heads"));
  EXPECT_THAT(message(1, 3), HasSubstr("--target-pipeline-parallel-size: got 3"));
}

// With virtual stages, only the first of a rank's has the table.
TEST_F(Megatron, OfVirtualStagesWhoseHeadIsItsOwnIsNotTakenForTied) {
  test::HfFolder longer("llama");
  std::map<std::string, Tensor> more;
  for (const auto& [name, tensor] : longer.tensors) {
    for (const int layer : {0, 1}) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      if (!name.starts_with(prefix)) continue;
      more[fmt::format("model.layers.{}.{}", layer + 2, name.substr(prefix.size()))] = tensor;
    }
  }
  longer.tensors.merge(more);
  longer.write();
  longer.edit_config([](nlohmann::ordered_json& config) { config["num_hidden_layers"] = 4; });
  HfSource source(longer.path());
  MegatronWriteOptions options{.layout = {.pipeline = 2, .chunks = 2}};
  options.layout.padded_vocabulary = megatron_padded_vocabulary(source.model().vocabulary, 16, 1);
  const fs::path folder = dir_ / "virtual";
  write_megatron(folder, source, source.model(), options);
  MegatronSource got(folder);
  EXPECT_EQ(got.layout().chunks, 2);
  expect_same(source, got);
  ModelConfig tied = source.model();
  tied.tied = true;
  const MegatronGiven given{.model = [&](std::int64_t) { return tied; }};
  without_arguments(folder);
  EXPECT_THAT(message_of(Fault::kData, [&] { MegatronSource(folder, given); }),
              HasSubstr("its head differs from the table of the embedding"));
}

TEST_F(Megatron, OfATiedHeadHasACopyOfTheTableOnTheLastStage) {
  const HfSource source(golden_model("gpt2"));
  const MegatronLayout layout{.pipeline = 2, .padded_vocabulary = source.model().vocabulary};
  const auto copies = [&](int stage) {
    return std::ranges::count(megatron_tensors(source.model(), layout, 0, stage, 0),
                              "head_copy.weight", &MegatronTensor::key);
  };
  EXPECT_EQ(copies(0), 0);
  EXPECT_EQ(copies(1), 1);
}

// Those that the scheduler's own dict does not have.
TEST(MegatronRun, HasTheFlagsOfItsLastDecay) {
  PickleWriter out;
  out.begin_dict();
  out.text(kMegatronArguments);
  out.begin_dict();
  out.text("lr_wsd_decay_style");
  out.text("exponential");
  out.text("lr_wsd_decay_iters");
  out.integer(20);
  out.text("lr_wsd_decay_samples");
  out.none();
  out.end_dict();
  out.end_dict();
  const PickleDocument document = read_pickle(out.finished(), "run");
  EXPECT_THAT(read_megatron_run(document.root(), "run").options,
              testing::ElementsAre(testing::Pair("lr-wsd-decay-iters", "20"),
                                   testing::Pair("lr-wsd-decay-style", "\"exponential\"")));
}

// Those of the parser of Megatron-LM: older checkpoints lack the flags that came later.
TEST(MegatronArguments, ThatAreNotThereHaveTheDefaultsOfMegatron) {
  PickleWriter out;
  out.begin_dict();
  for (const auto& [name, value] : {std::pair{"num_layers", 2},
                                    {"hidden_size", 64},
                                    {"num_attention_heads", 4},
                                    {"max_position_embeddings", 32}}) {
    out.text(name);
    out.integer(value);
  }
  out.end_dict();
  const PickleDocument document = read_pickle(out.finished(), "run");
  const MegatronArguments arguments = read_megatron_arguments(document.root(), "run");
  const ModelConfig& model = arguments.model;
  EXPECT_EQ(model.ffn_hidden, 256);
  EXPECT_EQ(model.groups, 4);
  EXPECT_EQ(model.head_size, 16);
  EXPECT_EQ(model.norm, NormKind::kLayer);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(model.positions, PositionKind::kLearned);
  EXPECT_EQ(model.activation, ActivationKind::kGeluTanh);
  EXPECT_TRUE(model.tied && model.biases && model.qkv_biases && model.output_bias);
  EXPECT_FALSE(model.gated || model.embedding_norm || model.head_norms || model.normalized_head);
  EXPECT_EQ(model.hidden_dropout, 0.1);
  EXPECT_EQ(model.attention_dropout, 0.1);
  EXPECT_EQ(model.init_deviation, 0.02);
  EXPECT_FALSE(model.xavier_weights);
  EXPECT_EQ(arguments.layout.tensor, 1);
  EXPECT_EQ(arguments.layout.pipeline, 1);
  EXPECT_EQ(arguments.layout.chunks, 1);
  EXPECT_FALSE(arguments.vocabulary || arguments.head_like_layers);
}

TEST(MegatronArguments, HaveTheDeviationOfEmbeddings) {
  ModelConfig model = HfSource(golden_model("llama")).model();
  EXPECT_EQ(model_in_megatron(model).embedding_deviation, std::nullopt);
  model.embedding_deviation = 0.5;
  EXPECT_EQ(model_in_megatron(model).embedding_deviation, 0.5);
}

TEST(MegatronArguments, HaveEveryScalingOfPositions) {
  using Kind = RotaryScaling::Kind;
  ModelConfig model = HfSource(golden_model("llama")).model();
  ASSERT_EQ(model.rotary_scaling.kind, Kind::kNone);
  EXPECT_EQ(model_in_megatron(model).rotary_scaling.kind, Kind::kNone);
  for (const Kind kind : {Kind::kLinear, Kind::kLlama3, Kind::kDynamic}) {
    model.rotary_scaling = {.kind = kind, .factor = 4, .original_positions = model.max_positions};
    const RotaryScaling scaling = model_in_megatron(model).rotary_scaling;
    EXPECT_EQ(scaling.kind, kind);
    EXPECT_EQ(scaling.factor, 4);
    EXPECT_EQ(scaling.original_positions, model.max_positions);
  }
}

}  // namespace
}  // namespace piton
