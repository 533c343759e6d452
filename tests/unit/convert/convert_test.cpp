// Models converted to another format and back have the same bytes. Output is complete or absent.
#include "convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/json.h"
#include "checkpoint/file_tensor.h"
#include "convert/source_checks.h"
#include "huggingface/hf_source.h"
#include "megatron/megatron_source.h"
#include "support/errors.h"
#include "support/host_machine.h"
#include "support/tensors.h"
#include "unit/convert/same_tensors.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::HfFolder;
using testing::HasSubstr;

const std::vector<std::string> kModels = {"gpt2", "llama", "llama3", "qwen2", "qwen3", "mistral"};

// Flips the lowest bit of a byte of a file when the weights are written: what a faulty writer, disk
// or reader would have done. The verification comes after that.
class FlippedByte final : public Progress {
 public:
  FlippedByte(fs::path file, std::int64_t from_end) : file_(std::move(file)), back_(from_end) {}

  void update(const ProgressState&) override {}
  void finish() override {
    std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-back_, std::ios::end);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-back_, std::ios::end);
    file.put(byte);
    ASSERT_TRUE(file.good()) << file_;
  }

 private:
  fs::path file_;
  std::int64_t back_;
};

class Convert : public testing::Test {
 protected:
  ConvertReport run(const fs::path& load, const fs::path& save, const std::string& to = "",
                    const std::function<void(ConvertOptions&)>& set = {}) {
    ConvertOptions options{.load = load.string(), .save = save.string(), .save_model_type = to};
    if (set) set(options);
    SilentProgress silent;
    return convert(one_.machine, options, silent);
  }

  std::string refusal(Fault fault, const fs::path& load, const fs::path& save,
                      const std::string& to = "") {
    return message_of(fault, [&] { run(load, save, to); });
  }

  test::HostMachine one_;
  TempFolder dir_;
};

// Stops a job where it says `part`.
class StopsAt final : public Progress {
 public:
  struct Stopped {};
  explicit StopsAt(std::string part) : part_(std::move(part)) {}
  void update(const ProgressState& state) override {
    if (state.note.find(part_) != std::string::npos) throw Stopped();
  }
  void finish() override {}

 private:
  std::string part_;
};

TEST_F(Convert, ThatIsStoppedLeavesNothing) {
  for (const std::string to : {"hf", "mg", "gguf", "piton"}) {
    for (const char* part : {" GB", "comparing with the source"}) {
      const fs::path save = dir_ / (to == "gguf" ? "model.gguf" : "model");
      const ConvertOptions options{.load = test::golden_folder("llama").string(),
                                   .save = save.string(),
                                   .save_model_type = to};
      StopsAt progress(part);
      EXPECT_THROW(convert(one_.machine, options, progress), StopsAt::Stopped) << to << part;
      for (const fs::directory_entry& entry : fs::directory_iterator(dir_.path())) {
        EXPECT_EQ(entry.path().extension(), ".lock") << entry.path();
      }
    }
  }
}

TEST_F(Convert, ThereAndBackGivesTheSameBytes) {
  for (const std::string& model : kModels) {
    const fs::path source = test::golden_folder(model);
    const ConvertReport there = run(source, dir_ / (model + "-piton"));
    EXPECT_EQ(there.to, ModelFormat::kPiton);
    ASSERT_TRUE(there.verified);
    EXPECT_TRUE(there.verified->equal());
    EXPECT_EQ(there.verified->largest_difference, 0);
    const ConvertReport back = run(dir_ / (model + "-piton"), dir_ / (model + "-hf"));
    EXPECT_EQ(back.to, ModelFormat::kHuggingFace);
    test::expect_same_tensors(source, dir_ / (model + "-hf"));
    EXPECT_EQ(HfSource(dir_ / (model + "-hf")).model(), HfSource(source).model());
  }
}

TEST_F(Convert, DividesAFolderAnewAndKeepsWhatItDoesNotKnow) {
  HfFolder folder("gpt2");
  folder.edit_config([](nlohmann::ordered_json& config) { config["of_tomorrow"] = {{"a", 1}}; });
  write_text_file(folder.path() / "generation_config.json", "{\"x\": 1}  ");
  write_text_file(folder.path() / "chat_template.jinja", "{{ a }}\n\n");
  write_text_file(folder.path() / "notes.bin", "not of the tokenizer");
  run(folder.path(), dir_ / "out", "hf", [](ConvertOptions& o) { o.max_shard_bytes = 30'000; });
  const HfTensorFiles files(dir_ / "out");
  EXPECT_GT(files.names().size(), 3U);
  for (const std::string& name : files.names())
    EXPECT_LT(fs::file_size(dir_.path() / "out" / name), 35'000U);
  test::expect_same_tensors(folder.path(), dir_ / "out");
  EXPECT_THAT(read_text_file(dir_ / "out/model.safetensors.index.json"),
              HasSubstr(fmt::format("\"total_parameters\": {},",
                                    HfSource(folder.path()).model().parameters())));
  EXPECT_EQ(read_text_file(dir_.path() / "out/generation_config.json"), "{\"x\": 1}  ");
  EXPECT_EQ(read_text_file(dir_.path() / "out/chat_template.jinja"), "{{ a }}\n\n");
  EXPECT_FALSE(fs::exists(dir_.path() / "out/notes.bin"));
  EXPECT_THAT(read_text_file(dir_.path() / "out/config.json"), HasSubstr("\"of_tomorrow\""));
  EXPECT_FALSE(fs::exists(dir_ / "out.unfinished"));
  EXPECT_FALSE(fs::exists(dir_ / "out.lock"));
}

TEST_F(Convert, OfAnotherTypeRoundsEveryWeight) {
  for (const char* type : {"bf16", "fp16"}) {
    const fs::path out = dir_ / type;
    const ConvertReport report =
        run(test::golden_folder("llama"), out, "hf", [&](ConvertOptions& o) { o.dtype = type; });
    EXPECT_TRUE(report.verified->equal());
    const bool bf16 = std::string(type) == "bf16";
    EXPECT_THAT(read_text_file(out / "config.json"), HasSubstr(bf16 ? "bfloat16" : "float16"));
    const HfTensorFiles files(out);
    for (const auto& [name, tensor] : files.tensors())
      EXPECT_EQ(tensor.dtype, bf16 ? "BF16" : "F16");
    const Tensor got = SafetensorsFile(out / "model.safetensors").tensor("lm_head.weight");
    const SafetensorsFile source(test::golden_folder("llama") / "model.safetensors");
    const Tensor from = source.tensor("lm_head.weight");
    for (std::int64_t i = 0; i < got.elements(); ++i) {
      const float wanted = bf16 ? to_float(to_bfloat16(from.data<float>()[i]))
                                : to_float(to_float16(from.data<float>()[i]));
      ASSERT_EQ(test::value_at(got, i), wanted) << i;
    }
  }
}

// A million positions are usual; a table of their angles for each layer is not wanted.
TEST_F(Convert, OfAModelOfMostPositionsNeedsNoMemoryForThem) {
  HfFolder folder("llama");
  folder.edit_config([](auto& config) { config["max_position_embeddings"] = 2'147'483'647; });
  EXPECT_TRUE(run(folder.path(), dir_ / "long").verified->equal());
}

// Of --to mg: none may be passed over where something else is made.
TEST_F(Convert, FlagsOfMegatronMakeMegatronOrAreRefused) {
  const fs::path source = test::golden_folder("llama");
  EXPECT_EQ(run(source, dir_ / "mg", "", [](auto& o) { o.vocabulary_multiple = 16; }).to,
            ModelFormat::kMegatron);
  const auto usage = [&](const std::string& to, const std::function<void(ConvertOptions&)>& set) {
    return message_of(Fault::kUsage, [&] { run(source, dir_ / "x", to, set); });
  };
  EXPECT_THAT(usage("hf", [](auto& o) { o.vocabulary_multiple = 16; }),
              HasSubstr("--make-vocab-size-divisible-by: is for --to mg"));
  EXPECT_THAT(usage("", [](auto& o) { o.vocabulary_multiple = 0; }), HasSubstr("got 0, wanted 1"));
  EXPECT_THAT(usage("", [](auto& o) { o.core_layers = "transformer_engine"; }),
              HasSubstr("give --use-mcore-models too"));
  EXPECT_THAT(usage("",
                    [](auto& o) {
                      o.pipeline = 2;
                      o.stage_layers = {1, 1};
                      o.layers_of_virtual_stage = 1;
                    }),
              HasSubstr("--num-layer-list: has no virtual stages"));
  EXPECT_THAT(usage("", [](auto& o) { o.added_tokens = 2'000'000'000; }),
              HasSubstr("wanted at most 1048576 rows of padding"));
  EXPECT_FALSE(fs::exists(dir_ / "x"));
  // MindSpeed's scripts name one rank of each kind, and the source's modules, for hf too.
  EXPECT_EQ(run(dir_ / "mg", dir_ / "hf", "hf",
                [](auto& o) {
                  o.tensor = o.pipeline = 1;
                  o.core = true;
                })
                .to,
            ModelFormat::kHuggingFace);
}

// Even where nothing is compared: parts of two files would make one model.
TEST_F(Convert, OfAFileThatChangesMeanwhileIsRefused) {
  for (const bool no_verify : {false, true}) {
    HfFolder folder("llama");
    const fs::path weights = folder.path() / "model.safetensors";
    ConvertOptions options{.load = folder.path().string(),
                           .save = (dir_ / "changed").string(),
                           .save_model_type = "hf",
                           .no_verify = no_verify};
    FlippedByte changes(weights, 5);                             // when the weights are written
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a clock of files may be coarse
    EXPECT_EQ(message_of(Fault::kData, [&] { convert(one_.machine, options, changes); }),
              weights.string() + ": changed while it was converted; start again when it is whole");
    EXPECT_TRUE(fs::is_empty(dir_.path()));
  }
}

TEST_F(Convert, IntoATypeThatDoesNotHoldItsValuesIsRefused) {
  HfFolder folder("llama");
  folder.tensors.at("model.layers.0.mlp.up_proj.weight").data<float>()[7] = 70'000;
  folder.write();
  const auto message = [&](const fs::path& save, const std::function<void(ConvertOptions&)>& set) {
    return message_of(Fault::kData, [&] { run(folder.path(), save, "", set); });
  };
  const char* wanted =
      "layers.0.mlp.up.weight: element 7 is 70000, which becomes inf in the type of ";
  EXPECT_THAT(message(dir_ / "half", [](ConvertOptions& o) { o.dtype = "fp16"; }),
              HasSubstr(wanted));
  EXPECT_THAT(message(dir_ / "half.gguf", [](ConvertOptions& o) { o.outtype = "f16"; }),
              HasSubstr(wanted));
  EXPECT_TRUE(fs::is_empty(dir_.path()));
  EXPECT_TRUE(run(folder.path(), dir_ / "bf16", "", [](ConvertOptions& o) {
                o.dtype = "bf16";
              }).verified->equal());
}

TEST_F(Convert, OfValuesThatAreNotFiniteSaysSo) {
  HfFolder folder("llama");
  folder.tensors.at("model.norm.weight").data<float>()[3] = std::nanf("");
  folder.tensors.at("model.layers.1.mlp.up_proj.weight").data<float>()[0] = INFINITY;
  folder.write();
  for (const char* type : {"", "fp16"}) {
    const ConvertReport report = run(folder.path(), dir_ / fmt::format("out{}", type), "",
                                     [&](ConvertOptions& o) { o.dtype = type; });
    EXPECT_TRUE(report.verified->equal());
    ASSERT_EQ(report.notes.size(), 1U);
    EXPECT_THAT(report.notes[0], HasSubstr("values that are not finite in layers.1.mlp.up.weight, "
                                           "final_norm.weight; is it damaged?"));
  }
}

TEST_F(Convert, DropsPaddingAndTheCopyOfATiedTable) {
  HfFolder folder("llama3");
  const Tensor table = folder.tensors.at("model.embed_tokens.weight");
  const Tensor padded = host_tensor(DType::kF32, {table.shape()[0] + 5, table.shape()[1]});
  std::memset(padded.raw(), 0, static_cast<std::size_t>(padded.bytes()));
  std::memcpy(padded.raw(), table.raw(), static_cast<std::size_t>(table.bytes()));
  folder.tensors["model.embed_tokens.weight"] = padded;
  folder.tensors["lm_head.weight"] = padded;
  folder.write();
  run(folder.path(), dir_ / "out", "hf");
  test::expect_same_tensors(test::golden_folder("llama3"), dir_ / "out");
  EXPECT_THAT(read_text_file(dir_.path() / "out/config.json"),
              HasSubstr("\"tie_word_embeddings\": true"));
}

TEST_F(Convert, RefusesATargetThatIsThere) {
  const fs::path source = test::golden_folder("llama");
  write_text_file(dir_.path() / "full/file", "x");
  fs::create_directory_symlink(dir_ / "full", dir_ / "link");
  EXPECT_THAT(refusal(Fault::kUsage, source, dir_ / "full"),
              HasSubstr("full: is not empty; wanted a folder that is not there yet, or empty"));
  EXPECT_THAT(refusal(Fault::kUsage, source, dir_ / "link"), HasSubstr("link: is a link"));
  EXPECT_THAT(refusal(Fault::kUsage, source, dir_.path() / "full/file"), HasSubstr("is a file"));
  EXPECT_EQ(read_text_file(dir_.path() / "full/file"), "x");
  fs::create_directory(dir_ / "empty");
  run(source, (dir_ / "empty").string() + "/");
  EXPECT_TRUE(fs::exists(dir_.path() / "empty/iter_0000000"));
}

TEST_F(Convert, ThatFailsLeavesNothing) {
  HfFolder folder("llama");
  run(folder.path(), dir_ / "piton");
  // A byte of the last tensor file: found when its tensor is read, after others were written.
  const fs::path file = dir_.path() / "piton/iter_0000000/model-00001.safetensors";
  std::string bytes = read_text_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  fs::remove(file);
  write_text_file(file, bytes);
  EXPECT_THAT(refusal(Fault::kData, dir_ / "piton", dir_ / "out"),
              HasSubstr("its bytes were changed since they were saved"));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  EXPECT_FALSE(fs::exists(dir_ / "out.unfinished"));
  EXPECT_THAT(refusal(Fault::kData, dir_ / "absent", dir_ / "out"),
              HasSubstr("absent: there is no such folder, wanted the folder of a run or of a "
                        "model, or a GGUF file"));
}

TEST_F(Convert, ThatVerificationFindsToDifferIsWithdrawn) {
  const fs::path source = test::golden_folder("llama");  // its last tensor: model.norm.weight
  const auto refusal_with = [&](const std::string& save, const std::string& file,
                                std::int64_t from_end, const std::string& to) {
    FlippedByte flipped((dir_ / save).string() + ".unfinished/" + file, from_end);
    const ConvertOptions options{
        .load = source.string(), .save = (dir_ / save).string(), .save_model_type = to};
    const std::string line =
        message_of(Fault::kData, [&] { convert(one_.machine, options, flipped); });
    for (const char* end : {"", ".unfinished", ".lock"})
      EXPECT_FALSE(fs::exists((dir_ / save).string() + end)) << save << end;
    EXPECT_EQ(line.find('\n'), std::string::npos);
    return line;
  };
  const std::string differs = "differs from " + source.string() + " and was removed: ";
  const std::string hf = refusal_with("hf", "model.safetensors", 1, "hf");
  EXPECT_THAT(hf,
              HasSubstr((dir_ / "hf").string() + ": " + differs + "final_norm.weight: element"));
  EXPECT_THAT(hf, HasSubstr(", the source has "));
  EXPECT_THAT(hf, HasSubstr("; please report this"));
  EXPECT_THAT(refusal_with("a.gguf", "model.gguf", 5, "gguf"), HasSubstr(differs));
  // Only the verification sees it.
  FlippedByte flipped((dir_ / "out").string() + ".unfinished/model.safetensors", 1);
  convert(one_.machine,
          {.load = source.string(),
           .save = (dir_ / "out").string(),
           .save_model_type = "hf",
           .no_verify = true},
          flipped);
  EXPECT_TRUE(fs::exists(dir_ / "out"));
}

// Weights that are equal, and a configuration by which they compute otherwise.
TEST_F(Convert, WhoseDescriptionDiffersIsWithdrawn) {
  class OtherBase final : public Progress {
   public:
    explicit OtherBase(fs::path file) : file_(std::move(file)) {}
    void update(const ProgressState&) override {}
    void finish() override {
      auto config = read_json<nlohmann::ordered_json>(read_text_file(file_));
      config["rope_parameters"]["rope_theta"] = 20000.0;
      fs::remove(file_);
      write_text_file(file_, config.dump());
    }

   private:
    fs::path file_;
  } other((dir_ / "out").string() + ".unfinished/config.json");
  const ConvertOptions options{.load = test::golden_folder("llama").string(),
                               .save = (dir_ / "out").string(),
                               .save_model_type = "hf"};
  EXPECT_THAT(message_of(Fault::kData, [&] { convert(one_.machine, options, other); }),
              HasSubstr("its rotary positions cannot be expressed in the format hf"));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  EXPECT_FALSE(fs::exists(dir_ / "out.unfinished"));
}

TEST_F(Convert, OfTheTokenizersFilesTakesNoneThatALinkBringsFromElsewhere) {
  HfFolder folder("llama");
  write_text_file(dir_ / "secret", "x");
  fs::create_symlink(dir_ / "secret", folder.path() / "vocab.txt");
  EXPECT_THAT(refusal(Fault::kData, folder.path(), dir_ / "out", "hf"),
              HasSubstr("vocab.txt: a link that leads out of the folder"));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(Convert, CopiesModulesThatConfigNamesAndSaysWhereTheyAreNot) {
  HfFolder folder("internlm2");
  write_text_file(folder.path() / "modeling_internlm2.py", "import torch\n");
  write_text_file(folder.path() / "helper.py", "x = 1\n");
  run(folder.path(), dir_ / "plain", "hf");
  EXPECT_FALSE(fs::exists(dir_.path() / "plain/helper.py"));
  folder.edit_config([](nlohmann::ordered_json& config) {
    config["auto_map"] = {{"AutoModel", "modeling_internlm2.InternLM2ForCausalLM"}};
  });
  EXPECT_THAT(run(folder.path(), dir_ / "hf", "hf").notes, testing::IsEmpty());
  EXPECT_EQ(read_text_file(dir_.path() / "hf/modeling_internlm2.py"), "import torch\n");
  EXPECT_EQ(read_text_file(dir_.path() / "hf/helper.py"), "x = 1\n");
  run(folder.path(), dir_ / "piton");
  EXPECT_THAT(run(dir_ / "piton", dir_ / "back").notes,
              testing::Contains(HasSubstr("names modules in Python (auto_map) that are not here")));
  fs::remove(folder.path() / "helper.py");
  write_text_file(dir_ / "secret.py", "x");
  fs::create_symlink(dir_ / "secret.py", folder.path() / "helper.py");
  EXPECT_THAT(refusal(Fault::kData, folder.path(), dir_ / "out", "hf"),
              HasSubstr("helper.py: a link that leads out of the folder"));
}

TEST_F(Convert, SaysWhatTheSourceIsWhereAnotherWasNamed) {
  const auto with = [&](const std::string& type) {
    return message_of(Fault::kUsage, [&] {
      run(test::golden_folder("llama"), dir_ / "out", "hf",
          [&](ConvertOptions& o) { o.load_model_type = type; });
    });
  };
  EXPECT_THAT(with("piton"), HasSubstr("--load-model-type: got piton, but "));
}

TEST_F(Convert, DividesLayersUnevenlyAndLeavesPlacesEmpty) {
  const fs::path source = test::golden_folder("qwen3");  // of two layers
  const auto divide = [&](const fs::path& save, std::vector<std::int64_t> stages,
                          std::vector<std::int64_t> empty, bool apart) {
    run(source, save, "mg", [&](ConvertOptions& o) {
      o.tensor = 2;
      o.pipeline = std::ssize(stages);
      o.stage_layers = std::move(stages);
      o.empty_layers = std::move(empty);
      o.apart_mlp = apart;
      o.vocabulary_multiple = 16;
      o.added_tokens = 20;
    });
  };
  int number = 0;
  const auto comes_back = [&](std::vector<std::int64_t> stages, std::vector<std::int64_t> empty,
                              bool apart) {
    const fs::path there = dir_ / fmt::format("there{}", ++number);
    const fs::path back = dir_ / fmt::format("back{}", number);
    divide(there, stages, empty, apart);
    const MegatronSource megatron(there);
    EXPECT_EQ(megatron.layout().stage_layers, stages);
    EXPECT_EQ(megatron.layout().empty_layers, empty);
    EXPECT_EQ(megatron.layout().fused_mlp, !apart);
    EXPECT_EQ(megatron.layout().padded_vocabulary, 160);  // 131 and 20 more, to a multiple of 32
    run(there, back, "hf");
    test::expect_same_tensors(source, back);
  };
  comes_back({1, 1}, {}, false);
  comes_back({2, 1}, {1}, true);
  comes_back({1, 3}, {0, 2}, true);
  const auto refusal_of = [&](std::vector<std::int64_t> stages, std::vector<std::int64_t> empty) {
    return message_of(Fault::kUsage, [&] { divide(dir_ / "x", stages, empty, false); });
  };
  EXPECT_THAT(refusal_of({1, 2}, {}),
              HasSubstr("--num-layer-list: got 1,2, wanted 2 numbers (of "
                        "--target-pipeline-parallel-size) with a sum of 2, the layers"));
  EXPECT_THAT(refusal_of({1, 2}, {3}), HasSubstr("--noop-layers: got 3, wanted ascending places"));
  EXPECT_FALSE(fs::exists(dir_ / "x"));
}

TEST_F(Convert, KeepsArgumentsAsANamespaceWhereThatIsAskedFor) {
  run(test::golden_folder("qwen2"), dir_ / "mg", "mg",
      [](ConvertOptions& o) { o.arguments = true; });
  const std::string file = read_text_file(dir_.path() / "mg/release/mp_rank_00/model_optim_rng.pt");
  EXPECT_THAT(file, HasSubstr("argparse\nNamespace\n"));
  run(dir_ / "mg", dir_ / "back", "hf");
  test::expect_same_tensors(test::golden_folder("qwen2"), dir_ / "back");
  run(test::golden_folder("qwen2"), dir_ / "plain", "mg");
  EXPECT_THAT(read_text_file(dir_.path() / "plain/release/mp_rank_00/model_optim_rng.pt"),
              testing::Not(HasSubstr("argparse")));
}

TEST(SourceChecks, KnowTheSizesThatConvertersName) {
  const auto said = [](const std::string& size, std::int64_t hidden) {
    ConvertOptions options;
    options.size = size;
    OpenedModel from;
    from.model.layers = 60;
    from.model.hidden = hidden;
    from.model.heads = 52;
    return message_of(Fault::kUsage, [&] {
      check_source(options, from);
      throw Error(Fault::kUsage, "nothing");
    });
  };
  EXPECT_EQ(said("30B", 6656), "nothing");
  EXPECT_EQ(said("33B", 6656), "nothing");
  EXPECT_THAT(said("33B", 6657), HasSubstr("--type: got 33B, but "));
}

TEST_F(Convert, ComparesWhatIsSaidOfTheSourceWithIt) {
  const auto said = [&](const std::function<void(ConvertOptions&)>& set) {
    return message_of(Fault::kUsage,
                      [&] { run(test::golden_folder("qwen2"), dir_ / "x", "hf", set); });
  };
  EXPECT_THAT(said([](ConvertOptions& o) { o.size = "7B"; }), HasSubstr("--type: got 7B, but "));
  EXPECT_THAT(said([](ConvertOptions& o) { o.source_tensor = 2; }),
              HasSubstr("--src-tensor-model-parallel-size: got 2, but "));
  EXPECT_THAT(said([](ConvertOptions& o) { o.model.hidden = 64; }),
              HasSubstr("--hidden-size: got 64, but the model of "));
  EXPECT_THAT(said([](ConvertOptions& o) { o.model.vocabulary = 130; }),
              HasSubstr("--vocab-size: got 130, but "));
  EXPECT_THAT(said([](ConvertOptions& o) { o.model.model = "llama-tiny"; }),
              HasSubstr("--model: "));
  EXPECT_THAT(said([](ConvertOptions& o) { o.tensor = 2; }),
              HasSubstr("--target-tensor-parallel-size: is for --to mg, and this writes hf"));
  run(test::golden_folder("qwen2"), dir_ / "same", "hf", [](ConvertOptions& o) {
    o.model.layers = 2;
    o.model.hidden = 32;
    o.model.qkv_biases = true;
    o.model.vocabulary = 131;
    o.source_pipeline = 1;
  });
}

TEST_F(Convert, IntoAGgufFileIsProvedAndWithdrawnWhereItIsThere) {
  for (const std::string& model : kModels) {
    if (model == "mistral") continue;  // a window: see gguf_source_test.cpp
    for (const char* type : {"", "f16", "q8_0", "q4_0"}) {
      const fs::path path = dir_ / (model + type + ".gguf");
      const ConvertReport report =
          run(test::golden_folder(model), path, "", [&](ConvertOptions& o) { o.outtype = type; });
      EXPECT_EQ(report.to, ModelFormat::kGguf);
      ASSERT_TRUE(report.verified);
      EXPECT_EQ(report.verified->largest_difference, 0) << model << type;
      EXPECT_EQ(report.quantization.has_value(),
                std::string(type).starts_with("q") && (model != "gpt2"))  // rows of 36
          << model << type;
      if (report.quantization) {
        EXPECT_GT(report.quantization->largest_difference, 0);
      }
    }
    run(dir_ / (model + ".gguf"), dir_ / (model + "-hf"), "hf");
    test::expect_same_tensors(test::golden_folder(model), dir_ / (model + "-hf"));
  }
  EXPECT_THAT(refusal(Fault::kUsage, test::golden_folder("llama"), dir_ / "llama.gguf"),
              HasSubstr("llama.gguf: is there already; wanted a file that is not there yet"));
  EXPECT_FALSE(fs::exists(dir_ / "llama.gguf.unfinished"));
}

}  // namespace
}  // namespace piton
