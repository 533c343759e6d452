// Adapters of PEFT: with them, a model has the logits, gradients and ten training steps of PEFT
// (tests/golden/lora, made by tools/oracle/lora.py in float64). Faults in the files.
#include "adapters/peft_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/files/files.h"
#include "base/json.h"
#include "model/lora/lora_options.h"
#include "optim/learning_rate.h"
#include "support/errors.h"
#include "support/golden_lora.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using test::HostMachine;
using test::kLoraCases;
using test::kQloraCases;
using test::LoraFiles;
using testing::HasSubstr;

// The cases of LoRA and DoRA, and those over a base in NF4.
std::vector<std::string> all_cases() {
  std::vector<std::string> all(std::begin(kLoraCases), std::end(kLoraCases));
  all.insert(all.end(), std::begin(kQloraCases), std::end(kQloraCases));
  return all;
}

SessionSettings settings_of(const std::string& name, const LoraFiles& files, SessionUse use) {
  return {.model = files.model(),
          .optimizer_options =
              {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_grad = 1.0},
          .use = use,
          .adapters = files.adapter.adapters(),
          .codes = test::is_qlora(name) ? codes_in(*code_format("--qlora", "nf4"), "--qlora")
                                        : CodesOfParameter()};
}

TEST(PeftSource, GivesTheLogitsOfPeft) {
  for (const std::string& name : all_cases()) {
    for (const SessionUse use : {SessionUse::kInference, SessionUse::kTraining}) {
      HostMachine machine;
      LoraFiles files(name);
      Mesh mesh(*machine.world, MeshSizes{});
      Session session(machine.machine, mesh, settings_of(name, files, use));
      test::load_lora(session, files.base, files.adapter, machine);
      EXPECT_LT(test::largest_distance(test::logits_of(session, files.model(), files.tokens()),
                                       test::values(files.expected.tensor("logits"))),
                test::loses_digits(name) ? 1e-3 : 1e-4)
          << name;
    }
  }
}

MicroBatch batch_of(const Tensor& ids, std::int64_t first, std::int64_t samples) {
  const std::int64_t length = ids.dim(-1);
  MicroBatch batch{.samples = samples, .sequence = length - 1};
  for (std::int64_t sample = first; sample < first + samples; ++sample) {
    const std::int32_t* row = ids.data<std::int32_t>() + sample * length;
    batch.tokens.insert(batch.tokens.end(), row, row + length - 1);
    batch.labels.insert(batch.labels.end(), row + 1, row + length);
    for (std::int64_t i = 0; i < length - 1; ++i)
      batch.positions.push_back(static_cast<std::int32_t>(i));
  }
  batch.loss_mask.assign(batch.tokens.size(), 1.0F);
  return batch;
}

// gradients.safetensors as an adapter whose tensors are the gradients.
TEST(PeftSource, GivesEveryGradientOfPeft) {
  for (const std::string& name : all_cases()) {
    HostMachine machine(test::loses_digits(name) ? test::reference_kernels
                                                 : HostMachine::cpu_kernels);
    LoraFiles files(name);
    TempFolder folder;
    std::filesystem::copy_file(test::lora_folder(name) / "gradients.safetensors",
                               folder / kPeftWeightsName);
    std::filesystem::copy_file(test::lora_folder(name) / kPeftConfigName, folder / kPeftConfigName);
    PeftSource wanted(folder.path(), files.model(), files.family);
    Mesh mesh(*machine.world, MeshSizes{});
    SessionSettings settings = settings_of(name, files, SessionUse::kGradients);
    if (test::loses_digits(name)) settings.model.dtype = DType::kF64;
    Session session(machine.machine, mesh, settings);
    test::load_lora(session, files.base, files.adapter, machine);
    const Tensor tokens = files.expected.tensor("tokens");
    const StepReport report = session.gradients({batch_of(tokens, 0, 1)}, 0);
    const double loss = test::value_at(files.expected.tensor("loss"), 0);
    EXPECT_NEAR(report.loss, loss, 1e-5 * loss) << name;
    test::expect_gradients(session, wanted, name);
  }
}

TEST(PeftSource, TrainsAsInPeftAndKeepsTheModel) {
  for (const std::string& name : all_cases()) {
    HostMachine machine;
    LoraFiles files(name);
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(machine.machine, mesh, settings_of(name, files, SessionUse::kTraining));
    test::load_lora(session, files.base, files.adapter, machine);
    std::map<std::string, std::vector<double>> before;
    for (Parameter* parameter : session.parameters()) {
      if (!parameter->trainable && !parameter->codes.given())
        before[parameter->name] = test::values(parameter->value);
    }
    const Tensor batches = files.expected.tensor("batches");  // [steps, samples, s + 1]
    const std::int64_t samples = batches.dim(1);
    // Where fp32 loses digits, each step loses more.
    const bool few = test::loses_digits(name);
    for (std::int64_t step = 0; step < (few ? 3 : batches.dim(0)); ++step) {
      const StepReport report =
          session.train_step({batch_of(batches, step * samples, samples)}, 0, 1e-3);
      const double loss = test::value_at(files.expected.tensor("losses"), step);
      const double norm = test::value_at(files.expected.tensor("norms"), step);
      EXPECT_NEAR(report.loss, loss, 1e-5 * loss) << name << ", step " << step;
      EXPECT_NEAR(report.grad_norm, norm, (few ? 1e-2 : 1e-4) * norm) << name << ", step " << step;
    }
    EXPECT_FALSE(before.empty());
    for (Parameter* parameter : session.parameters()) {
      if (parameter->trainable || parameter->codes.given()) continue;
      EXPECT_EQ(test::values(parameter->value), before.at(parameter->name));
    }
  }
}

// Norms that are trained too, and DoRA's magnitudes, have the rate of B.
TEST(PeftSource, TrainsByLoraPlusAsInPeft) {
  std::ifstream file(test::lora_folder("loraplus.txt"));
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    ++cases;
    std::istringstream words(line);
    std::string name;
    LearningRateOptions options{.lr = 1e-3, .decay_style = DecayStyle::kConstant};
    options.lora_plus_ratio = 0;
    words >> name >> *options.lora_plus_ratio;
    HostMachine machine;
    LoraFiles files(name);
    Mesh mesh(*machine.world, MeshSizes{});
    SessionSettings settings = settings_of(name, files, SessionUse::kTraining);
    settings.optimizer_options.weight_decay = 0;
    settings.optimizer_options.separate_rates = options.separate_groups();
    Session session(machine.machine, mesh, settings);
    test::load_lora(session, files.base, files.adapter, machine);
    const GroupRates rates = LearningRate(options, 10, 1).of_groups(0);
    const Tensor batches = files.expected.tensor("batches");
    const std::int64_t samples = batches.dim(1);
    std::vector<double> peft(20);
    for (double& one : peft) words >> one;
    ASSERT_TRUE(words);
    for (std::size_t step = 0; step < 10; ++step) {
      const StepReport report = session.train_step(
          {batch_of(batches, static_cast<std::int64_t>(step) * samples, samples)}, 0, rates);
      EXPECT_NEAR(report.loss, peft[step], 1e-5 * peft[step]) << name << ", step " << step;
      EXPECT_NEAR(report.grad_norm, peft[10 + step], 1e-4 * peft[10 + step])
          << name << ", step " << step;
    }
  }
  EXPECT_EQ(cases, 3);
}

TEST(PeftSource, KnowsRanksAndScalesOfEveryModule) {
  const Adapters qwen2 = LoraFiles("qwen2").adapter.adapters();
  EXPECT_EQ(qwen2.shapes.size(), 14U);
  EXPECT_EQ(*qwen2.find("layers.0.attention.query"), (AdapterShape{4, 3}));  // 6 / sqrt(4)
  EXPECT_EQ(*qwen2.find("layers.0.attention.value"), (AdapterShape{2, 6 / std::sqrt(2.0)}));
  EXPECT_EQ(*qwen2.find("layers.1.mlp.up"), (AdapterShape{4, 2.5}));
  const Adapters gpt2 = LoraFiles("gpt2").adapter.adapters();
  EXPECT_EQ(*gpt2.find("layers.1.attention.qkv"), (AdapterShape{4, 1.5}));
  EXPECT_EQ(gpt2.find("layers.1.attention.query"), nullptr);
  const Adapters phi3 = LoraFiles("phi3").adapter.adapters();
  EXPECT_EQ(phi3.find("layers.0.mlp.gate_up"), nullptr);  // layers_to_transform
  EXPECT_NE(phi3.find("layers.1.mlp.gate_up"), nullptr);
  const Adapters next = LoraFiles("qwen3-next").adapter.adapters();
  EXPECT_EQ(*next.find("layers.0.delta.qkv_gate"), (AdapterShape{4, 3}));
  EXPECT_EQ(*next.find("layers.2.delta.strength_decay"), (AdapterShape{2, 6 / std::sqrt(2.0)}));
  EXPECT_EQ(*next.find("layers.1.delta.output"), (AdapterShape{4, 2.5}));
  EXPECT_NE(next.find("layers.3.attention.query_gate"), nullptr);
  const Adapters granite = LoraFiles("granite4-mamba").adapter.adapters();
  EXPECT_EQ(*granite.find("layers.0.mamba.input"), (AdapterShape{3, 2}));
  EXPECT_EQ(*granite.find("layers.2.mamba.output"), (AdapterShape{4, 1.25}));
  EXPECT_EQ(*granite.find("layers.1.mlp.gate_up"), (AdapterShape{4, 1.5}));
  const Adapters nemotron = LoraFiles("nemotron-h").adapter.adapters();
  EXPECT_EQ(*nemotron.find("layers.1.mamba.input"), (AdapterShape{2, 6 / std::sqrt(2.0)}));
  EXPECT_EQ(*nemotron.find("layers.2.mlp.up"), (AdapterShape{4, 3}));
  const Adapters deepseek = LoraFiles("deepseek-v3").adapter.adapters();
  EXPECT_EQ(*deepseek.find("layers.0.mlp.gate"), (AdapterShape{4, 3}));
  EXPECT_EQ(*deepseek.find("layers.1.attention.latent"), (AdapterShape{2, 6 / std::sqrt(2.0)}));
  EXPECT_EQ(*deepseek.find("layers.1.mlp.shared.up"), (AdapterShape{4, 3}));
  EXPECT_EQ(*deepseek.find("layers.1.mlp.experts.7.gate_up"),
            (AdapterShape{3, 6 / std::sqrt(3.0)}));
  EXPECT_EQ(*deepseek.find("layers.1.mlp.experts.7.down"), (AdapterShape{4, 3}));
  const Adapters mixtral = LoraFiles("mixtral").adapter.adapters();
  EXPECT_EQ(*mixtral.find("layers.1.mlp.experts.4.gate"), (AdapterShape{4, 1.5}));
  EXPECT_EQ(*mixtral.find("layers.0.mlp.experts.0.down"), (AdapterShape{4, 1.25}));
  const Adapters llama = LoraFiles("llama").adapter.adapters();
  EXPECT_EQ(llama.trained, (std::set<std::string>{"final_norm.weight", "head.weight"}));
}

// The adapter of LLaMA after `edit` of its tensors.
template <typename Edit>
std::string message_after(Edit&& edit) {
  const HfSource base(test::golden_folder("llama"));
  const SafetensorsFile golden(test::lora_folder("llama") / kPeftWeightsName);
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& entry : golden.entries())
    tensors[entry.name] = golden.tensor(entry.name);
  edit(tensors);
  TempFolder folder;
  write_safetensors(folder / kPeftWeightsName, tensors);
  std::filesystem::copy_file(test::lora_folder("llama") / kPeftConfigName,
                             folder / kPeftConfigName);
  return message_of(Fault::kData,
                    [&] { PeftSource(folder.path(), base.model(), hf_family(base.config())); });
}

TEST(PeftSource, RefusesWhatIsNoAdapterOfTheModel) {
  using Tensors = std::map<std::string, Tensor>;
  const std::string query = "base_model.model.model.layers.0.self_attn.q_proj.";
  EXPECT_THAT(message_after([&](Tensors& all) { all.erase(query + "lora_B.weight"); }),
              HasSubstr("lora_B of model.layers.0.self_attn.q_proj is missing"));
  EXPECT_THAT(message_after([&](Tensors& all) {
                all[query + "lora_A.weight"] = host_tensor(DType::kF32, {5, 32});
              }),
              HasSubstr("q_proj.lora_A.weight is [5, 32], wanted [4, 32]"));
  EXPECT_THAT(message_after([&](Tensors& all) {
                all["base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight"] =
                    host_tensor(DType::kF32, {4, 32});
              }),
              HasSubstr("no adapter of a linear of this model, and no part of it (1)"));
  EXPECT_THAT(message_after([&](Tensors& all) {
                all["base_model.model.model.embed_tokens.lora_embedding_A"] =
                    host_tensor(DType::kF32, {4, 131});
              }),
              HasSubstr("lora_embedding_A"));
  EXPECT_THAT(message_after([&](Tensors& all) {
                all[query + "lora_A.weight"] = host_tensor(DType::kI32, {4, 32});
              }),
              HasSubstr("is of type I32, wanted F32"));
  EXPECT_THAT(message_after([&](Tensors& all) { all.clear(); }), HasSubstr("no adapter"));
}

// The code in NVIDIA's folders has modules of these names.
TEST(PeftSource, ReadsModulesThatAreNamedAsInTheFiles) {
  LoraFiles files("nemotron-h");
  const SafetensorsFile golden(test::lora_folder("nemotron-h") / kPeftWeightsName);
  std::map<std::string, Tensor> tensors;
  const std::string newer = "base_model.model.model.";
  for (const SafetensorsEntry& entry : golden.entries()) {
    ASSERT_TRUE(entry.name.starts_with(newer)) << entry.name;
    tensors["base_model.model.backbone." + entry.name.substr(newer.size())] =
        golden.tensor(entry.name);
  }
  TempFolder folder;
  write_safetensors(folder / kPeftWeightsName, tensors);
  std::filesystem::copy_file(test::lora_folder("nemotron-h") / kPeftConfigName,
                             folder / kPeftConfigName);
  PeftSource older(folder.path(), files.model(), files.family);
  EXPECT_EQ(older.adapters().shapes, files.adapter.adapters().shapes);
  for (const CanonicalTensor& tensor : files.adapter.tensors(TensorKind::kWeight))
    EXPECT_EQ(test::values_of(older, tensor), test::values_of(files.adapter, tensor))
        << tensor.name;
}

// The same adapter of DoRA after `edit` of its tensors.
TEST(PeftSource, RefusesMagnitudesThatAreMissingOrNotAnnounced) {
  const auto message = [](const std::string& config, bool with_magnitudes) {
    const LoraFiles files("qwen2_dora");
    const SafetensorsFile golden(test::lora_folder("qwen2_dora") / kPeftWeightsName);
    std::map<std::string, Tensor> tensors;
    for (const SafetensorsEntry& entry : golden.entries()) {
      if (with_magnitudes || entry.name.find("magnitude") == std::string::npos)
        tensors[entry.name] = golden.tensor(entry.name);
    }
    TempFolder folder;
    write_safetensors(folder / kPeftWeightsName, tensors);
    std::filesystem::copy_file(test::lora_folder(config) / kPeftConfigName,
                               folder / kPeftConfigName);
    return message_of(Fault::kData,
                      [&] { PeftSource(folder.path(), files.model(), files.family); });
  };
  EXPECT_THAT(message("qwen2_dora", false), HasSubstr("lora_magnitude_vector of model.layers"));
  EXPECT_THAT(message("llama", true), HasSubstr("use_dora of adapter_config.json is not true"));
}

// Of Qwen3-Next: layers with the gated delta rule, and experts.
TEST(PeftSource, RefusesAdaptersOfWhatIsNoLinearOfTheLayer) {
  const auto message = [](const std::string& module, std::int64_t in, std::int64_t out) {
    const LoraFiles files("qwen3-next");
    const SafetensorsFile golden(test::lora_folder("qwen3-next") / kPeftWeightsName);
    std::map<std::string, Tensor> tensors;
    for (const SafetensorsEntry& entry : golden.entries())
      tensors[entry.name] = golden.tensor(entry.name);
    const std::string name = "base_model.model.model.layers.0." + module;
    tensors[name + ".lora_A.weight"] = host_tensor(DType::kF32, {4, in});
    tensors[name + ".lora_B.weight"] = host_tensor(DType::kF32, {out, 4});
    TempFolder folder;
    write_safetensors(folder / kPeftWeightsName, tensors);
    std::filesystem::copy_file(test::lora_folder("qwen3-next") / kPeftConfigName,
                               folder / kPeftConfigName);
    return message_of(Fault::kData, [&] {
      const PeftSource source(folder.path(), files.model(), files.family);
      check_computed(files.model(), source.adapters(), "adapter");
    });
  };
  EXPECT_THAT(message("linear_attn.conv1d", 4, 44),
              HasSubstr("has an adapter of model.layers.0.linear_attn.conv1d; wanted adapters of "
                        "linears"));
  EXPECT_THAT(message("self_attn.q_proj", 32, 128),
              HasSubstr("tensors that are no adapter of a linear of this model"));
  // Of the model, but only merged into it.
  EXPECT_THAT(message("mlp.gate", 32, 6),
              HasSubstr("adapter: has an adapter of layers.0.mlp.router, which can only be merged "
                        "into the model; give what piton convert"));
  EXPECT_THAT(message("mlp.experts.1.gate_proj", 32, 18),
              HasSubstr("has an adapter of layers.0.mlp.experts.1.gate, and not of every expert of "
                        "the layer with the same rank and scale"));
}

// The adapter of DeepSeek-V3 after `edit` of its tensors and of its configuration.
template <typename Edit>
std::string message_of_experts_after(Edit&& edit) {
  const LoraFiles files("deepseek-v3");
  const SafetensorsFile golden(test::lora_folder("deepseek-v3") / kPeftWeightsName);
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& entry : golden.entries())
    tensors[entry.name] = golden.tensor(entry.name);
  auto config = read_json<nlohmann::json>(read_peft_config(test::lora_folder("deepseek-v3")));
  edit(tensors, config);
  TempFolder folder;
  write_safetensors(folder / kPeftWeightsName, tensors);
  write_text_file(folder / kPeftConfigName, config.dump());
  return message_of(Fault::kData, [&] { PeftSource(folder.path(), files.model(), files.family); });
}

TEST(PeftSource, RefusesParametersOfExpertsOfAnotherShape) {
  using Tensors = std::map<std::string, Tensor>;
  using Json = nlohmann::json;
  const std::string experts = "base_model.model.model.layers.1.mlp.experts.";
  EXPECT_THAT(message_of_experts_after([&](Tensors& all, Json&) {
                all[experts + "lora_A.weight"] = host_tensor(DType::kF32, {28, 18});
              }),
              HasSubstr("mlp.experts.lora_A.weight is [28, 18], wanted [32, 18]"));
  EXPECT_THAT(message_of_experts_after([&](Tensors& all, Json&) {
                all[experts + "base_layer.lora_B.weight"] = host_tensor(DType::kF32, {18, 24});
              }),
              HasSubstr("mlp.experts.base_layer.lora_B.weight is [18, 24], wanted [36, 24]"));
  EXPECT_THAT(message_of_experts_after(
                  [&](Tensors& all, Json&) { all.erase(experts + "base_layer.lora_A.weight"); }),
              HasSubstr("lora_A of model.layers.1.mlp.experts.base_layer is missing"));
  EXPECT_THAT(message_of_experts_after([&](Tensors&, Json& config) {
                config["target_parameters"] = {"experts.down_proj"};
              }),
              HasSubstr("no adapter of a linear of this model, and no part of it (1): "
                        "base_model.model.model.layers.1.mlp.experts.base_layer.lora_A"));
  EXPECT_THAT(message_of_experts_after([&](Tensors&, Json& config) {
                config["rank_pattern"].erase("experts.gate_up_proj");
              }),
              HasSubstr("is [24, 32], wanted [32, 32]"));
}

// Older versions of PEFT keep the adapter's name and the wrapper of a module in the names.
TEST(PeftSource, ReadsTheNamesOfOlderVersions) {
  const HfSource base(test::golden_folder("llama"));
  const SafetensorsFile golden(test::lora_folder("llama") / kPeftWeightsName);
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& entry : golden.entries()) {
    std::string name = entry.name;
    if (name.find("lora_") == name.npos) {
      tensors[name.substr(0, name.rfind('.')) + ".original_module.weight"] =
          golden.tensor(entry.name);
      name.insert(name.rfind('.'), ".modules_to_save.default");
    } else {
      name.insert(name.rfind('.'), ".default");
    }
    tensors[name] = golden.tensor(entry.name);
  }
  TempFolder folder;
  write_safetensors(folder / kPeftWeightsName, tensors);
  std::filesystem::copy_file(test::lora_folder("llama") / kPeftConfigName,
                             folder / kPeftConfigName);
  PeftSource older(folder.path(), base.model(), hf_family(base.config()));
  LoraFiles files("llama");
  EXPECT_EQ(older.adapters(), files.adapter.adapters());
  for (const CanonicalTensor& tensor : files.adapter.tensors(TensorKind::kWeight))
    EXPECT_EQ(test::values_of(older, tensor), test::values_of(files.adapter, tensor));
}

// Trained with the class of the whole model, whose language model has other names. Of an adapter of
// the vision part no tensor is left out in silence.
TEST(PeftSource, ReadsAdaptersOfAModelWithAVisionPart) {
  const LoraFiles files("qwen3.5");
  const SafetensorsFile golden(test::lora_folder("qwen3.5") / kPeftWeightsName);
  const std::string prefix = "base_model.model.model.";
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsEntry& entry : golden.entries()) {
    tensors[prefix + "language_model." + entry.name.substr(prefix.size())] =
        golden.tensor(entry.name);
  }
  TempFolder folder;
  std::filesystem::copy_file(test::lora_folder("qwen3.5") / kPeftConfigName,
                             folder / kPeftConfigName);
  write_safetensors(folder / kPeftWeightsName, tensors);
  PeftSource whole(folder.path(), files.model(), files.family);
  LoraFiles same("qwen3.5");
  EXPECT_EQ(whole.adapters(), same.adapter.adapters());
  for (const CanonicalTensor& tensor : same.adapter.tensors(TensorKind::kWeight))
    EXPECT_EQ(test::values_of(whole, tensor), test::values_of(same.adapter, tensor));
  tensors[prefix + "visual.blocks.0.attn.proj.lora_A.weight"] = host_tensor(DType::kF32, {4, 8});
  write_safetensors(folder / kPeftWeightsName, tensors);
  EXPECT_THAT(
      message_of(Fault::kData, [&] { PeftSource(folder.path(), files.model(), files.family); }),
      HasSubstr("no adapter of a linear of this model, and no part of it (1): "
                "base_model.model.model.visual.blocks.0.attn.proj.lora_A.weight"));
}

// Also to find out whether the adapter makes a reward model.
TEST(PeftSource, ReadsNoConfigurationOutsideOfItsFolder) {
  TempFolder folder;
  std::filesystem::create_symlink(test::lora_folder("llama") / kPeftConfigName,
                                  folder / kPeftConfigName);
  EXPECT_THAT(message_of(Fault::kData, [&] { labels_of_adapter(folder.path()); }),
              HasSubstr("adapter_config.json: a link that leads out of the folder"));
}

}  // namespace
}  // namespace piton
