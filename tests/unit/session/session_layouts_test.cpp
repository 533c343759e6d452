// A checkpoint of any layout is read by every other to the bit: weights and moments, with the
// vocabulary of GPT-2, which nothing divides, so that one tensor rank and two have other padding.
// Ranks are threads. By day every other layout is saved, and loaded by itself and by one more; at
// night all are loaded by all.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/run_session.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "support/thread_world.h"

namespace piton {
namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;
using Pieces = std::map<std::string, std::string>;

std::vector<RunLayout> each_kind_of_layout() {
  const ScheduleSettings chunks{.kind = ScheduleKind::kInterleaved, .chunks = 2};
  std::vector<RunLayout> all = {
      {.name = "one process"},
      {.name = "DP 2", .mesh = mesh(1, 2, 1)},
      {.name = "TP 2", .mesh = mesh(2, 1, 1)},
      {.name = "PP 2", .mesh = mesh(1, 1, 2)},
      {.name = "CP 2", .mesh = test::with_context(mesh(1, 1, 1), 2)},
      {.name = "TP 2 x PP 2", .mesh = mesh(2, 1, 2)},
      {.name = "ZeRO-3 on 4 ranks", .mesh = mesh(1, 4, 1), .zero = 3},
      {.name = "PP 2, two chunks a stage", .mesh = mesh(1, 1, 2), .schedule = chunks}};
  for (RunLayout& layout : all) layout.vocabulary_multiple = 128;  // Megatron's
  return all;
}

// So small that the table of words is nearly all of it: 3 MB.
ModelConfig words_of_gpt2() {
  ModelConfig model = preset("gpt2-tiny");
  model.vocabulary = 50257;
  model.layers = 4;
  model.hidden = 16;
  model.heads = model.groups = 2;
  model.head_size = 8;
  model.ffn_hidden = 32;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

void save(TrainingRun& run, const std::filesystem::path& folder) {
  save_checkpoint(run.stored(), run.store(),
                  {folder, {.iteration = 2, .consumed_samples = run.consumed()}, ""});
}

void expect_same_state(const std::filesystem::path& got, const std::filesystem::path& wanted) {
  EXPECT_EQ(weights_hash(find_checkpoint(got)), weights_hash(find_checkpoint(wanted)));
  EXPECT_EQ(optimizer_hash(find_checkpoint(got)), optimizer_hash(find_checkpoint(wanted)));
}

TEST(AnyLayout, ReadsWhatEveryOtherSavedOfAVocabularyThatNothingDivides) {
  const ModelConfig model = words_of_gpt2();
  const std::vector<RunLayout> all = each_kind_of_layout();
  const std::size_t count = all.size();
  for (std::size_t from = 0; from < count; ++from) {
    if (from % 4 != 0 && !test::nightly()) continue;
    const TempFolder folder;
    const auto ranks = static_cast<std::size_t>(all[from].mesh.ranks());
    std::vector<Pieces> end(ranks), end_again(ranks);
    test::run_ranks(all[from].mesh.ranks(), [&](World& world) {
      TrainingRun run(world, all[from], model);
      run.losses(2);
      save(run, folder.path() / "first");
      run.losses(2);
      end[static_cast<std::size_t>(world.rank())] = run.pieces();
    });
    for (std::size_t to = 0; to < count; ++to) {
      if (to != from && to != (from + 3) % count && !test::nightly()) continue;
      SCOPED_TRACE(all[from].name + ", loaded by " + all[to].name);
      const std::filesystem::path again = folder.path() / fmt::format("again_{}", to);
      test::run_ranks(all[to].mesh.ranks(), [&](World& world) {
        TrainingRun run(world, all[to], model);
        run.set_consumed(
            load_checkpoint(find_checkpoint(folder.path() / "first"), run.stored(), run.store())
                .consumed_samples);
        save(run, again);
        if (to != from) return;
        run.losses(2);
        end_again[static_cast<std::size_t>(world.rank())] = run.pieces();
      });
      expect_same_state(again, folder.path() / "first");
    }
    EXPECT_TRUE(end_again == end) << all[from].name << ": two steps, a resume and two steps more";
  }
}

}  // namespace
}  // namespace piton
