// ranks: 2 4
// Requests with different adapters in the same passes have the tokens of one process under every
// layout of a model that only reads.
#include <memory>

#include "generate/batched_engine.h"
#include "model/lora/lora_options.h"
#include "ranks/setting.h"
#include "support/host_machine.h"
#include "support/run_session.h"
#include "unit/generate/drawn_adapters.h"

namespace piton::ranks::adapters_by_request_test {

namespace {

struct ReadLayout {
  const char* name;
  MeshSizes mesh;
  int zero = 0;
};

std::vector<ReadLayout> layouts(int ranks) {
  if (ranks == 2) {
    return {{"TP 2", test::mesh(2, 1, 1)},
            {"PP 2", test::mesh(1, 1, 2)},
            {"ZeRO-3", test::mesh(1, 2, 1), 3}};
  }
  return {{"TP 2 x PP 2", test::mesh(2, 1, 2)}, {"TP 2, ZeRO-3 over 2", test::mesh(2, 2, 1), 3}};
}

ModelConfig model() {
  ModelConfig model = preset("llama-tiny");
  model.vocabulary = 101;
  model.init_deviation = 0.2;
  return model;
}

// Every second layer has the gated delta rule, the others attention with a gate.
ModelConfig model_with_states() {
  ModelConfig config = model();
  config.family = "qwen3_5";
  config.delta = {
      .attention_every = 2, .key_heads = 4, .value_heads = 8, .key_size = 6, .value_size = 5};
  config.output_gate = true;
  return config;
}

Adapters choice(const ModelConfig& model, std::vector<std::string> targets, std::int64_t rank,
                bool dora) {
  LoraOptions options;
  options.target_modules = std::move(targets);
  if (model.delta && options.target_modules[0] != "all-linear")
    options.target_modules.insert(options.target_modules.end(), {"in_proj_qkvz", "in_proj_b"});
  options.rank = rank;
  options.use_dora = dora;
  return options.resolve(model);
}

// The tokens of requests of each adapter and of none, all at the same time.
std::vector<std::vector<std::int32_t>> texts(World& world, const ReadLayout& layout,
                                             const ModelConfig& model) {
  HostDevice device;
  SilentLog log;
  ThreadPool pool(1);
  const auto kernels = make_cpu_kernels(pool, test::chosen_isa());
  Arena arena(device);
  const auto stream = device.make_stream();
  Mesh mesh(world, layout.mesh);
  const Adapters choices{.choices = {choice(model, {"all-linear"}, 4, false),
                                     choice(model, {"qkv_proj", "down_proj"}, 2, false),
                                     choice(model, {"q_proj", "up_proj", "o_proj"}, 3, true)}};
  Session session({world, device, *kernels, arena, *stream, pool, log}, mesh,
                  {.model = model,
                   .layout = {.vocabulary_multiple = 16},
                   .zero_stage = layout.zero,
                   .seed = 5,
                   .use = SessionUse::kInference,
                   .adapters = choices});
  session.initialize();
  test::draw_adapters(session, *stream);
  Inference inference(session.context(false), session.pipeline(), mesh, model);
  const auto engine = make_batched_engine(inference, {.prompt_tokens = 30});
  for (const std::int64_t length : {70, 12}) {
    for (std::int64_t adapter = -1; adapter < 3; ++adapter) {
      DecodingRequest request{.sampling = {.max_new_tokens = 10, .greedy = true}};
      for (std::int64_t i = 0; i < length; ++i)
        request.prompt.push_back(test::token(3, i, model.vocabulary));
      if (adapter >= 0) request.adapter = adapter;
      engine->submit(std::move(request));
    }
  }
  std::vector<std::vector<std::int32_t>> all(8);
  while (!engine->idle()) {
    for (const DecodingEvent& event : engine->step())
      all[static_cast<std::size_t>(event.request)].push_back(event.token.id);
  }
  EXPECT_EQ(engine->counts().reused_tokens, 4 * 11) << "each from the text of its adapter";
  return all;
}

void expect_texts_of_one_process(const ModelConfig& model) {
  HostDevice device;
  const auto world = make_single_world(device);
  const auto wanted = texts(*world, {"one process", MeshSizes()}, model);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_NE(wanted[i], wanted[0]) << i;
  for (const ReadLayout& layout : layouts(ranks::world().size())) {
    SCOPED_TRACE(layout.name);
    EXPECT_EQ(texts(ranks::world(), layout, model), wanted);
  }
}

TEST(AdaptersByRequestOnRanks, HaveTheTokensOfOneProcess) { expect_texts_of_one_process(model()); }

TEST(AdaptersByRequestOnRanks, HaveTheTokensOfOneProcessWhereLayersHaveStates) {
  expect_texts_of_one_process(model_with_states());
}

}  // namespace
}  // namespace piton::ranks::adapters_by_request_test
