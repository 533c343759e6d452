// Whole models with a window, ALiBi and packed documents: decoding with a cache, evaluation and
// training agree, and documents packed into one row give the results of separate documents.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "generate/inference.h"
#include "model/families.h"
#include "session/session.h"
#include "support/host_machine.h"

namespace piton {
namespace {

struct Variant {
  const char* name;
  const char* preset;
  PositionKind positions;
  std::optional<std::int64_t> before;
  DType dtype = DType::kF32;
};

const Variant kVariants[] = {{"window", "llama-tiny", PositionKind::kRotary, 6},
                             {"alibi", "gpt2-tiny", PositionKind::kAlibi, {}},
                             {"alibi_and_window", "gpt2-tiny", PositionKind::kAlibi, 3},
                             {"no_positions", "llama-tiny", PositionKind::kNone, {}},
                             {"window_bf16", "llama-tiny", PositionKind::kRotary, 6, DType::kBF16},
                             {"alibi_bf16", "llama-tiny", PositionKind::kAlibi, 9, DType::kBF16}};

std::vector<std::int32_t> some_tokens(std::int64_t count) {
  std::vector<std::int32_t> tokens(count);
  for (std::int64_t i = 0; i < count; ++i)
    tokens[i] = static_cast<std::int32_t>(i * i * 7 % 101 + i % 13);
  return tokens;
}

// One session of a small model on this process.
struct ModelRun : test::HostMachine {
  explicit ModelRun(const Variant& variant) : ModelRun(config_of(variant)) {}
  explicit ModelRun(const ModelConfig& model)
      : mesh(*world, MeshSizes{}), session(machine, mesh, {.model = model}) {
    session.initialize();
  }

  static ModelConfig config_of(const Variant& variant) {
    ModelConfig model = preset(variant.preset);
    model.positions = variant.positions;
    model.window_before = variant.before;
    model.dtype = variant.dtype;
    model.init_deviation = 0.2;  // scores that differ
    model.hidden_dropout = model.attention_dropout = 0;
    return model;
  }

  Inference inference() {
    return {session.context(false), session.pipeline(), mesh, session.settings().model};
  }

  // Logits of tokens[begin, begin + count) after text 0 of `cache`, which holds those before.
  std::vector<float> logits(const std::vector<std::int32_t>& tokens, std::int64_t begin,
                            std::int64_t count, KvCache* cache) {
    const auto ids = std::span(tokens).subspan(begin, count);
    std::vector<std::int32_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    const TextTokens text{.text = 0, .ids = ids};
    const Tensor out = cache == nullptr ? inference().logits(ids, 1)
                                        : inference().logits(std::span(&text, 1), rows, *cache);
    return {out.data<float>(), out.data<float>() + out.elements()};
  }

  Mesh mesh;
  Session session;
};

MicroBatch batch_of(const std::vector<std::int32_t>& tokens) {
  const auto length = static_cast<std::int64_t>(tokens.size()) - 1;
  MicroBatch batch{.samples = 1, .sequence = length};
  batch.tokens.assign(tokens.begin(), tokens.end() - 1);
  batch.labels.assign(tokens.begin() + 1, tokens.end());
  batch.loss_mask.assign(length, 1.0F);
  batch.positions.resize(length);
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  return batch;
}

class AttentionModels : public testing::TestWithParam<Variant> {};

TEST_P(AttentionModels, GiveTheSameLogitsWithACacheAsWithout) {
  ModelRun run(GetParam());
  const std::vector<std::int32_t> tokens = some_tokens(90);
  const std::vector<float> whole = run.logits(tokens, 0, 90, nullptr);
  KvCache cache = run.inference().make_cache();
  cache.add_text();
  std::vector<float> parts = run.logits(tokens, 0, 61, &cache);
  for (std::int64_t begin = 61; begin < 90; ++begin) {
    const std::vector<float> next = run.logits(tokens, begin, 1, &cache);
    parts.insert(parts.end(), next.begin(), next.end());
  }
  // bf16: each of four layers rounds what it adds, in another order; logits are a few units large.
  const double allowed = GetParam().dtype == DType::kBF16 ? 0.15 : 2e-4;
  ASSERT_EQ(parts.size(), whole.size());
  double largest = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_NEAR(parts[i], whole[i], allowed) << "token " << i * 90 / whole.size();
    largest = std::max(largest, std::fabs(static_cast<double>(whole[i])));
  }
  EXPECT_GT(largest, 10 * allowed);
}

TEST_P(AttentionModels, EvaluateToTheLossThatTheyTrainOn) {
  ModelRun run(GetParam());
  const MicroBatch batch = batch_of(some_tokens(80));
  const Session::Evaluation evaluation = run.session.evaluate({batch});
  const double loss = run.session.gradients({batch}, 0).loss;
  EXPECT_DOUBLE_EQ(evaluation.loss_sum / evaluation.loss_tokens, loss);
  // And what makes the variant counts: without it the loss is another.
  Variant plain = GetParam();
  plain.positions = plain.preset[0] == 'l' ? PositionKind::kRotary : PositionKind::kLearned;
  plain.before.reset();
  ModelRun other(plain);
  EXPECT_GT(std::fabs(other.session.gradients({batch}, 0).loss - loss), 1e-3);
}

// A pass has any number of tokens of each text: a prompt is read in parts, next to texts that are
// already being written, and one that continues another's beginning.
TEST_P(AttentionModels, ReadTextsTogetherAsEachAlone) {
  ModelRun run(GetParam());
  Inference inference = run.inference();
  const auto vocabulary = static_cast<std::size_t>(run.session.settings().model.vocabulary);
  const std::vector<std::int32_t> tokens = some_tokens(90);
  KvCache cache = inference.make_cache();
  std::vector<std::vector<std::int32_t>> texts(3);
  texts[0].assign(tokens.begin(), tokens.begin() + 75);
  texts[1].assign(tokens.begin() + 40, tokens.begin() + 57);
  std::vector<float> last;
  const auto read = [&](const std::vector<std::pair<std::int64_t, std::int64_t>>& counts) {
    std::vector<TextTokens> parts;
    for (const auto& [text, count] : counts) {
      parts.push_back(
          {.text = text, .ids = std::span(texts[text]).subspan(cache.pages().length(text), count)});
    }
    last = inference.whole_vocabulary(inference.logits(parts, Inference::last_rows(parts), cache));
  };
  ASSERT_EQ(cache.add_text(), 0);
  ASSERT_EQ(cache.add_text(), 1);
  read({{0, 30}, {1, 16}});
  read({{1, 1}, {0, 36}});
  ASSERT_EQ(cache.fork(0), 2);  // in the middle of a page
  texts[2].assign(tokens.begin(), tokens.begin() + 66);
  texts[2].insert(texts[2].end(), {7, 7, 8});
  read({{0, 9}, {2, 3}});
  texts[1].push_back(5);
  const std::vector<float> first_two = last;
  read({{1, 1}});
  const std::vector<float> third = last;
  const double allowed = GetParam().dtype == DType::kBF16 ? 0.15 : 2e-4;
  const auto expect_row = [&](const std::vector<float>& rows, std::size_t row, std::size_t text) {
    const std::vector<std::int32_t> end{static_cast<std::int32_t>(texts[text].size() - 1)};
    const std::vector<float> wanted =
        inference.whole_vocabulary(inference.logits(texts[text], 1, end));
    for (std::size_t id = 0; id < vocabulary; ++id)
      ASSERT_NEAR(rows[row * vocabulary + id], wanted[id], allowed) << text << " " << id;
  };
  expect_row(first_two, 0, 0);
  expect_row(first_two, 1, 2);
  expect_row(third, 0, 1);
}

INSTANTIATE_TEST_SUITE_P(Variants, AttentionModels, testing::ValuesIn(kVariants),
                         [](const auto& info) { return std::string(info.param.name); });

// Documents that are further apart than the window are as apart as segments make them.
TEST(ExplicitPositions, KeepDocumentsApart) {
  const Variant variant{"no positions", "llama-tiny", PositionKind::kNone, 20};
  ModelRun run(variant);
  const auto loss = [&](const ModelInput& input) {
    const PipelineResult result =
        run.session.pipeline().forward(run.session.context(false), {input});
    double sum = 0;
    run.device.download(result.sums.at(std::string(kLossSum)), &sum, *run.stream);
    return sum;
  };
  MicroBatch row = batch_of(some_tokens(81));
  const double joined = loss(run.session.upload(row, {}));
  row.segments.assign(80, 0);
  std::fill(row.segments.begin() + 33, row.segments.end(), 1);
  const double apart = loss(run.session.upload(row, {}));
  EXPECT_GT(std::fabs(apart - joined), 0.1);
  row.segments.clear();
  std::vector<std::int32_t> positions(80);
  for (std::int32_t i = 0; i < 80; ++i) positions[i] = i < 33 ? i + 5 : i + 1000;
  ModelInput input = run.session.upload(row, {});
  for (Tensor* places : {&input.query_positions, &input.key_positions}) {
    *places = run.arena.allocate(DType::kI32, {1, 80}, MemoryKind::kActivations);
    run.device.upload(positions.data(), *places, *run.stream);
  }
  EXPECT_NEAR(loss(input), apart, 1e-4);
}

// The triangle form is another way to the same numbers, whether blocks divide the sequence or not;
// behind a cache it is tiles.
TEST(TriangleAttention, TrainsAndDecodesAsTilesDo) {
  ModelConfig model = ModelRun::config_of(kVariants[0]);
  ModelRun tiles(model);
  const std::vector<std::int32_t> tokens = some_tokens(90);
  const double loss = tiles.session.gradients({batch_of(tokens)}, 0).loss;
  const std::vector<float> logits = tiles.logits(tokens, 0, 90, nullptr);
  for (const std::int64_t block : {30, 64, 512}) {
    model.attention_block = block;
    ModelRun run(model);
    EXPECT_NEAR(run.session.gradients({batch_of(tokens)}, 0).loss, loss, 1e-6 * loss) << block;
    for (std::size_t p = 0; p < run.session.parameters().size(); ++p) {
      const Tensor& got = run.session.parameters()[p]->gradient;
      const Tensor& wanted = tiles.session.parameters()[p]->gradient;
      double difference = 0;
      double norm = 0;
      for (std::int64_t i = 0; i < got.elements(); ++i) {
        difference += std::pow(got.data<float>()[i] - wanted.data<float>()[i], 2);
        norm += std::pow(wanted.data<float>()[i], 2);
      }
      EXPECT_LE(std::sqrt(difference), 1e-4 * std::sqrt(norm))
          << block << " " << run.session.parameters()[p]->name;
    }
    KvCache cache = run.inference().make_cache();
    cache.add_text();
    const std::vector<float> decoded = run.logits(tokens, 0, 90, &cache);
    for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(decoded[i], logits[i], 2e-4);
  }
}

// Three documents in one row, with separate positions and attention, are three rows.
TEST(PackedDocuments, TrainAsDocumentsOnTheirOwn) {
  for (const Variant& variant : {Variant{"rope", "llama-tiny", PositionKind::kRotary, 20},
                                 Variant{"learned", "gpt2-tiny", PositionKind::kLearned, {}},
                                 Variant{"alibi", "gpt2-tiny", PositionKind::kAlibi, {}}}) {
    SCOPED_TRACE(variant.name);
    ModelRun packed(variant);
    ModelRun apart(variant);
    MicroBatch row{.samples = 1};
    double sum = 0;
    std::vector<MicroBatch> documents;
    for (const std::int64_t length : {23, 1, 66}) {
      std::vector<std::int32_t> tokens = some_tokens(length + 1 + row.sequence);
      const MicroBatch document = batch_of({tokens.begin() + row.sequence, tokens.end()});
      const auto segment = static_cast<std::int32_t>(documents.size());
      row.tokens.insert(row.tokens.end(), document.tokens.begin(), document.tokens.end());
      row.labels.insert(row.labels.end(), document.labels.begin(), document.labels.end());
      row.loss_mask.insert(row.loss_mask.end(), document.loss_mask.begin(),
                           document.loss_mask.end());
      row.positions.insert(row.positions.end(), document.positions.begin(),
                           document.positions.end());
      row.segments.insert(row.segments.end(), length, segment);
      row.sequence += length;
      documents.push_back(document);
      const Session::Evaluation evaluation = apart.session.evaluate({document});
      sum += evaluation.loss_sum;
    }
    const double loss = packed.session.gradients({row}, 0).loss;
    EXPECT_NEAR(loss, sum / static_cast<double>(row.sequence), 1e-5 * loss);
    // Gradients: the mean over documents of theirs, weighted by their tokens.
    std::vector<std::vector<double>> wanted(apart.session.parameters().size());
    for (const MicroBatch& document : documents) {
      apart.session.gradients({document}, 0);
      const double share =
          static_cast<double>(document.sequence) / static_cast<double>(row.sequence);
      for (std::size_t p = 0; p < wanted.size(); ++p) {
        const Tensor& gradient = apart.session.parameters()[p]->gradient;
        wanted[p].resize(gradient.elements());
        for (std::int64_t i = 0; i < gradient.elements(); ++i)
          wanted[p][i] += share * gradient.data<float>()[i];
      }
    }
    for (std::size_t p = 0; p < wanted.size(); ++p) {
      const Parameter& parameter = *packed.session.parameters()[p];
      double difference = 0;
      double norm = 0;
      for (std::size_t i = 0; i < wanted[p].size(); ++i) {
        difference += std::pow(parameter.gradient.data<float>()[i] - wanted[p][i], 2);
        norm += std::pow(wanted[p][i], 2);
      }
      EXPECT_LE(std::sqrt(difference), 1e-4 * std::sqrt(norm) + 1e-8) << parameter.name;
    }
    // The rows do differ from one document of the same tokens.
    MicroBatch joined = row;
    joined.segments.clear();
    EXPECT_GT(std::fabs(packed.session.gradients({joined}, 0).loss - loss), 1e-3);
  }
}

}  // namespace
}  // namespace piton
