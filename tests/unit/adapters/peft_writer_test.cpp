// Adapters written for PEFT. What Piton reads of PEFT's own files it writes with the same tensors,
// and modules that hold several matrices have the products of their adapters. tools/oracle/lora.py
// loads the folders that this test leaves, build/lora_written, in PEFT.
#include "adapters/peft_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapters/merged_source.h"
#include "base/files/files.h"
#include "base/json.h"
#include "checkpoint/values.h"
#include "model/canonical_tensors.h"
#include "support/errors.h"
#include "support/golden_lora.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using test::kLoraCases;
using test::LoraFiles;

std::filesystem::path written_folder(const std::string& name) {
  const auto folder = std::filesystem::path(PITON_BINARY_DIR) / "lora_written" / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

nlohmann::json config_in(const std::filesystem::path& folder) {
  return read_json<nlohmann::json>(read_text_file(folder / kPeftConfigName));
}

// Cases whose experts are modules. What is written has them as parameters.
bool has_experts_as_modules(const std::string& name) {
  return name == "deepseek-v2" || name == "mixtral";
}

TEST(PeftWriter, WritesWhatPeftHasWritten) {
  for (const char* name : kLoraCases) {
    if (has_experts_as_modules(name)) continue;
    LoraFiles files(name);
    const auto folder = written_folder(std::string(name) + "-same");
    write_peft(folder, files.adapter,
               {.model = files.model(),
                .family = files.family,
                .adapters = files.adapter.adapters(),
                .base = "tests/golden/huggingface/" + test::lora_base(name).filename().string(),
                .rank_stabilized = files.adapter.config().rank_stabilized});
    const SafetensorsFile ours(folder / kPeftWeightsName);
    const SafetensorsFile theirs(test::lora_folder(name) / kPeftWeightsName);
    ASSERT_EQ(ours.entries().size(), theirs.entries().size()) << name;
    for (const SafetensorsEntry& entry : theirs.entries()) {
      ASSERT_NE(ours.find(entry.name), nullptr) << name << " " << entry.name;
      EXPECT_EQ(ours.find(entry.name)->dtype, entry.dtype);
      EXPECT_EQ(test::values(ours.tensor(entry.name)), test::values(theirs.tensor(entry.name)))
          << name << " " << entry.name;
    }
    const nlohmann::json our_config = config_in(folder);
    const nlohmann::json their_config = config_in(test::lora_folder(name));
    for (const char* key : {"base_model_name_or_path", "bias", "fan_in_fan_out", "lora_dropout",
                            "peft_type", "task_type", "use_dora", "use_rslora"})
      EXPECT_EQ(our_config.at(key), their_config.at(key)) << name << " " << key;
    const PeftSource again(folder, files.model(), files.family);
    EXPECT_EQ(again.adapters().trained, files.adapter.adapters().trained) << name;
    for (const auto& [linear, shape] : files.adapter.adapters().shapes) {
      ASSERT_NE(again.adapters().find(linear), nullptr) << name << " " << linear;
      EXPECT_EQ(again.adapters().find(linear)->rank, shape.rank) << name << " " << linear;
      EXPECT_EQ(again.adapters().find(linear)->magnitude, shape.magnitude) << name << " " << linear;
      EXPECT_DOUBLE_EQ(again.adapters().find(linear)->scale, shape.scale) << name << " " << linear;
    }
    EXPECT_EQ(again.adapters().shapes.size(), files.adapter.adapters().shapes.size()) << name;
  }
}

// Tensors in memory.
class GivenTensors final : public TensorSource {
 public:
  std::string where() const override { return "tensors in memory"; }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> list;
    if (kind != TensorKind::kWeight) return list;
    for (const auto& [name, tensor] : all)
      list.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
    return list;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    const Tensor& tensor = all.at(name);
    for_each_stretch(
        tensor.shape(), run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
          convert_values(tensor.raw() + from * size_bytes(tensor.dtype()), tensor.dtype(),
                         dst + (to - run.begin) * size_bytes(dtype), dtype, count);
        });
  }
  std::map<std::string, Tensor> all;
};

GivenTensors random_adapter(const Adapters& adapters, const ModelConfig& model) {
  GivenTensors source;
  test::TensorSource draws(5);
  std::map<std::string, Shape> shapes;
  for (const CanonicalShape& one : canonical_tensors(model)) shapes[one.name] = one.shape;
  for (const auto& [name, shape] : adapter_tensors(adapters, shapes))
    source.all[name] = draws.normal(DType::kF32, shape, 0, 0.3);
  return source;
}

// Merging the written adapter gives the weights of merging the given one, up to the rounding of one
// to fp32.
void expect_same_product(const std::string& name, const Adapters& adapters, bool rank_stabilized) {
  HfSource base(test::lora_base(name));
  const HfFamily family = hf_family(base.config());
  GivenTensors given = random_adapter(adapters, base.model());
  TempFolder folder;
  write_peft(folder.path(), given,
             {.model = base.model(),
              .family = family,
              .adapters = adapters,
              .rank_stabilized = rank_stabilized});
  PeftSource written(folder.path(), base.model(), family);
  MergedSource ours(base, given, adapters);
  MergedSource theirs(base, written, written.adapters());
  for (const CanonicalTensor& tensor : base.tensors(TensorKind::kWeight)) {
    EXPECT_LT(
        test::largest_distance(test::values_of(ours, tensor), test::values_of(theirs, tensor)),
        1e-12)
        << name << " " << tensor.name;
  }
}

// The adapters of gate and up of an expert are next to each other in one, of twice the rank.
TEST(PeftWriter, WritesExpertsThatWereModulesAsParameters) {
  for (const char* name : {"deepseek-v2", "mixtral"}) {
    LoraFiles files(name);
    const Adapters& adapters = files.adapter.adapters();
    const auto folder = written_folder(std::string(name) + "-parameters");
    write_peft(folder, files.adapter,
               {.model = files.model(), .family = files.family, .adapters = adapters});
    PeftSource written(folder, files.model(), files.family);
    EXPECT_EQ(written.adapters().find("layers.1.mlp.experts.2.gate_up")->rank, 8) << name;
    EXPECT_EQ(config_in(folder).at("target_parameters").size(),
              std::string(name) == "mixtral" ? 2 : 8);
    MergedSource ours(files.base, written, written.adapters());
    MergedSource theirs(files.base, files.adapter, adapters);
    for (const CanonicalTensor& tensor : files.base.tensors(TensorKind::kWeight)) {
      EXPECT_LT(
          test::largest_distance(test::values_of(ours, tensor), test::values_of(theirs, tensor)),
          1e-12)
          << name << " " << tensor.name;
    }
  }
}

// Of experts that are one tensor in the files of the family, below one another or turned.
TEST(PeftWriter, WritesParametersInTheRowsOfTheFamily) {
  for (const char* name : {"gpt-oss", "granite-moe"}) {
    Adapters adapters;
    for (std::int64_t expert = 0; expert < 5; ++expert) {
      const std::string at = fmt::format("layers.0.mlp.experts.{}.", expert);
      adapters.shapes[at + "gate"] = {3, 0.7};
      adapters.shapes[at + "up"] = {2, 0.7};
      adapters.shapes[at + "down"] = {4, 1.5};
    }
    expect_same_product(name, adapters, false);
  }
}

TEST(PeftWriter, RefusesExpertsWhoseAdaptersDiffer) {
  const auto message = [](auto&& edit) {
    LoraFiles files("mixtral");
    Adapters adapters = files.adapter.adapters();
    edit(adapters.shapes);
    return message_of(Fault::kUsage, [&] {
      check_peft({.model = files.model(), .family = files.family, .adapters = adapters});
    });
  };
  using Shapes = std::map<std::string, AdapterShape>;
  const std::string down = "layers.0.mlp.experts.3.down";
  for (const std::string& text : {message([&](Shapes& all) { all.erase(down); }),
                                  message([&](Shapes& all) { all[down].rank = 3; }),
                                  message([&](Shapes& all) { all[down].scale = 3; })}) {
    EXPECT_THAT(text, testing::HasSubstr(
                          "adapter: layers.0.mlp.experts.3.down has not the rank and scale of "
                          "expert 0, or no adapter, or a magnitude (DoRA), and a folder of PEFT "
                          "has one adapter for all experts of model.layers.0.mlp.experts"
                          ".down_proj; write the merged model with --to hf"));
  }
  EXPECT_THAT(message([&](Shapes& all) {
                for (auto& [name, shape] : all)
                  if (name.ends_with(".up")) shape.scale = 3;
              }),
              testing::HasSubstr("are one module in the files"));
}

TEST(PeftWriter, RefusesMagnitudesOfAPartOfAModule) {
  LoraFiles files("gpt2");
  Adapters adapters;
  adapters.shapes = {{"layers.0.attention.query", {3, 0.7, true}}};
  GivenTensors given = random_adapter(adapters, files.model());
  TempFolder folder;
  EXPECT_THAT(
      message_of(Fault::kUsage,
                 [&] {
                   write_peft(
                       folder.path(), given,
                       {.model = files.model(), .family = files.family, .adapters = adapters});
                 }),
      testing::HasSubstr("whose other rows have no magnitude"));
}

TEST(PeftWriter, PutsSeparateAdaptersOfOneModuleNextToEachOther) {
  for (const char* name : {"gpt2", "bloom", "phi3"}) {
    Adapters adapters;
    adapters.shapes = {{"layers.0.attention.query", {3, 0.7}},
                       {"layers.0.attention.value", {2, 0.7}},
                       {"layers.1.attention.output", {4, 1.5}}};
    for (const bool stable : {false, true}) expect_same_product(name, adapters, stable);
  }
}

// An adapter of query, key and value as three with equal A; tools/oracle/lora.py has its logits.
TEST(PeftWriter, WritesTheLogitsOfOneAdapterAsThreeNextToEachOther) {
  for (const char* name : {"gpt2", "bloom"}) {
    LoraFiles files(name);
    Adapters three;
    GivenTensors given;
    const auto copy = [&](const std::string& from, const std::string& to) {
      for (const CanonicalTensor& one : files.adapter.tensors(TensorKind::kWeight)) {
        if (one.name != from) continue;
        given.all[to] = test::tensor_of(one.dtype, one.shape, test::values_of(files.adapter, one));
      }
    };
    for (const auto& [linear, shape] : files.adapter.adapters().shapes) {
      for (const std::string& matrix : matrices_of(linear)) {
        three.shapes[matrix] = shape;
        copy(linear + std::string(kAdapterA), matrix + std::string(kAdapterA));
        copy(matrix + std::string(kAdapterB), matrix + std::string(kAdapterB));
      }
    }
    const auto folder = written_folder(std::string(name) + "-three");
    write_peft(folder, given, {.model = files.model(), .family = files.family, .adapters = three});
    PeftSource written(folder, files.model(), files.family);
    EXPECT_EQ(written.adapters().find("layers.0.attention.qkv")->rank, 12) << name;
    MergedSource ours(files.base, written, written.adapters());
    MergedSource wanted(files.base, files.adapter, files.adapter.adapters());
    for (const CanonicalTensor& tensor : files.base.tensors(TensorKind::kWeight)) {
      EXPECT_LT(
          test::largest_distance(test::values_of(ours, tensor), test::values_of(wanted, tensor)),
          1e-12)
          << name << " " << tensor.name;
    }
  }
}

TEST(PeftWriter, WritesAnAdapterOfSeveralModulesForEach) {
  Adapters adapters;
  adapters.shapes = {{"layers.0.attention.qkv", {3, 0.5}}, {"layers.1.mlp.gate_up", {2, 2}}};
  expect_same_product("llama", adapters, false);
  expect_same_product("qwen2", adapters, true);
}

// What is one module of Qwen3-Next is several of Qwen 3.5, and the other way round.
TEST(PeftWriter, WritesAdaptersOfTheGatedDeltaRuleForTheModulesOfEachFamily) {
  Adapters adapters;
  adapters.shapes = {{"layers.0.delta.qkv", {3, 0.7}},      {"layers.0.delta.gate", {2, 0.7}},
                     {"layers.1.delta.strength", {2, 1.5}}, {"layers.1.delta.qkv_gate", {4, 0.5}},
                     {"layers.2.delta.input", {3, 0.5}},    {"layers.2.delta.output", {2, 1}},
                     {"layers.3.attention.gate", {2, 1}}};
  for (const char* name : {"qwen3.5", "qwen3-next"}) expect_same_product(name, adapters, false);
  adapters.shapes["layers.3.attention.qkv_gate"] = {4, 2};
  adapters.shapes.erase("layers.3.attention.gate");
  for (const char* name : {"qwen3.5", "qwen3-next"}) expect_same_product(name, adapters, true);
}

// One A of query, key and value, and one of the gate: the rank of the module is the sum of two.
TEST(PeftWriter, WritesASharedAOnceInAModule) {
  LoraFiles files("qwen3-next");
  Adapters adapters;
  adapters.shapes = {{"layers.0.delta.qkv", {3, 1}}, {"layers.0.delta.gate", {2, 1}}};
  GivenTensors given = random_adapter(adapters, files.model());
  TempFolder folder;
  write_peft(folder.path(), given,
             {.model = files.model(), .family = files.family, .adapters = adapters});
  const PeftSource written(folder.path(), files.model(), files.family);
  EXPECT_EQ(written.adapters().find("layers.0.delta.qkv_gate")->rank, 5);
}

TEST(PeftWriter, RefusesModulesOfTwoScales) {
  LoraFiles files("gpt2");
  Adapters adapters;
  adapters.shapes = {{"layers.0.attention.query", {3, 0.7}}, {"layers.0.attention.value", {3, 1}}};
  GivenTensors given = random_adapter(adapters, files.model());
  TempFolder folder;
  EXPECT_THAT(
      message_of(Fault::kUsage,
                 [&] {
                   write_peft(
                       folder.path(), given,
                       {.model = files.model(), .family = files.family, .adapters = adapters});
                 }),
      testing::HasSubstr("are one module in the files"));
}

}  // namespace
}  // namespace piton
