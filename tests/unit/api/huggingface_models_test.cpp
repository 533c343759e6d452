// Models of Hugging Face folders, loaded as users load them: logits and greedy tokens of
// Transformers (tests/golden/huggingface, made by tools/oracle/huggingface.py in float64), and the
// numbers of llama2.c's stories260K.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "api/model.h"
#include "checkpoint/safetensors.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

fs::path golden(const std::string& name) {
  return fs::path(PITON_SOURCE_DIR) / "tests/golden/huggingface" / name;
}

struct TestMachine {
  HostDevice device;
  SilentLog log;
  ThreadPool threads{2};
  std::unique_ptr<Kernels> kernels = make_cpu_kernels(threads);
  Arena arena{device};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<World> world = make_single_world(device);
  Machine machine{*world, device, *kernels, arena, *stream, threads, log};
};

std::vector<std::int32_t> ids_of(const Tensor& tensor) {
  return {tensor.data<std::int32_t>(), tensor.data<std::int32_t>() + tensor.elements()};
}

TEST(HuggingFaceModel, GivesTheLogitsAndTheGreedyTextOfTransformers) {
  for (const char* name : {"gpt2", "llama", "llama3", "qwen2", "qwen3", "mistral"}) {
    TestMachine machine;
    const auto model = Model::load(machine.machine, golden(name), {});
    const SafetensorsFile expected(golden(name) / "expected.safetensors");
    const std::vector<std::int32_t> tokens = ids_of(expected.tensor("tokens"));
    const Tensor wanted = expected.tensor("logits");
    const Tensor got = model->logits(tokens);
    ASSERT_EQ(got.shape(), wanted.shape());
    double worst = 0;
    for (std::int64_t i = 0; i < got.elements(); ++i)
      worst = std::max(worst, std::abs(test::value_at(got, i) - test::value_at(wanted, i)));
    EXPECT_LT(worst, 1e-4) << name;
    const std::vector<std::int32_t> greedy = ids_of(expected.tensor("greedy"));
    std::vector<std::int32_t> written;
    model->generate(std::span(tokens).first(7),
                    {.max_new_tokens = std::ssize(greedy), .greedy = true},
                    [&](const GeneratedToken& token) {
                      written.push_back(token.id);
                      return true;
                    });
    EXPECT_EQ(written, greedy) << name;
  }
}

TEST(HuggingFaceModel, WhoseTokenizerHasMoreIdsThanItsTableHasRowsIsRefused) {
  TestMachine machine;
  EXPECT_THAT(
      message_of(Fault::kData,
                 [&] { Model::load(machine.machine, golden("llama"), {.type = "ByteTokenizer"}); }),
      testing::HasSubstr("the tokenizer has 257 ids, the model's table 131 rows"));
}

}  // namespace
}  // namespace piton
