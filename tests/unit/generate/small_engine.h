// A small model for tests of engines, and what its texts are: read from their beginnings for every
// token, without a cache.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "generate/batched_engine.h"
#include "model/families.h"
#include "session/session.h"
#include "support/host_machine.h"

namespace piton::test {

inline ModelConfig small_model() {
  ModelConfig model = family_facts("llama");
  model.layers = 2;
  model.hidden = 32;
  model.heads = 4;
  model.head_size = 8;
  model.groups = 2;
  model.ffn_hidden = 56;
  model.vocabulary = 61;
  model.max_positions = 256;
  model.hidden_dropout = model.attention_dropout = 0;
  model.init_deviation = 0.3;
  return model;
}

// The same with three layers of the gated delta rule before each one of attention.
inline ModelConfig small_model_with_states() {
  ModelConfig model = small_model();
  model.layers = 4;
  model.delta =
      DeltaFacts{.key_heads = 2, .value_heads = 4, .key_size = 6, .value_size = 5, .width = 3};
  model.output_gate = true;
  return model;
}

// The same with three layers of Mamba-2.
inline ModelConfig small_model_with_state_spaces() {
  ModelConfig model = small_model();
  model.layers = 4;
  model.state_space = StateSpaceFacts{.attention_layers = {3},
                                      .heads = 6,
                                      .groups = 2,
                                      .head_size = 5,
                                      .state_size = 7,
                                      .width = 3};
  return model;
}

// The same with three layers of short convolutions.
inline ModelConfig small_model_with_convolutions() {
  ModelConfig model = small_model();
  model.layers = 4;
  model.short_convolution = ShortConvolutionFacts{.attention_layers = {3}, .width = 4};
  return model;
}

// Models whose layers have states, by what these are of.
inline const std::map<std::string, ModelConfig (*)()> kModelsWithStates{
    {"delta", small_model_with_states},
    {"state_space", small_model_with_state_spaces},
    {"convolutions", small_model_with_convolutions}};

// The same with latent attention, whose texts are read in both forms of nn/cached_latents.h: of
// more than 32 rows the expanded one has fewer operations.
inline ModelConfig small_model_with_latents() {
  ModelConfig model = small_model();
  model.latent = LatentFacts{.rank = 12, .own = 6, .turned = 4, .value = 5};
  model.head_size = 10;
  model.groups = model.heads;
  model.rotary_pairs = model.head_norms = true;
  return model;
}

struct Loaded : HostMachine {
  explicit Loaded(const ModelConfig& model = small_model(), bool drafts_later = false)
      : mesh(*world, MeshSizes{}),
        session(machine, mesh,
                {.model = model,
                 .seed = 3,
                 .use = SessionUse::kInference,
                 .drafts_later = drafts_later}),
        inference(init(session).context(false), session.pipeline(), mesh, model) {}
  static Session& init(Session& session) {
    session.initialize();
    return session;
  }

  Mesh mesh;
  Session session;
  Inference inference;
};

inline std::vector<std::int32_t> prompt_of(std::int64_t length, std::int64_t seed = 0) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<std::int32_t>((i * i * (seed + 3) + i * 7 + seed) % 61));
  return ids;
}

// The tokens of a request, from whole texts.
inline std::vector<std::int32_t> oracle(Inference& inference, const DecodingRequest& request) {
  std::vector<std::int32_t> ids = request.prompt;
  const std::size_t most =
      std::min(request.prompt.size() + static_cast<std::size_t>(request.sampling.max_new_tokens),
               static_cast<std::size_t>(inference.config().max_positions));
  double most_surprise = request.sampling.first_most_surprise();
  while (ids.size() < most) {
    const std::vector<std::int32_t> last{static_cast<std::int32_t>(ids.size() - 1)};
    const TokenDraw draw{
        .sampling = &request.sampling,
        .place = {.index = std::ssize(ids) - std::ssize(request.prompt), .draw = request.draw},
        .text = ids,
        .prompt = request.prompt.size(),
        .most_surprise = most_surprise};
    const DrawnToken drawn =
        inference.draw(inference.logits(ids, 1, last), std::span(&draw, 1)).front();
    ids.push_back(drawn.id);
    most_surprise = request.sampling.next_most_surprise(most_surprise, drawn.share);
    if (std::ranges::find(request.ends, ids.back()) != request.ends.end()) break;
  }
  return {ids.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()), ids.end()};
}

// Prompts of various lengths, some of which are the beginning of others, drawn in various ways.
inline std::vector<DecodingRequest> various_requests() {
  std::vector<DecodingRequest> requests;
  const auto add = [&](std::vector<std::int32_t> prompt, const SamplingOptions& sampling) {
    requests.push_back({.prompt = std::move(prompt), .sampling = sampling});
  };
  const SamplingOptions greedy{.max_new_tokens = 20, .greedy = true};
  const SamplingOptions sampled{.max_new_tokens = 30, .temperature = 1.5, .top_p = 0.9, .seed = 9};
  add(prompt_of(5), greedy);
  add(prompt_of(150), greedy);
  add(prompt_of(130), sampled);  // the beginning of the one before
  add(prompt_of(1, 8), sampled);
  add(prompt_of(1, 8), sampled);
  requests.back().draw = 1;
  SamplingOptions penalties = sampled;
  penalties.repetition_penalty = 1.2;
  penalties.presence_penalty = 0.3;
  penalties.frequency_penalty = 0.2;
  penalties.min_p = 0.05;
  add(prompt_of(64, 2), penalties);
  SamplingOptions changed = greedy;
  changed.no_repeat_ngram_size = 2;
  changed.logit_bias = {{3, 4.5}, {7, -100}};
  add(prompt_of(40, 2), changed);
  add(prompt_of(250, 4), greedy);  // the model's longest sequence ends it
  add(prompt_of(9, 3),
      {.max_new_tokens = 30, .temperature = 0.8, .dynatemp_range = 0.6, .seed = 3});
  add(prompt_of(9, 3), {.max_new_tokens = 30,
                        .temperature = 1.5,
                        .mirostat = 2,
                        .mirostat_rate = 0.5,
                        .mirostat_surprise = 2,
                        .seed = 3});
  return requests;
}

inline std::vector<std::vector<std::int32_t>> oracles(
    Inference& inference, const std::vector<DecodingRequest>& requests) {
  std::vector<std::vector<std::int32_t>> all;
  for (const DecodingRequest& request : requests) all.push_back(oracle(inference, request));
  return all;
}

using Texts = std::map<std::int64_t, std::vector<std::int32_t>>;

// Runs until all have ended, or until the first of them has `tokens` tokens.
inline Texts run(DecodingEngine& engine, std::map<std::int64_t, FinishReason>* finished = nullptr,
                 std::int64_t tokens = std::numeric_limits<std::int64_t>::max()) {
  Texts texts;
  while (!engine.idle()) {
    for (const DecodingEvent& event : engine.step()) {
      texts[event.request].push_back(event.token.id);
      if (finished != nullptr && event.finish != FinishReason::kNone)
        (*finished)[event.request] = event.finish;
      if (std::ssize(texts[event.request]) == tokens) return texts;
    }
  }
  return texts;
}

}  // namespace piton::test
