// Weights of one rank, cut from whole ones.
#include "megatron/ranks/rank_weights.h"

#include <gtest/gtest.h>

#include "model/families.h"

namespace piton {
namespace {

TEST(WeightsOfRank, BeginWithTheBoxOfTheirFirstElement) {
  ModelConfig model = llama_facts();
  model.layers = 1;
  model.heads = model.groups = 2;
  model.head_size = 4;
  model.hidden = model.ffn_hidden = model.vocabulary = model.max_positions = 8;
  MegatronLayout layout{.padded_vocabulary = 8};
  BoxedTensors whole;
  for (const MegatronTensor& tensor : megatron_tensors(model, layout, 0, 0, 0)) {
    const Shape& shape = tensor.assembly.shape;
    const std::int64_t columns = shape.ndim() > 1 ? shape[1] : 1;
    whole[tensor.key] = {.rows = shape[0],
                         .columns = columns,
                         .boxes = {{.rows = shape[0], .columns = columns, .stride = columns}}};
  }
  whole["word_embeddings.weight"].boxes = {
      {.row = 0, .rows = 1, .column = 0, .columns = 4, .stride = 4},
      {.row = 0, .rows = 8, .column = 4, .columns = 4, .stride = 4},
      {.row = 1, .rows = 7, .column = 0, .columns = 4, .stride = 4}};
  const MegatronLayout stored = layout;
  layout.tensor = 2;
  const RankWeights second = weights_of_rank(whole, stored, model, layout, {.t = 1});
  const BoxedTensor& table = second.weights.at("word_embeddings.weight");
  EXPECT_EQ(table.rows, 4);
  ASSERT_EQ(table.boxes.size(), 2U);
  for (const std::size_t box : {0U, 1U}) {
    EXPECT_EQ(table.boxes[box].row, 0);
    EXPECT_EQ(table.boxes[box].rows, 4);
    EXPECT_EQ(table.boxes[box].column, box == 0 ? 0 : 4);
  }
}

}  // namespace
}  // namespace piton
