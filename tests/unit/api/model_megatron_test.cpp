// BERT and T5 of Megatron-core's files (tests/golden/megatron_encoders, made by
// tools/oracle/megatron_encoders.py in float64): logits and losses; the same after the files are
// written for several ranks in any module tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint/load_values.h"
#include "checkpoint/safetensors.h"
#include "megatron/megatron_source.h"
#include "megatron/megatron_writer.h"
#include "session/session.h"
#include "support/errors.h"
#include "support/host_machine.h"
#include "support/temp_folder.h"
#include "support/tensors.h"
#include "unit/megatron/compare_sources.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMegatronCases[] = {"bert", "bert-fused-gelu", "bert-one-part", "t5",
                                          "t5-untied"};

fs::path megatron_case(const std::string& name) {
  return fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron_encoders" / name;
}

std::vector<std::int32_t> ints_in(const SafetensorsFile& file, const std::string& name) {
  const Tensor tensor = file.tensor(name);
  return {tensor.data<std::int32_t>(), tensor.data<std::int32_t>() + tensor.elements()};
}

// The batch that Megatron-core had.
MicroBatch batch_in(const SafetensorsFile& file, const ModelConfig& model) {
  MicroBatch batch{.samples = 2};
  const std::vector<std::int32_t> tokens = ints_in(file, "tokens");
  const std::vector<std::int32_t> segments = ints_in(file, "segments");
  batch.labels = ints_in(file, "labels");
  if (model.encoder_decoder) {
    batch.tokens = ints_in(file, "decoder");
    batch.source = {.sequence = std::ssize(tokens) / 2, .tokens = tokens};
    for (int sample = 0; sample < 2; ++sample) {
      const auto begin = segments.begin() + sample * batch.source.sequence;
      batch.source.lengths.push_back(
          static_cast<std::int32_t>(std::count(begin, begin + batch.source.sequence, 0)));
    }
  } else {
    batch.tokens = tokens;
    batch.segments = segments;
    batch.types = ints_in(file, "types");
    if (model.encoder->pair_head) batch.pair_labels = ints_in(file, "pair_labels");
  }
  batch.sequence = std::ssize(batch.tokens) / 2;
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    batch.positions.push_back(static_cast<std::int32_t>(i) %
                              static_cast<std::int32_t>(batch.sequence));
    batch.loss_mask.push_back(batch.labels[i] == kNoLabel ? 0.0F : 1.0F);
  }
  return batch;
}

TEST(MegatronEncoders, GiveTheLogitsAndTheLossOfMegatronCore) {
  for (const char* name : kMegatronCases) {
    SCOPED_TRACE(name);
    MegatronSource source(megatron_case(name));
    const SafetensorsFile expected(megatron_case(name) / "expected.safetensors");
    ModelConfig model = source.model();
    model.hidden_dropout = model.attention_dropout = 0;
    test::HostMachine machine;
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(machine.machine, mesh, {.model = model});
    load_weights(source, {.parameters = session.parameters(), .sharded = &session.sharded()},
                 {mesh, machine.device, machine.arena, *machine.stream});
    session.publish_values();
    const MicroBatch batch = batch_in(expected, model);
    std::vector<ModelInput> inputs = {session.upload(batch, {})};
    inputs[0].wanted = {.loss = false, .logits = true};
    Tensor logits;
    session.pipeline().forward(session.context(false), inputs,
                               [&](int, ChunkOutput& output) { logits = output.logits; });
    machine.stream->synchronize();
    const Tensor wanted = expected.tensor("logits");
    const std::int64_t columns = model.vocabulary;
    double worst = 0;
    for (std::int64_t row = 0; row < std::ssize(batch.tokens); ++row) {
      if (!batch.segments.empty() && batch.segments[static_cast<std::size_t>(row)] < 0) continue;
      for (std::int64_t i = 0; i < columns; ++i) {
        worst = std::max(worst, std::abs(test::value_at(logits, row * logits.dim(1) + i) -
                                         test::value_at(wanted, row * columns + i)));
      }
    }
    EXPECT_LT(worst, 1e-4);
    const Session::Evaluation found = session.evaluate({batch});
    const double loss = test::value_at(expected.tensor("loss"), 0);
    EXPECT_NEAR(found.loss_sum / found.loss_tokens, loss, 1e-5 * loss);
  }
}

TEST(MegatronEncoders, AreTheSameAfterEveryDivision) {
  for (const char* name : kMegatronCases) {
    MegatronSource wanted(megatron_case(name));
    for (const int tensor : {1, 2}) {
      for (const int pipeline : {1, 2}) {
        for (const MegatronTree tree :
             {MegatronTree::kLegacy, MegatronTree::kCore, MegatronTree::kTransformer}) {
          SCOPED_TRACE(fmt::format("{}, tensor {}, pipeline {}, tree {}", name, tensor, pipeline,
                                   static_cast<int>(tree)));
          MegatronWriteOptions options{.layout = {.tensor = tensor, .pipeline = pipeline},
                                       .tree = tree};
          options.layout.padded_vocabulary =
              megatron_padded_vocabulary(wanted.model().vocabulary, 48, tensor);
          if (wanted.model().encoder_decoder && pipeline > 1) {
            EXPECT_EQ(message_of(Fault::kUsage, [&] { options.layout.check(wanted.model()); }),
                      "--target-pipeline-parallel-size: got 2, wanted 1: a model of an encoder and "
                      "a decoder (t5) is not divided into stages in these files");
            continue;
          }
          options.layout.check(wanted.model());
          const TempFolder folder;
          write_megatron(folder.path(), wanted, wanted.model(), options);
          MegatronSource got(folder.path());
          EXPECT_EQ(got.model(), wanted.model());
          expect_same(wanted, got);
        }
      }
    }
  }
}

}  // namespace
}  // namespace piton
