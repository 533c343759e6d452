// A merged model has the logits of the model with its adapter, and exactly W + scale B A.
#include "adapters/merged_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/golden_lora.h"

namespace piton {
namespace {

using test::kLoraCases;
using test::LoraFiles;

TEST(MergedSource, GivesTheLogitsOfPeft) {
  for (const char* name : kLoraCases) {
    test::HostMachine machine;
    LoraFiles files(name);
    MergedSource merged(files.base, files.adapter, files.adapter.adapters());
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(machine.machine, mesh, {.model = files.model(), .use = SessionUse::kInference});
    load_weights(merged, {.parameters = session.parameters(), .sharded = &session.sharded()},
                 {mesh, machine.device, machine.arena, *machine.stream});
    EXPECT_LT(test::largest_distance(test::logits_of(session, files.model(), files.tokens()),
                                     test::values(files.expected.tensor("logits"))),
              test::loses_digits(name) ? 1e-3 : 1e-4)
        << name;
  }
}

TEST(MergedSource, IsTheWeightPlusTheProductInAnyRun) {
  LoraFiles files("gpt2");
  MergedSource merged(files.base, files.adapter, files.adapter.adapters());
  const std::string layer = "layers.1.attention.";
  const auto find = [](const TensorSource& source, const std::string& name) {
    for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight)) {
      if (one.name == name) return one;
    }
    throw std::runtime_error(name);
  };
  const CanonicalTensor weight = find(merged, layer + "value.weight");
  const auto w = test::values_of(files.base, weight);
  const auto a = test::values_of(files.adapter, find(files.adapter, layer + "qkv.lora_a"));
  const auto b = test::values_of(files.adapter, find(files.adapter, layer + "value.lora_b"));
  const std::int64_t in = weight.shape[1];
  const TensorRun box{{5, 3}, {7, 11}, 4, 70};  // from the first row's end into the last one
  std::vector<double> got(static_cast<std::size_t>(box.size()));
  merged.read(weight.name, box, DType::kF64, reinterpret_cast<std::byte*>(got.data()));
  for (std::int64_t i = box.begin; i < box.end; ++i) {
    const std::int64_t row = 5 + i / 11;
    const std::int64_t column = 3 + i % 11;
    double wanted = w[row * in + column];
    for (std::int64_t r = 0; r < 4; ++r) wanted += 1.5 * b[row * 4 + r] * a[r * in + column];
    EXPECT_NEAR(got[i - box.begin], wanted, 1e-14) << i;
  }
}

TEST(MergedSource, RefusesTheAdapterOfAnotherModel) {
  LoraFiles llama("llama");
  LoraFiles gpt2("gpt2");
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] { MergedSource(gpt2.base, llama.adapter, llama.adapter.adapters()); }),
              testing::HasSubstr("this model has no"));
  Adapters more = llama.adapter.adapters();
  more.shapes["layers.0.mlp.up"] = {4, 1};
  EXPECT_THAT(message_of(Fault::kData, [&] { MergedSource(llama.base, llama.adapter, more); }),
              testing::HasSubstr("tensors of the adapter are missing: layers.0.mlp.up.lora_a"));
}

}  // namespace
}  // namespace piton
