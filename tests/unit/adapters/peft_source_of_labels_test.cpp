// Adapters of PEFT for classifiers of texts, encoders and a decoder: with them, a model has the
// logits, gradients and ten training steps of PEFT (tests/golden/labels_lora, made by
// tools/oracle/labels.py in float64), also merged. What Piton writes of them has the same tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/merged_source.h"
#include "adapters/peft_writer.h"
#include "base/files/files.h"
#include "base/json.h"
#include "model/label_head.h"
#include "model/lora/lora_options.h"
#include "support/errors.h"
#include "support/golden_lora.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using test::HostMachine;

constexpr const char* kLabelCases[] = {"bert",          "bert-dora",    "bert-pooler",
                                       "megatron-bert", "roberta",      "bert-number",
                                       "qwen2-number",  "bert-several", "qwen2-several"};

std::filesystem::path labels_folder(const std::string& name) {
  return std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/labels_lora" / name;
}

std::filesystem::path labels_base(const std::string& name) {
  const bool variant = name == "bert-dora" || name == "bert-pooler";
  return std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/labels" /
         (variant ? "bert" : name);
}

std::vector<std::int32_t> ints_in(const SafetensorsFile& file, const std::string& name) {
  const Tensor ids = file.tensor(name);
  return {ids.data<std::int32_t>(), ids.data<std::int32_t>() + ids.elements()};
}

// A model, its adapter, and the batch that PEFT had.
struct LabelFiles {
  explicit LabelFiles(const std::string& name)
      : base(labels_base(name)),
        family(hf_family(base.config())),
        adapter(labels_folder(name), model(), family),
        expected(labels_folder(name) / "expected.safetensors") {
    const SafetensorsFile of_base(labels_base(name) / "expected.safetensors");
    batch.samples = of_base.tensor("tokens").dim(0);
    batch.sequence = of_base.tensor("tokens").dim(1);
    batch.tokens = ints_in(of_base, "tokens");
    batch.labels = ints_in(of_base, "labels");
    if (model().encoder) batch.types = ints_in(of_base, "types");
    if (model().regression) {
      const std::vector<double> targets = test::values(of_base.tensor("targets"));
      batch.targets.assign(targets.begin(), targets.end());
    }
    if (model().several_labels) {
      const std::vector<double> sets = test::values(of_base.tensor("sets"));
      batch.label_sets.assign(sets.begin(), sets.end());
    }
    batch.segments = ints_in(of_base, "segments");
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      batch.positions.push_back(static_cast<std::int32_t>(i) %
                                static_cast<std::int32_t>(batch.sequence));
      batch.loss_mask.push_back(batch.labels[i] == kNoLabel ? 0.0F : 1.0F);
    }
  }

  ModelConfig model() const {
    ModelConfig config = base.model();
    config.hidden_dropout = config.attention_dropout = 0;
    return config;
  }

  HfSource base;
  HfFamily family;
  PeftSource adapter;
  SafetensorsFile expected;
  MicroBatch batch;
};

// A session with the model and the adapter, or with `adapters` alone merged into the model.
struct LabelRun {
  explicit LabelRun(LabelFiles& files, bool merged = false) {
    SessionSettings settings{
        .model = files.model(),
        .optimizer_options = {
            .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_grad = 1.0}};
    if (!merged) settings.adapters = files.adapter.adapters();
    session.emplace(machine.machine, mesh, settings);
    if (!merged) {
      test::load_lora(*session, files.base, files.adapter, machine);
      return;
    }
    MergedSource model(files.base, files.adapter, files.adapter.adapters());
    load_weights(model, {.parameters = session->parameters(), .sharded = &session->sharded()},
                 {mesh, machine.device, machine.arena, *machine.stream});
    session->publish_values();
  }

  std::vector<double> logits(const MicroBatch& batch) {
    std::vector<double> all;
    const auto logits = session->label_logits({batch});
    for (const std::vector<float>& row : logits.front())
      all.insert(all.end(), row.begin(), row.end());
    return all;
  }

  HostMachine machine;
  Mesh mesh{*machine.world, MeshSizes{}};
  std::optional<Session> session;
};

TEST(PeftLabels, AreTheLogitsOfPeftAlsoMerged) {
  for (const char* name : kLabelCases) {
    LabelFiles files(name);
    for (const bool merged : {false, true}) {
      LabelRun run(files, merged);
      EXPECT_LT(test::largest_distance(run.logits(files.batch),
                                       test::values(files.expected.tensor("logits"))),
                1e-5)
          << name << (merged ? ", merged" : "");
    }
  }
}

// gradients.safetensors is read as an adapter whose tensors are the gradients.
TEST(PeftLabels, HaveEveryGradientOfPeft) {
  for (const char* name : kLabelCases) {
    LabelFiles files(name);
    TempFolder folder;
    std::filesystem::copy_file(labels_folder(name) / "gradients.safetensors",
                               folder / kPeftWeightsName);
    std::filesystem::copy_file(labels_folder(name) / kPeftConfigName, folder / kPeftConfigName);
    PeftSource wanted(folder.path(), files.model(), files.family);
    LabelRun run(files);
    const StepReport report = run.session->gradients({files.batch}, 0);
    const double loss = test::value_at(files.expected.tensor("loss"), 0);
    EXPECT_NEAR(report.loss, loss, 1e-5 * loss) << name;
    test::expect_gradients(*run.session, wanted, name);
  }
}

TEST(PeftLabels, TrainAsInPeft) {
  for (const char* name : kLabelCases) {
    LabelFiles files(name);
    LabelRun run(files);
    for (std::int64_t step = 0; step < 10; ++step) {
      const StepReport report = run.session->train_step({files.batch}, 0, 3e-3);
      const double loss = test::value_at(files.expected.tensor("losses"), step);
      const double norm = test::value_at(files.expected.tensor("norms"), step);
      EXPECT_NEAR(report.loss, loss, 1e-5 * loss) << name << ", step " << step;
      EXPECT_NEAR(report.grad_norm, norm, 1e-4 * norm) << name << ", step " << step;
    }
  }
}

// tools/oracle/labels.py loads these folders in PEFT.
TEST(PeftLabels, AreWrittenAsPeftHasWrittenThem) {
  for (const char* name : kLabelCases) {
    LabelFiles files(name);
    const auto folder =
        std::filesystem::path(PITON_BINARY_DIR) / "lora_written" / ("labels-" + std::string(name));
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    write_peft(folder, files.adapter,
               {.model = files.model(),
                .family = files.family,
                .adapters = files.adapter.adapters(),
                .rank_stabilized = files.adapter.config().rank_stabilized});
    const SafetensorsFile ours(folder / kPeftWeightsName);
    const SafetensorsFile theirs(labels_folder(name) / kPeftWeightsName);
    ASSERT_EQ(ours.entries().size(), theirs.entries().size()) << name;
    for (const SafetensorsEntry& entry : theirs.entries()) {
      ASSERT_NE(ours.find(entry.name), nullptr) << name << " " << entry.name;
      EXPECT_EQ(test::values(ours.tensor(entry.name)), test::values(theirs.tensor(entry.name)))
          << name << " " << entry.name;
    }
    const auto config = read_json<nlohmann::json>(read_text_file(folder / kPeftConfigName));
    EXPECT_EQ(config.at("task_type"), "SEQ_CLS");
    EXPECT_THAT(config.at("modules_to_save").get<std::vector<std::string>>(),
                testing::Contains(files.model().encoder ? "classifier" : "score"))
        << name;
    EXPECT_EQ(labels_of_adapter(folder), files.model().labels) << name;
    EXPECT_EQ(problem_of_adapter(folder), problem_of(files.model())) << name;
    EXPECT_EQ(problem_of_adapter(labels_folder(name)), "") << name;  // PEFT does not say it
    const PeftSource again(folder, files.model(), files.family);
    EXPECT_EQ(again.adapters(), files.adapter.adapters()) << name;
  }
}

// The options give the adapters that PEFT makes of the same names.
TEST(PeftLabels, AreNamedAsInPeft) {
  const auto made = [](const std::string& name, std::vector<std::string> targets,
                       std::vector<std::string> saved = {}) {
    LoraOptions options{.target_modules = std::move(targets), .rank = 4, .alpha = 6};
    options.modules_to_save = std::move(saved);
    options.use_dora = name.ends_with("-dora");
    return options.resolve(LabelFiles(name).model());
  };
  const auto read = [](const std::string& name) { return LabelFiles(name).adapter.adapters(); };
  for (const char* name : {"megatron-bert", "roberta"}) {
    EXPECT_EQ(made(name, {"all-linear"}), read(name)) << name;
    EXPECT_EQ(made(name, {"query", "key", "value", "dense"}), read(name)) << name;
  }
  EXPECT_EQ(made("bert-dora", {"query", "value", "output.dense", "pooler.dense"}),
            read("bert-dora"));
  EXPECT_EQ(made("bert-pooler", {"query", "value", "intermediate.dense"}, {"pooler", "LayerNorm"}),
            read("bert-pooler"));
  // A pooler that is trained in full has no adapter.
  EXPECT_EQ(made("bert", {"all-linear"}, {"pooler"}).find("pooler"), nullptr);
  EXPECT_THAT(message_of(Fault::kUsage, [&] { made("roberta", {"pooler.dense"}); }),
              testing::HasSubstr("this model has no pooler.dense; wanted some of all-linear"));
}

}  // namespace
}  // namespace piton
