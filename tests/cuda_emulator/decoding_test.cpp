// Texts that the engine writes by the CUDA back end on the emulator: their tokens are those of the
// CPU, with keys and values in the model's type and in 8 bits.
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/load_values.h"
#include "cuda_emulator/capture.h"
#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "unit/checkpoint/drawn_tensors.h"
#include "unit/generate/small_engine.h"

namespace piton::cuda {
namespace {

class Decoder {
 public:
  // `codes`: a format of --quantize, or empty.
  Decoder(Device& device, Kernels& kernels, const ModelConfig& model, const std::string& codes)
      : world_(make_single_world(device)),
        arena_(device, std::int64_t{1} << 20),
        stream_(device.make_stream()),
        machine_{*world_, device, kernels, arena_, *stream_, threads_, log_},
        mesh_(*world_, MeshSizes{}),
        session_(machine_, mesh_,
                 {.model = model,
                  .seed = 3,
                  .use = SessionUse::kInference,
                  .codes = codes.empty() ? CodesOfParameter()
                                         : codes_in(*code_format("", codes), "--quantize")}) {
    session_.initialize();
    if (!codes.empty()) load();
    inference_.emplace(session_.context(false), session_.pipeline(), mesh_, model);
  }

  // Two texts at a time, one of them drawn; a prompt has more than one page of the cache.
  std::map<std::int64_t, std::vector<GeneratedToken>> write(CacheNumbers numbers) {
    inference_->set_cache_numbers(numbers);
    const auto engine = make_batched_engine(*inference_, {.cache_tokens = 300});
    for (const std::int64_t length : {5, 70}) {
      DecodingRequest request{.prompt = test::prompt_of(length), .sampling = {.max_new_tokens = 6}};
      request.sampling.greedy = length == 70;
      engine->submit(request);
    }
    std::map<std::int64_t, std::vector<GeneratedToken>> texts;
    while (!engine->idle()) {
      const std::uint32_t before = emulator::launches();
      const auto events = engine->step();
      launches_ = emulator::launches() - before;
      for (const DecodingEvent& event : events) texts[event.request].push_back(event.token);
    }
    return texts;
  }

  // Of the last step of write(): a pass over one token of each text, and what draws the next ones.
  std::uint32_t launches() const { return launches_; }

 private:
  void load() {
    test::DrawnTensors source(session_.settings().model, 0.5);
    load_weights(source, {.parameters = session_.parameters(), .sharded = &session_.sharded()},
                 {mesh_, machine_.device, arena_, *stream_, &threads_});
  }

  SilentLog log_;
  ThreadPool threads_{1};
  std::unique_ptr<World> world_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  Machine machine_;
  Mesh mesh_;
  Session session_;
  std::optional<Inference> inference_;
  std::uint32_t launches_ = 0;
};

// Returns the sum of the log-probabilities of the CPU's tokens.
double expect_tokens_of_the_cpu(const ModelConfig& model, CacheNumbers numbers,
                                const std::string& codes = "", double tolerance = 1e-3) {
  HostDevice host;
  ThreadPool threads(1);
  const auto cpu = make_cpu_kernels(threads);
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  emulator::GuardedKernels guarded(*kernels);
  const auto wanted = Decoder(host, *cpu, model, codes).write(numbers);
  const auto got = Decoder(*device, guarded, model, codes).write(numbers);
  EXPECT_EQ(got.size(), 2U);
  double sum = 0;
  for (const auto& [request, tokens] : wanted) {
    const auto found = got.find(request);
    if (found == got.end() || found->second.size() != tokens.size()) {
      ADD_FAILURE() << "text " << request << " has other tokens";
      continue;
    }
    EXPECT_EQ(tokens.size(), 6U);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const GeneratedToken& token = found->second[i];
      EXPECT_EQ(token.id, tokens[i].id) << "token " << i << " of text " << request;
      EXPECT_NEAR(token.log_probability, tokens[i].log_probability, tolerance);
      sum += tokens[i].log_probability;
    }
  }
  return sum;
}

TEST(EmulatedDecoding, HasTheTokensOfTheCpu) {
  const ModelConfig model = test::small_model();
  const double full = expect_tokens_of_the_cpu(model, CacheNumbers::kOfModel);
  EXPECT_NE(expect_tokens_of_the_cpu(model, CacheNumbers::kInt8), full) << "nothing was rounded";
}

// The first two passes over two texts are enqueued, the second of them is recorded, and the other
// three are replays with their own tokens.
TEST(EmulatedDecoding, ReplaysPassesOverOneTokenOfEachText) {
  const ModelConfig model = test::small_model();
  const int before = emulator::graph_launches();
  expect_tokens_of_the_cpu(model, CacheNumbers::kOfModel);
  EXPECT_EQ(emulator::graph_launches() - before, 4);
}

// Norm, projection, rotation with the write to the cache, attention, projection; norm, gate and up,
// down.
TEST(EmulatedDecoding, LaunchesEightKernelsALayer) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  ModelConfig model = test::small_model();
  model.dtype = DType::kBF16;
  for (const CacheNumbers numbers : {CacheNumbers::kOfModel, CacheNumbers::kInt8}) {
    std::vector<std::uint32_t> launches;
    for (const int layers : {1, 3}) {
      model.layers = layers;
      Decoder decoder(*device, *kernels, model, "");
      decoder.write(numbers);
      launches.push_back(decoder.launches());
    }
    EXPECT_EQ(launches[1] - launches[0], 2 * 8U);
  }
}

// The prompt of 70 tokens is read in the expanded form, single tokens in the absorbed one.
TEST(EmulatedDecoding, OfLatentsHasTheTokensOfTheCpu) {
  ModelConfig model = test::small_model_with_latents();
  const int before = emulator::graph_launches();
  const double full = expect_tokens_of_the_cpu(model, CacheNumbers::kOfModel);
  EXPECT_EQ(emulator::graph_launches() - before, 4);
  EXPECT_NE(expect_tokens_of_the_cpu(model, CacheNumbers::kInt8), full) << "nothing was rounded";
  model.latent->query_rank = 7;
  model.prefix = true;
  expect_tokens_of_the_cpu(model, CacheNumbers::kOfModel);
  model.prefix = false;
  model.dtype = DType::kBF16;
  expect_tokens_of_the_cpu(model, CacheNumbers::kOfModel, "", 0.1);
}

// All heads have one launch. Norm, product of queries, product of latents and what
// all keys have in common, a copy of the latents, their norm, rotation with the write to the cache,
// a copy of the queries' other channels, attention and the merge of its chunks, products that make
// values, projection; norm, gate and up, down. Not counted: products that move queries to latents,
// which are the library's.
TEST(EmulatedDecoding, OfLatentsLaunchesFourteenKernelsALayer) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  ModelConfig model = test::small_model_with_latents();
  model.dtype = DType::kBF16;
  model.latent = LatentFacts{.rank = 16, .own = 8, .turned = 8, .value = 8};
  model.head_size = 16;
  for (const CacheNumbers numbers : {CacheNumbers::kOfModel, CacheNumbers::kInt8}) {
    std::vector<std::uint32_t> launches;
    for (const int layers : {1, 3}) {
      model.layers = layers;
      Decoder decoder(*device, *kernels, model, "");
      decoder.write(numbers);
      launches.push_back(decoder.launches());
    }
    EXPECT_EQ(launches[1] - launches[0], 2 * 14U);
  }
}

TEST(EmulatedDecoding, OfPromptsThatSeeThemselvesHasTheTokensOfTheCpu) {
  ModelConfig model = test::small_model();
  model.prefix = true;
  expect_tokens_of_the_cpu(model, CacheNumbers::kInt8);
}

// Codes are made in host memory and copied. Products of few rows in bf16 read them, others expand
// them.
TEST(EmulatedDecoding, OfWeightsInCodesHasTheTokensOfTheCpu) {
  ModelConfig model = test::small_model();
  std::map<double, std::string> sums;
  for (const char* codes : {"int8", "int4", "q8_0", "q4_0", "nf4"}) {
    SCOPED_TRACE(codes);
    const double sum = expect_tokens_of_the_cpu(model, CacheNumbers::kOfModel, codes);
    EXPECT_TRUE(sums.emplace(sum, codes).second) << "as with " << sums[sum];
  }
  model.dtype = DType::kBF16;
  expect_tokens_of_the_cpu(model, CacheNumbers::kOfModel, "q4_0", 0.1);
}

}  // namespace
}  // namespace piton::cuda
