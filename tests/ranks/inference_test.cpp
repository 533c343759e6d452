// ranks: 2 4
// A model that only reads gives the tokens and the logits of one process under every layout.
#include "generate/batched_engine.h"
#include "generate/beam_search.h"
#include "generate/generator.h"
#include "generate/source_texts.h"
#include "parallel/chunked_schedules.h"
#include "ranks/setting.h"
#include "ranks/state_spaces.h"
#include "support/instruction_sets.h"
#include "support/run_session.h"

namespace piton::ranks::inference_test {

namespace {

struct ReadLayout {
  std::string name;
  MeshSizes mesh;
  int zero = 0;
  std::optional<Schedule> own_schedule = {};
};

MeshSizes mesh(int t, int d, int p) {
  MeshSizes sizes;
  sizes[Axis::kTensor] = t;
  sizes[Axis::kData] = d;
  sizes[Axis::kPipeline] = p;
  return sizes;
}

std::vector<ReadLayout> layouts(int ranks) {
  if (ranks == 2) {
    return {{.name = "TP 2", .mesh = mesh(2, 1, 1)},
            {.name = "PP 2", .mesh = mesh(1, 1, 2)},
            {.name = "PP 2, a V", .mesh = mesh(1, 1, 2), .own_schedule = test::letter_v(1)},
            {.name = "PP 2, interleaved",
             .mesh = mesh(1, 1, 2),
             .own_schedule = interleaved(2, 2, 2, 2)},
            {.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3}};
  }
  return {{.name = "TP 2 x PP 2", .mesh = mesh(2, 1, 2)},
          {.name = "TP 2, ZeRO-3 over 2", .mesh = mesh(2, 2, 1), .zero = 3},
          {.name = "PP 4", .mesh = mesh(1, 1, 4)}};
}

ModelConfig small(const std::string& name) {
  ModelConfig model = preset(name);
  model.vocabulary = 101;  // padded rows in every split
  model.init_deviation = 0.1;
  return model;
}

class Reading {
 public:
  Reading(World& world, const ReadLayout& layout, const ModelConfig& model)
      : pool_(1),
        kernels_(make_cpu_kernels(pool_, test::chosen_isa())),
        arena_(device_),
        stream_(device_.make_stream()),
        mesh_(world, layout.mesh),
        session_(
            {world, device_, *kernels_, arena_, *stream_, pool_, log_}, mesh_,
            {.model = model,
             .layout = {.vocabulary_multiple = 16,
                        .split_stage = first_decoder_stage(model, layout.mesh[Axis::kPipeline])},
             .zero_stage = layout.zero,
             .own_schedule = layout.own_schedule,
             .seed = 5,
             .use = SessionUse::kInference,
             .drafts_later = true}),
        inference(session_.context(false), session_.pipeline(), mesh_, model) {
    session_.initialize();
  }

  // On every rank.
  std::vector<float> logits(std::span<const std::int32_t> ids, std::int64_t samples) {
    const std::vector<float> whole = inference.whole_vocabulary(inference.logits(ids, samples));
    const std::string bytes = inference.from_last_stage(
        {reinterpret_cast<const char*>(whole.data()), whole.size() * sizeof(float)});
    std::vector<float> all(bytes.size() / sizeof(float));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

  std::vector<GeneratedToken> generate(std::span<const std::int32_t> prompt, bool greedy) {
    const std::vector<std::vector<std::int32_t>> one = {{prompt.begin(), prompt.end()}};
    const auto engine = make_batched_engine(inference, {});
    return generate_batch(*engine, {.ids = one},
                          {.max_new_tokens = 24, .greedy = greedy, .temperature = 0.8},
                          [](std::size_t, const GeneratedToken&) { return true; })
        .front();
  }

  // Of a layer that predicts later tokens, in three long texts.
  std::int64_t accepted_guesses(std::int64_t vocabulary) {
    const auto engine = make_batched_engine(inference, {}, DraftSource::later_layer(2));
    for (std::int64_t text = 0; text < 3; ++text) {
      DecodingRequest request{.sampling = {.max_new_tokens = 80, .greedy = true}};
      for (std::int64_t i = 0; i < 5 + text; ++i)
        request.prompt.push_back(test::token(4, i, vocabulary));
      engine->submit(std::move(request));
    }
    while (!engine->idle()) engine->step();
    return engine->counts().accepted_tokens;
  }

  // Requests that come at different times, with prompts in parts of 5 tokens.
  std::vector<std::vector<GeneratedToken>> serve(std::int64_t vocabulary,
                                                 const DraftSource& drafts = {}) {
    const auto engine = make_batched_engine(inference, {.texts = 3, .prompt_tokens = 5}, drafts);
    const auto submit = [&](std::int64_t length, std::uint64_t draw, bool greedy) {
      DecodingRequest request{.sampling = {.max_new_tokens = 9,
                                           .greedy = greedy,
                                           .typical_p = 0.9,
                                           .top_n_sigma = 3,
                                           .xtc_probability = 0.5,
                                           .xtc_threshold = 0.02,
                                           .repetition_penalty = greedy ? 1.0 : 1.1,
                                           .dry = {.multiplier = greedy ? 0.0 : 0.8},
                                           .log_probabilities = greedy ? 2 : 0},
                              .ends = {5},
                              .draw = draw};
      if (draw == 1) {
        request.sampling = {.max_new_tokens = 9, .mirostat = 2, .mirostat_surprise = 3};
      } else if (!greedy) {
        request.sampling.dynatemp_range = 0.4;
      }
      for (std::int64_t i = 0; i < length; ++i)
        request.prompt.push_back(test::token(3, i, vocabulary));
      engine->submit(std::move(request));
    };
    std::vector<std::vector<GeneratedToken>> texts(5);
    const auto step = [&] {
      for (DecodingEvent& event : engine->step())
        texts[static_cast<std::size_t>(event.request)].push_back(std::move(event.token));
    };
    submit(75, 0, true);
    for (int i = 0; i < 3; ++i) step();
    submit(66, 0, false);  // waits for the page that it shares with the first one
    submit(7, 0, false);
    submit(7, 1, false);
    for (int i = 0; i < 20; ++i) step();
    submit(30, 0, true);
    engine->cancel(2);
    while (!engine->idle()) step();
    if (inference.config().state_layers() > 0) {  // nothing is guessed
      EXPECT_EQ(engine->counts().draft_tokens, 0);
      EXPECT_EQ(engine->counts().reused_tokens, 65 + 6 + 6) << "for those that waited";
      return texts;
    }
    if (drafts.guesses()) {
      EXPECT_GT(engine->counts().draft_tokens, 0);
      return texts;
    }
    EXPECT_EQ(engine->counts().reused_tokens, 64 + 6 + 6 + 29) << "beginnings of the first text";
    return texts;
  }

  // Of texts that begin alike, in parts of 11 tokens, one of them with two ends.
  std::vector<GeneratedToken> scores(std::int64_t vocabulary) {
    const auto engine = make_batched_engine(inference, {.prompt_tokens = 11});
    std::vector<DecodingRequest> requests;
    for (const std::int64_t length : {90, 80, 20}) {
      DecodingRequest& request = requests.emplace_back();
      for (std::int64_t i = 0; i < length; ++i)
        request.prompt.push_back(test::token(3, i < 60 ? i : i + length, vocabulary));
      request.sampling = {.max_new_tokens = 0, .log_probabilities = 1};
      request.scored_from = length - 19;
      if (length == 80) request.alternatives = {1, 2};
    }
    std::vector<GeneratedToken> all;
    for (const auto& one : score_prompts(*engine, requests))
      all.insert(all.end(), one.begin(), one.end());
    EXPECT_EQ(all.size(), 3U * 19 + 2);
    return all;
  }

  std::vector<Beam> beams(std::span<const std::int32_t> prompt) {
    return beam_search(
        inference, {.ids = prompt, .source = {}}, {.num_beams = 3},
        {.max_new_tokens = 9, .ids = {5}, .ends = [](std::span<const LikelyToken> tokens) {
           return tokens.size() == 7;
         }});
  }

  // Of a model with an encoder: a text, and beams, after a source.
  std::vector<GeneratedToken> text_after(std::span<const std::int32_t> source, bool greedy) {
    const std::int32_t no_end = -1;
    return generate_from_source(inference, {.ids = source, .start = 1, .draw = 2},
                                {.max_new_tokens = 12, .greedy = greedy, .log_probabilities = 2},
                                std::span(&no_end, 1), [](const GeneratedToken&) { return true; });
  }
  std::vector<Beam> beams_after(std::span<const std::int32_t> source) {
    const std::vector<std::int32_t> start{1};
    return beam_search(inference, {.ids = start, .source = source}, {.num_beams = 3},
                       {.max_new_tokens = 9, .ids = {5}, .ends = [](std::span<const LikelyToken>) {
                          return false;
                        }});
  }

  std::int64_t parameter_bytes() const {
    return arena_.counts().in_use_bytes[static_cast<std::size_t>(MemoryKind::kParameters)];
  }

 private:
  HostDevice device_;
  SilentLog log_;
  ThreadPool pool_;
  std::unique_ptr<Kernels> kernels_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  Mesh mesh_;
  Session session_;

 public:
  Inference inference;
};

void expect_as_one_process(const ModelConfig& model) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < 2 * 15; ++i) ids.push_back(test::token(3, i, model.vocabulary));
  const std::span<const std::int32_t> prompt = std::span(ids).first(7);
  HostDevice device;
  const auto world = make_single_world(device);
  Reading one(*world, {.name = "one process"}, model);
  const std::vector<float> logits = one.logits(ids, 2);
  const std::vector<GeneratedToken> scores = one.scores(model.vocabulary);
  const std::vector<float> mean = one.inference.embedding(prompt, EmbeddingPooling::kMean);
  const std::vector<float> last = one.inference.embedding(prompt, EmbeddingPooling::kLast);
  for (const ReadLayout& layout : layouts(ranks::world().size())) {
    SCOPED_TRACE(layout.name);
    Reading many(ranks::world(), layout, model);
    EXPECT_LT(many.parameter_bytes(), 0.7 * static_cast<double>(one.parameter_bytes()));
    const std::vector<float> got = many.logits(ids, 2);
    ASSERT_EQ(got.size(), logits.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], logits[i], 1e-5) << i;
    const std::vector<GeneratedToken> got_scores = many.scores(model.vocabulary);
    ASSERT_EQ(got_scores.size(), scores.size());
    for (std::size_t i = 0; i < scores.size(); ++i) {
      EXPECT_EQ(got_scores[i].id, scores[i].id) << i;
      EXPECT_NEAR(got_scores[i].log_probability, scores[i].log_probability, 1e-5) << i;
      EXPECT_EQ(got_scores[i].likeliest.at(0).id, scores[i].likeliest.at(0).id) << i;
    }
    const std::vector<float> got_mean = many.inference.embedding(prompt, EmbeddingPooling::kMean);
    const std::vector<float> got_last = many.inference.embedding(prompt, EmbeddingPooling::kLast);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      EXPECT_NEAR(got_mean.at(i), mean[i], 1e-5) << i;
      EXPECT_NEAR(got_last.at(i), last[i], 1e-5) << i;
    }
    for (const bool greedy : {true, false}) {
      const auto wanted = one.generate(prompt, greedy);
      const auto tokens = many.generate(prompt, greedy);
      ASSERT_EQ(tokens.size(), wanted.size());
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_EQ(tokens[i].id, wanted[i].id) << i;
        EXPECT_NEAR(tokens[i].log_probability, wanted[i].log_probability, 1e-5);
      }
    }
    const auto wanted_texts = one.serve(model.vocabulary);
    // With guesses the texts are the same, but a pass may give one of them several tokens, also
    // before it is canceled.
    const auto guesser = make_batched_engine(many.inference, {});
    const auto drafter = make_model_drafter(*guesser, model.max_positions, 1);
    auto with_guesses = many.serve(model.vocabulary, drafter.get());
    with_guesses[2].resize(std::min(with_guesses[2].size(), wanted_texts[2].size()));
    const auto texts = many.serve(model.vocabulary);
    for (std::size_t i = 0; i < wanted_texts.size(); ++i) {
      ASSERT_EQ(with_guesses[i].size(), wanted_texts[i].size()) << i;
      for (std::size_t k = 0; k < wanted_texts[i].size(); ++k)
        EXPECT_EQ(with_guesses[i][k].id, wanted_texts[i][k].id) << i << ", " << k;
    }
    for (std::size_t i = 0; i < wanted_texts.size(); ++i) {
      ASSERT_EQ(texts[i].size(), wanted_texts[i].size()) << i;
      for (std::size_t k = 0; k < texts[i].size(); ++k) {
        EXPECT_EQ(texts[i][k].id, wanted_texts[i][k].id) << i << ", " << k;
        EXPECT_NEAR(texts[i][k].log_probability, wanted_texts[i][k].log_probability, 1e-5);
        EXPECT_EQ(texts[i][k].likeliest.size(), wanted_texts[i][k].likeliest.size());
      }
    }
    const std::vector<Beam> wanted = one.beams(prompt);
    const std::vector<Beam> beams = many.beams(prompt);
    ASSERT_EQ(beams.size(), wanted.size());
    for (std::size_t i = 0; i < beams.size(); ++i) {
      EXPECT_NEAR(beams[i].score, wanted[i].score, 1e-5);
      ASSERT_EQ(beams[i].tokens.size(), wanted[i].tokens.size());
      for (std::size_t k = 0; k < wanted[i].tokens.size(); ++k)
        EXPECT_EQ(beams[i].tokens[k].id, wanted[i].tokens[k].id) << i << ", " << k;
    }
  }
}

class InferenceOnRanks : public testing::TestWithParam<const char*> {};

TEST_P(InferenceOnRanks, GivesTheTokensAndTheLogitsOfOneProcess) {
  expect_as_one_process(small(GetParam()));
}

// Every second layer has the gated delta rule, whose heads are split over the tensor ranks.
TEST(StatesOnRanks, GiveTheTokensAndTheLogitsOfOneProcess) {
  ModelConfig model = small("llama-tiny");
  model.delta = {
      .attention_every = 2, .key_heads = 4, .value_heads = 8, .key_size = 6, .value_size = 5};
  model.output_gate = true;
  expect_as_one_process(model);
}

// Of Mamba-2: the keys and queries of one group of heads are on all tensor ranks, those of several
// are split.
TEST(StateSpacesOnRanks, GiveTheTokensAndTheLogitsOfOneProcess) {
  for (const std::int64_t groups : {1, 4}) {
    SCOPED_TRACE(groups);
    ModelConfig model = small("llama-tiny");
    model.state_space = small_state_spaces(groups);
    expect_as_one_process(model);
  }
}

// Short convolutions, whose channels are split.
TEST(ConvolutionsOnRanks, GiveTheTokensAndTheLogitsOfOneProcess) {
  ModelConfig model = small("llama-tiny");
  model.short_convolution = small_convolutions();
  expect_as_one_process(model);
}

// Every rank has the same latents in its cache, and attends with its own heads.
TEST(LatentsOnRanks, GiveTheTokensAndTheLogitsOfOneProcess) {
  ModelConfig model = small("llama-tiny");
  model.latent = {.query_rank = 28, .rank = 20, .own = 10, .turned = 6, .value = 12};
  model.head_size = 16;
  model.groups = model.heads;
  model.rotary_pairs = model.head_norms = true;
  expect_as_one_process(model);
}

// The layer that guesses is on the last stage, and its heads are split over the tensor ranks.
TEST_P(InferenceOnRanks, GuessesLaterTokensAsOneProcess) {
  ModelConfig model = small(GetParam());
  model.mtp_layers = 2;
  model.vocabulary = 11;  // guesses of drawn weights are seldom right
  HostDevice device;
  const auto world = make_single_world(device);
  Reading one(*world, {.name = "one process"}, model);
  const auto wanted = one.serve(model.vocabulary);
  const std::int64_t accepted = one.accepted_guesses(model.vocabulary);
  EXPECT_GT(accepted, 0);
  for (const ReadLayout& layout : layouts(ranks::world().size())) {
    SCOPED_TRACE(layout.name);
    Reading many(ranks::world(), layout, model);
    auto texts = many.serve(model.vocabulary, DraftSource::later_layer(2));
    texts[2].resize(std::min(texts[2].size(), wanted[2].size()));  // it is canceled
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(texts[i].size(), wanted[i].size()) << i;
      for (std::size_t k = 0; k < wanted[i].size(); ++k)
        EXPECT_EQ(texts[i][k].id, wanted[i][k].id) << i << ", " << k;
    }
    EXPECT_EQ(many.accepted_guesses(model.vocabulary), accepted);
  }
}

// The encoder and the decoder of T5 are on other stages: the outputs of the encoder pass all stages
// of the decoder once.
TEST(EncoderDecoderOnRanks, GivesTheTextsAndTheBeamsOfOneProcess) {
  for (const bool published : {false, true}) {
    SCOPED_TRACE(published ? "relative positions" : "learned positions");
    ModelConfig model = small("t5-tiny");
    if (published) {
      model.positions = PositionKind::kRelative;
      model.encoder_decoder->buckets = 8;
      model.encoder_decoder->farthest_bucket = 20;
    }
    model.layers = 4;
    model.encoder_decoder->encoder_layers = 3;
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < 70; ++i) ids.push_back(test::token(4, i, model.vocabulary));
    HostDevice device;
    const auto world = make_single_world(device);
    Reading one(*world, {.name = "one process"}, model);
    for (const ReadLayout& layout : layouts(ranks::world().size())) {
      if (layout.own_schedule) continue;  // of several chunks a stage
      SCOPED_TRACE(layout.name);
      Reading many(ranks::world(), layout, model);
      for (const std::size_t length : {5UL, 70UL}) {
        const std::span<const std::int32_t> source = std::span(ids).first(length);
        for (const bool greedy : {true, false}) {
          const std::vector<GeneratedToken> wanted = one.text_after(source, greedy);
          const std::vector<GeneratedToken> got = many.text_after(source, greedy);
          ASSERT_EQ(got.size(), wanted.size());
          for (std::size_t i = 0; i < got.size(); ++i) {
            EXPECT_EQ(got[i].id, wanted[i].id) << i;
            EXPECT_NEAR(got[i].log_probability, wanted[i].log_probability, 1e-5) << i;
            EXPECT_EQ(got[i].likeliest.at(1).id, wanted[i].likeliest.at(1).id) << i;
          }
        }
        const std::vector<Beam> wanted = one.beams_after(source);
        const std::vector<Beam> got = many.beams_after(source);
        ASSERT_EQ(got.size(), wanted.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_NEAR(got[i].score, wanted[i].score, 1e-5);
          ASSERT_EQ(got[i].tokens.size(), wanted[i].tokens.size());
          for (std::size_t k = 0; k < got[i].tokens.size(); ++k)
            EXPECT_EQ(got[i].tokens[k].id, wanted[i].tokens[k].id) << i << ", " << k;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, InferenceOnRanks, testing::Values("gpt2-tiny", "llama-tiny"));

}  // namespace
}  // namespace piton::ranks::inference_test
