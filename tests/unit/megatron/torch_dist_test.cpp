// Folders of Megatron-core's dist_checkpointing: those that it wrote (tools/oracle/
// megatron_torch_dist.py) hold the model that one process has; damaged ones are refused.
#include "megatron/distributed/torch_dist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "base/files/files.h"
#include "megatron/megatron_source.h"
#include "pickle/torch_writer.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/megatron/compare_sources.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path golden_folder(const std::string& name) {
  return fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron/torch_dist" / name;
}

TEST(TorchDistFolder, HoldsTheModelThatOneProcessHas) {
  MegatronSource plain(golden_folder("plain"));
  for (const auto& [name, pipeline] : {std::pair{"divided", 2}, {"numbered", 1}}) {
    ASSERT_TRUE(is_megatron_folder(golden_folder(name)));
    MegatronSource source(golden_folder(name));
    EXPECT_EQ(source.form(), "torch_dist");
    EXPECT_EQ(source.iteration(), 5);
    EXPECT_EQ(source.layout().tensor, 2);
    EXPECT_EQ(source.layout().pipeline, pipeline);
    EXPECT_EQ(source.model().hidden, 16);
    if (pipeline == 1) expect_same(plain, source);
  }
}

// The oracle's copies are the bf16 weights times 1 + 2^-11, which rounds to these weights.
void expect_masters(const fs::path& folder) {
  MegatronSource plain(golden_folder("plain"));
  MegatronSource source(folder);
  ASSERT_EQ(source.notes().size(), 2U);  // the other is of the vocabulary
  EXPECT_THAT(source.notes()[1], HasSubstr("the weights are the optimizer's fp32 copies"));
  const std::vector<CanonicalTensor> tensors = plain.tensors(TensorKind::kWeight);
  ASSERT_EQ(tensors.size(), source.tensors(TensorKind::kWeight).size());
  for (const CanonicalTensor& tensor : source.tensors(TensorKind::kWeight)) {
    ASSERT_EQ(tensor.dtype, DType::kF32) << tensor.name;
    const auto elements = static_cast<std::size_t>(tensor.shape.elements());
    std::vector<float> rounded(elements);
    std::vector<float> copies(elements);
    plain.read(tensor.name, whole_run(tensor.shape), DType::kF32,
               reinterpret_cast<std::byte*>(rounded.data()));
    source.read(tensor.name, whole_run(tensor.shape), DType::kF32,
                reinterpret_cast<std::byte*>(copies.data()));
    for (std::size_t i = 0; i < elements; ++i)
      ASSERT_EQ(copies[i], rounded[i] * (1 + 0x1p-11F)) << tensor.name << " " << i;
  }
}

TEST(MasterWeights, AreTakenFromTheOptimizerOfEveryForm) {
  for (const char* name : {"divided", "groups", "buffer", "buffer-odd"}) {
    SCOPED_TRACE(name);
    expect_masters(golden_folder(name));
  }
}

TEST(MasterWeights, ThatAreNotOfTheWeightsStayBehind) {
  // The optimizer of another model, of the same sizes.
  TempFolder dir;
  fs::create_directories(dir / "mp_rank_00");
  fs::copy(golden_folder("plain") / "mp_rank_00/model_optim_rng.pt", dir / "mp_rank_00");
  fs::copy(golden_folder("buffer-other") / "mp_rank_00/distrib_optim.pt", dir / "mp_rank_00");
  MegatronSource plain(golden_folder("plain"));
  MegatronSource source(dir.path());
  EXPECT_THAT(source.notes().back(), HasSubstr("no fp32 copies of the weights are found in it"));
  expect_same(plain, source);
}

TEST(TorchDistFolder, GivesRunsOfAnyShape) {
  MegatronSource plain(golden_folder("plain"));
  MegatronSource source(golden_folder("numbered"));
  for (const CanonicalTensor& tensor : plain.tensors(TensorKind::kWeight)) {
    if (tensor.shape.ndim() != 2) continue;
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t columns = tensor.shape[1];
    for (const auto& [r, c, h, w] :
         {std::array{1L, 0L, rows - 1, columns}, std::array{0L, 3L, rows, columns - 5},
          std::array{rows / 2 - 1, columns / 2 - 2, 3L, 4L}}) {
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, h * w}, {2, h * w - 1}}) {
        const TensorRun run{{r, c}, {h, w}, begin, end};
        std::vector<float> x(static_cast<std::size_t>(run.size()));
        std::vector<float> y(x.size());
        plain.read(tensor.name, run, DType::kF32, reinterpret_cast<std::byte*>(x.data()));
        source.read(tensor.name, run, DType::kF32, reinterpret_cast<std::byte*>(y.data()));
        ASSERT_EQ(x, y) << tensor.name << " " << begin;
      }
    }
  }
}

// The pickle that torch.distributed.checkpoint makes of a Metadata, instruction by instruction.

std::string u32(std::size_t value) { return std::string(reinterpret_cast<const char*>(&value), 4); }
std::string text(const std::string& value) { return "X" + u32(value.size()) + value; }
std::string number(std::int64_t value) {
  return "\x8a\x08" + std::string(reinterpret_cast<const char*>(&value), 8);
}
std::string size(const std::vector<std::int64_t>& sizes) {
  std::string all = "ctorch\nSize\n((";
  for (const std::int64_t one : sizes) all += number(one);
  return all + "ttR";
}
std::string list(const std::vector<std::string>& items) {
  std::string all = "](";
  for (const std::string& item : items) all += item;
  return all + "e";
}
std::string object(const std::string& module, const std::string& name, const std::string& pairs) {
  return "c" + module + "\n" + name + "\n)\x81}(" + pairs + "ub";
}

struct Chunk {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> extent;
  std::string file = "__0_0.distcp";
  std::int64_t offset = 0;
  std::optional<std::int64_t> length;  // else that of the file
};

class TorchDistMade : public testing::Test {
 protected:
  // One tensor, and files of its chunks unless they are there.
  void write(const std::vector<std::int64_t>& shape, const std::vector<Chunk>& chunks,
             const std::string& more = "", const std::string& tensor_name = kTable) {
    tensors_.clear();
    places_.clear();
    write_too(shape, chunks, more, tensor_name);
  }
  // The same in addition to the tensors of the folder.
  void write_too(const std::vector<std::int64_t>& shape, const std::vector<Chunk>& chunks,
                 const std::string& more, const std::string& tensor_name) {
    const std::string module = "torch.distributed.checkpoint.metadata";
    std::vector<std::string> boxes;
    for (const Chunk& chunk : chunks) {
      boxes.push_back(
          object(module, "ChunkStorageMetadata",
                 text("offsets") + size(chunk.start) + text("sizes") + size(chunk.extent)));
      const fs::path file = dir_ / chunk.file;
      if (chunk.file.find('/') == std::string::npos && !fs::exists(file))
        write_box(file, chunk.extent);
      const std::int64_t length =
          chunk.length ? *chunk.length : static_cast<std::int64_t>(fs::file_size(file));
      places_ += object(module, "MetadataIndex",
                        text("fqn") + text(tensor_name) + text("offset") + size(chunk.start));
      places_ += object("torch.distributed.checkpoint.filesystem", "_StorageInfo",
                        text("relative_path") + text(chunk.file) + text("offset") +
                            number(chunk.offset) + text("length") + number(length) + more);
    }
    const std::string properties = "c" + module + "\nTensorProperties\n)\x81(ctorch\nfloat32\nNtb";
    tensors_ += text(tensor_name) + object(module, "TensorStorageMetadata",
                                           text("properties") + properties + text("size") +
                                               size(shape) + text("chunks") + list(boxes));
    write_text_file(dir_ / ".metadata",
                    "\x80\x02" +
                        object(module, "Metadata",
                               text("state_dict_metadata") + "}(" + tensors_ + "u" +
                                   text("storage_data") + "}(" + places_ + "u") +
                        ".");
  }
  static void write_box(const fs::path& path, const std::vector<std::int64_t>& shape) {
    TorchWriter out(path);
    out.tensor("F32", shape);
    std::int64_t elements = 1;
    for (const std::int64_t one : shape) elements *= one;
    out.append(std::vector<std::byte>(static_cast<std::size_t>(elements) * 4));
    out.commit();
  }
  std::string refusal() const {
    return message_of(Fault::kData, [&] { TorchDist{dir_.path()}; });
  }

  static constexpr const char* kTable = "embedding.word_embeddings.weight";
  TempFolder dir_;
  std::string tensors_;  // of the metadata, as pickled
  std::string places_;
};

TEST_F(TorchDistMade, OfBoxesOfAnyPlaceIsRead) {
  write({4, 6}, {{{0, 0}, {4, 2}, "__0_0.distcp"},
                 {{0, 2}, {1, 4}, "__1_0.distcp"},
                 {{1, 2}, {3, 4}, "__1_1.distcp"}});
  const TorchDist files(dir_.path());
  const BoxedTensors tensors = files.tensors(0, 0, 0);
  ASSERT_EQ(tensors.size(), 1U);
  const BoxedTensor& table = tensors.at("word_embeddings.weight");
  EXPECT_EQ(table.rows, 4);
  EXPECT_EQ(table.columns, 6);
  EXPECT_EQ(table.boxes.size(), 3U);
}

TEST_F(TorchDistMade, OfStackedLayersHasThemOneByOne) {
  write({3, 4}, {{{0, 0}, {1, 4}, "__0_0.distcp"}, {{1, 0}, {2, 4}, "__1_0.distcp"}}, "",
        "decoder.layers.input_layernorm.weight");
  const BoxedTensors tensors = TorchDist(dir_.path()).tensors(0, 0, 0);
  ASSERT_EQ(tensors.size(), 3U);
  const BoxedTensor& last = tensors.at("layers.2.input_norm.weight");
  EXPECT_EQ(last.rows, 4);
  EXPECT_EQ(last.columns, 1);
  EXPECT_EQ(last.boxes.at(0).offset,
            tensors.at("layers.1.input_norm.weight").boxes.at(0).offset + 16);
}

TEST_F(TorchDistMade, WithGapsOverlapsOrBoxesOutsideIsRefused) {
  write({4, 6}, {{{0, 0}, {4, 2}, "__0_0.distcp"}});
  EXPECT_THAT(refusal(), HasSubstr("has chunks of 8 elements, wanted 24; is the copy complete?"));
  write({4, 6}, {{{0, 0}, {4, 3}, "__0_1.distcp"}, {{0, 2}, {4, 3}, "__0_1.distcp"}});
  EXPECT_THAT(refusal(), HasSubstr("chunks that overlap"));
  write({4, 6}, {{{0, 4}, {4, 3}, "__0_1.distcp"}});
  EXPECT_THAT(refusal(), HasSubstr("a chunk beyond its shape [4, 6]"));
  write({4, 6}, {{{0, 0}, {4, 6}, "__0_2.distcp"}, {{0, 0}, {4, 5}, "__0_2.distcp"}});
  EXPECT_THAT(refusal(), HasSubstr("two chunks at [0, 0]"));
}

TEST_F(TorchDistMade, WhoseFilesAreNotWhatItSaysIsRefused) {
  write({4, 6}, {{{0, 0}, {4, 6}, "__0_0.distcp", 100}});
  EXPECT_THAT(refusal(), HasSubstr("is the copy complete?"));
  write({4, 6}, {{{0, 0}, {4, 6}, "__0_0.distcp", 0, 100}});
  EXPECT_THAT(refusal(), HasSubstr("__0_0.distcp: not a valid zip archive"));
  write({4, 3}, {{{0, 0}, {4, 3}}});
  EXPECT_THAT(refusal(), HasSubstr("is F32 of shape [4, 6] there, wanted F32 of [4, 3]"));
  write({4, 6}, {{{0, 0}, {4, 6}, "../x.distcp", 0, 100}});
  EXPECT_THAT(refusal(), HasSubstr("names the file ../x.distcp, wanted one of its folder"));
  fs::remove(dir_ / "__0_0.distcp");
  write({4, 6}, {{{0, 0}, {4, 6}}}, text("transform_descriptors") + list({text("zstd")}));
  EXPECT_THAT(refusal(), HasSubstr("is compressed"));
  // As many layers as no memory holds, in a file of one.
  write({1, 4}, {{{0, 0}, {1, 4}, "__0_3.distcp"}}, "", "decoder.layers.input_layernorm.weight");
  write({1 << 30, 4}, {{{0, 0}, {1 << 30, 4}, "__0_3.distcp"}}, "",
        "decoder.layers.input_layernorm.weight");
  EXPECT_THAT(refusal(), HasSubstr("is F32 of shape [1, 4] there"));
}

TEST_F(TorchDistMade, OfSizesBelowZeroHasNone) {
  write({4, 6}, {{{0, 0}, {4, 6}}});
  write({4, -6}, {{{0, 0}, {4, 6}}});
  EXPECT_THAT(refusal(), HasSubstr("embedding.word_embeddings.weight has no sizes"));
  write({4, 6}, {{{0, -1}, {4, 6}}});
  EXPECT_THAT(refusal(), HasSubstr("embedding.word_embeddings.weight has no sizes"));
}

// Flat pieces [tiles of rows, tiles of columns, elements of a tile].
TEST_F(TorchDistMade, WithStatesInPiecesThatAreNotOfTheWeightIsRefused) {
  const auto moments = [&](const std::vector<std::int64_t>& shape) {
    write({4, 6}, {{{0, 0}, {4, 6}, "__0_0.distcp"}});
    for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
      std::vector<Chunk> tiles;
      for (std::int64_t row = 0; row < shape[0]; ++row) {
        for (std::int64_t column = 0; column < shape[1]; ++column)
          tiles.push_back(
              {{row, column, 0}, {1, 1, shape[2]}, fmt::format("{}_{}.distcp", kind, shape[2])});
      }
      write_too(shape, tiles, "", fmt::format("optimizer.state.{}.{}", kind, kTable));
    }
    return TorchDist(dir_.path()).moments(0, 0, 0);
  };
  for (const auto& shape : {std::vector<std::int64_t>{2, 1, 12}, {2, 3, 4}, {1, 1, 24}})
    EXPECT_EQ(moments(shape).first.at("word_embeddings.weight").columns, 6);
  for (const auto& shape : {std::vector<std::int64_t>{2, 1, 13}, {1, 4, 4}, {3, 1, 6}}) {
    EXPECT_THAT(message_of(Fault::kData, [&] { moments(shape); }),
                HasSubstr("wanted flat pieces of [4, 6] in F32"))
        << fmt::format("{}", fmt::join(shape, ", "));
  }
}

TEST_F(TorchDistMade, OfAnotherKindIsRefused) {
  write({4, 6}, {{{0, 0}, {4, 6}}}, "", "optimizer.state.exp_avg.embedding.word_embeddings.weight");
  EXPECT_THAT(refusal(), HasSubstr("holds no weights"));
  write({4, 6}, {{{0, 0}, {4, 6}}});
  write_text_file(dir_ / "metadata.json", R"({"sharded_backend": "zarr"})");
  EXPECT_THAT(refusal(), HasSubstr("sharded_backend: got \"zarr\", wanted \"torch_dist\""));
  write_text_file(dir_ / "metadata.json", R"({"sharded_backend": "torch_dist"})");
  EXPECT_NO_THROW(TorchDist{dir_.path()});
  EXPECT_THAT(message_of(Fault::kData, [&] { MegatronSource{dir_.path()}; }),
              HasSubstr(".metadata: stores no arguments, so its model is unknown"));
  write_text_file(dir_ / ".metadata",
                  "\x80\x02"
                  "cos\nsystem\n.");
  EXPECT_THAT(refusal(), HasSubstr("names os.system"));
}

}  // namespace
}  // namespace piton
