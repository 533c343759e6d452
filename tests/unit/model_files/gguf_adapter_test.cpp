// Adapters in GGUF files: one of tools/oracle/gguf_lora.py has the tensors of the same adapter in a
// folder of PEFT, and what is written is read again.
#include "model_files/gguf_adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "adapters/peft_source.h"
#include "base/files/files.h"
#include "checkpoint/values.h"
#include "huggingface/family.h"
#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;

std::filesystem::path golden() {
  return std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/lora_gguf";
}

std::vector<double> values_of(TensorSource& source, const CanonicalTensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.shape.elements()));
  source.read(tensor.name, whole_run(tensor.shape), DType::kF64,
              reinterpret_cast<std::byte*>(values.data()));
  return values;
}

void expect_same(TensorSource& got, TensorSource& wanted) {
  const auto tensors = wanted.tensors(TensorKind::kWeight);
  ASSERT_EQ(got.tensors(TensorKind::kWeight).size(), tensors.size());
  for (const CanonicalTensor& tensor : tensors)
    EXPECT_EQ(values_of(got, tensor), values_of(wanted, tensor)) << tensor.name;
}

TEST(GgufAdapter, HasTheTensorsOfTheFolderOfPeft) {
  const HfSource base(test::golden_folder("llama"));
  PeftSource peft(golden(), base.model(), hf_family(base.config()));
  GgufAdapterSource gguf(golden() / "adapter.gguf", base.model());
  EXPECT_EQ(gguf.adapters().shapes, peft.adapters().shapes);
  EXPECT_TRUE(gguf.tensors(TensorKind::kOptimizer).empty());
  expect_same(gguf, peft);
  const CanonicalTensor key = gguf.tensors(TensorKind::kWeight)[1];
  std::vector<float> part(6);  // of rows 2 and 3, columns 1 to 3
  gguf.read(key.name, {{2, 1}, {2, 3}, 0, 6}, DType::kF32,
            reinterpret_cast<std::byte*>(part.data()));
  const auto all = values_of(gguf, key);
  for (std::int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(part[i], all[(2 + i / 3) * key.shape[1] + 1 + i % 3]) << key.name;
}

TEST(GgufAdapter, IsWrittenAsItIsRead) {
  const HfSource base(test::golden_folder("llama"));
  PeftSource peft(golden(), base.model(), hf_family(base.config()));
  TempFolder folder;
  write_gguf_adapter(
      folder / "a.gguf", peft,
      {.model = base.model(), .architecture = "llama", .adapters = peft.adapters(), .name = "a"});
  GgufAdapterSource again(folder / "a.gguf", base.model());
  EXPECT_EQ(again.adapters().shapes, peft.adapters().shapes);
  expect_same(again, peft);
  // The same tensors of the file as those of the other program, bit for bit but for their type.
  const GgufFile ours(folder / "a.gguf");
  const GgufFile theirs(golden() / "adapter.gguf");
  ASSERT_EQ(ours.header().tensors.size(), theirs.header().tensors.size());
  for (const GgufTensor& tensor : theirs.header().tensors) {
    const auto same = [&](const GgufTensor& one) { return one.name == tensor.name; };
    const auto found = std::ranges::find_if(ours.header().tensors, same);
    ASSERT_NE(found, ours.header().tensors.end()) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
  }
  for (const char* key :
       {"general.architecture", "general.type", "adapter.type", "adapter.lora.alpha"})
    EXPECT_EQ(*ours.header().find(key), *theirs.header().find(key)) << key;
}

// Numbers of one tensor after the other.
class CountedAdapter final : public TensorSource {
 public:
  explicit CountedAdapter(std::map<std::string, Shape> shapes) : shapes_(std::move(shapes)) {}

  std::string where() const override { return "an adapter"; }
  std::vector<CanonicalTensor> tensors(TensorKind) const override {
    std::vector<CanonicalTensor> all;
    for (const auto& [name, shape] : shapes_)
      all.push_back({.name = name, .dtype = DType::kF32, .shape = shape});
    return all;
  }
  // Of whole tensors.
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    std::vector<float> values(static_cast<std::size_t>(run.size()));
    std::iota(values.begin(), values.end(), static_cast<float>(1000 * name.size()));
    convert_values(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, dst, dtype,
                   run.size());
  }

 private:
  std::map<std::string, Shape> shapes_;
};

// In files of Qwen 3.5 the columns of the output of the gated delta rule are in another order: head
// of values h is number h % 3 * 2 + h / 3. So are those of A.
TEST(GgufAdapter, HasColumnsInTheOrderOfTheFile) {
  constexpr std::int64_t kWidth = 8;
  const HfSource base(test::golden_folder("qwen3.5-heads"));
  const std::string linear = "layers.0.delta.output";
  CountedAdapter source({{linear + std::string(kAdapterA), {2, 6 * kWidth}},
                         {linear + std::string(kAdapterB), {32, 2}}});
  Adapters adapters;
  adapters.shapes = {{linear, {2, 1.5}}};
  TempFolder folder;
  write_gguf_adapter(folder / "a.gguf", source,
                     {.model = base.model(), .architecture = "qwen35", .adapters = adapters});
  GgufAdapterSource again(folder / "a.gguf", base.model());
  EXPECT_EQ(again.adapters().shapes, adapters.shapes);
  expect_same(again, source);

  const GgufFile file(folder / "a.gguf");
  const GgufTensor& a = file.header().tensors[0];
  EXPECT_EQ(a.name, "blk.0.ssm_out.weight.lora_a");
  std::vector<float> stored(static_cast<std::size_t>(a.elements()));
  file.file().read_at(file.offset(a), std::as_writable_bytes(std::span(stored)));
  const auto ours = values_of(source, source.tensors(TensorKind::kWeight)[0]);
  for (std::int64_t head = 0; head < 6; ++head) {
    const std::int64_t theirs = head % 3 * 2 + head / 3;
    EXPECT_EQ(stored[6 * kWidth + theirs * kWidth + 5], ours[6 * kWidth + head * kWidth + 5]);
  }
}

// Of experts, whose matrices are one tensor.
TEST(GgufAdapter, HasTheAdaptersOfExpertsInOneTensor) {
  const HfSource base(test::golden_folder("mixtral"));
  PeftSource peft(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/lora/mixtral",
                  base.model(), hf_family(base.config()));
  Adapters adapters = peft.adapters();
  for (auto& [name, shape] : adapters.shapes) shape.scale = 1.5;
  TempFolder folder;
  const GgufAdapterWritten written{
      .model = base.model(), .architecture = "llama", .adapters = adapters};
  write_gguf_adapter(folder / "a.gguf", peft, written);
  GgufAdapterSource again(folder / "a.gguf", base.model());
  EXPECT_EQ(again.adapters().shapes, adapters.shapes);
  expect_same(again, peft);

  const GgufFile file(folder / "a.gguf");
  const auto tensor = [&](const std::string& name) {
    const auto same = [&](const GgufTensor& one) { return one.name == name; };
    return *std::ranges::find_if(file.header().tensors, same);
  };
  const GgufTensor a = tensor("blk.1.ffn_gate_exps.weight.lora_a");
  EXPECT_THAT(a.shape, testing::ElementsAre(5, 4, 32));
  EXPECT_THAT(tensor("blk.1.ffn_gate_exps.weight.lora_b").shape, testing::ElementsAre(5, 22, 4));
  EXPECT_THAT(tensor("blk.0.ffn_down_exps.weight.lora_a").shape, testing::ElementsAre(5, 4, 22));
  std::vector<float> stored(static_cast<std::size_t>(a.elements()));
  file.file().read_at(file.offset(a), std::as_writable_bytes(std::span(stored)));
  const CanonicalTensor third{
      .name = "layers.1.mlp.experts.3.gate.lora_a", .dtype = DType::kF32, .shape = {4, 32}};
  const std::vector<double> ours = values_of(peft, third);
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(stored[3 * ours.size() + i], ours[i]);
  EXPECT_THAT(gguf_adapter_summary(folder / "a.gguf").ranks, testing::ElementsAre(4));

  const auto message = [&](auto&& edit) {
    Adapters other = adapters;
    edit(other.shapes);
    return message_of(Fault::kUsage, [&] {
      write_gguf_adapter(folder / "b.gguf", peft,
                         {.model = base.model(), .architecture = "llama", .adapters = other});
    });
  };
  using Shapes = std::map<std::string, AdapterShape>;
  const std::string up = "layers.0.mlp.experts.2.up";
  EXPECT_THAT(message([&](Shapes& all) { all.erase(up); }),
              HasSubstr("is a part of blk.0.ffn_up_exps.weight in a GGUF file, whose matrices have "
                        "no adapter each of the same rank; write the merged model"));
  EXPECT_THAT(message([&](Shapes& all) { all[up] = {2, 3}; }), HasSubstr("each of the same rank"));
}

TEST(GgufAdapter, RefusesWhatLlamaCppDoesNotUse) {
  const HfSource base(test::golden_folder("deepseek-v3"));
  TempFolder folder;
  for (const char* matrix : {"query_down", "query", "latent", "key_value"}) {
    const std::string linear = std::string("layers.0.attention.") + matrix;
    CountedAdapter none({});
    Adapters adapters;
    adapters.shapes = {{linear, {4, 1.5}}};
    EXPECT_THAT(
        message_of(
            Fault::kUsage,
            [&] {
              write_gguf_adapter(
                  folder / "a.gguf", none,
                  {.model = base.model(), .architecture = "deepseek2", .adapters = adapters});
            }),
        HasSubstr(linear + " is of latent attention, where llama.cpp uses adapters of the output "
                           "alone; write the merged model with --to gguf"));
  }
}

TEST(GgufAdapter, RefusesWhatIsNoAdapterOfTheModel) {
  const HfSource base(test::golden_folder("llama"));
  const HfSource other(test::golden_folder("llama3"));
  EXPECT_THAT(message_of(Fault::kData,
                         [&] { GgufAdapterSource(golden() / "adapter.gguf", other.model()); }),
              HasSubstr("for another model"));
  TempFolder folder;
  PeftSource peft(golden(), base.model(), hf_family(base.config()));
  const auto message = [&](Adapters adapters) {
    return message_of(Fault::kUsage, [&] {
      write_gguf_adapter(folder / "b.gguf", peft,
                         {.model = base.model(), .architecture = "llama", .adapters = adapters});
    });
  };
  Adapters dora = peft.adapters();
  for (auto& [name, shape] : dora.shapes) shape.magnitude = true;
  EXPECT_THAT(message(dora), HasSubstr("has magnitudes (DoRA)"));
  Adapters scaled = peft.adapters();
  scaled.shapes.begin()->second.scale = 7;
  EXPECT_THAT(message(scaled), HasSubstr("scale x rank 6, others have 28"));
  Adapters trained = peft.adapters();
  trained.trained = {"final_norm.weight"};
  EXPECT_THAT(message(trained), HasSubstr("final_norm.weight is trained in full"));
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] {
                           Adapters query;
                           query.shapes = {{"layers.0.attention.query", {4, 1.5}}};
                           const HfSource gpt2(test::golden_folder("gpt2"));
                           write_gguf_adapter(
                               folder / "c.gguf", peft,
                               {.model = gpt2.model(), .architecture = "gpt2", .adapters = query});
                         }),
              HasSubstr("is a part of blk.0.attn_qkv.weight in a GGUF file"));
}

TEST(GgufAdapterSummary, IsReadWithoutTheModel) {
  const GgufAdapterSummary adapter = gguf_adapter_summary(golden() / "adapter.gguf");
  EXPECT_EQ(adapter.architecture, "llama");
  EXPECT_EQ(adapter.alpha, 6);
  EXPECT_THAT(adapter.ranks, testing::ElementsAre(4));
  EXPECT_THAT(adapter.targets,
              testing::ElementsAre("attn_k", "attn_q", "attn_v", "ffn_down", "ffn_up"));
  EXPECT_EQ(adapter.modules, 10);
  EXPECT_EQ(adapter.tensors.size(), 20U);
  // Of 2 layers: rank 4 of [32, 32], twice [16, 32], [53, 32] and [32, 53].
  EXPECT_EQ(adapter.parameters, 2 * 4 * (64 + 2 * 48 + 2 * 85));
  EXPECT_TRUE(is_gguf_adapter(golden() / "adapter.gguf"));
}

}  // namespace
}  // namespace piton
