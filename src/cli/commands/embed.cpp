// piton embed: a vector for each line of a file.
#include <cmath>

#include "api/encoder.h"
#include "base/files/creatable.h"
#include "base/files/files.h"
#include "checkpoint/safetensors.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/terminal/standard_input.h"
#include "data/records/whole_text.h"

namespace piton::cli {
namespace {

struct EmbedOptions {
  std::string load;
  std::string output;
  Pooling pooling = Pooling::kMean;
  bool normalize = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load",
             "run, checkpoint or Hugging Face folder of an encoder (BERT, RoBERTa)",
             {.placeholder = "DIR"}},
      load);
    v(Option{"output",
             "file for the vectors, fp32 [lines, hidden size]: the tensor embeddings of a "
             "safetensors file, or a NumPy file (.npy)",
             {.aliases = {"save"}, .placeholder = "F.safetensors"}},
      output);
    v(
        Option{
            "pooling",
            "what makes the vector of a line: the mean of the hidden states of the last layer, the "
            "first one, of [CLS], or what the model's pooler makes of that"},
        Choice(
            pooling,
            {{"mean", Pooling::kMean}, {"first", Pooling::kFirst}, {"pooler", Pooling::kPooler}}));
    v(Option{"normalize", "divide each vector by its length"}, normalize);
  }
};

void normalize_rows(const Tensor& vectors) {
  const std::int64_t width = vectors.dim(1);
  for (std::int64_t row = 0; row < vectors.dim(0); ++row) {
    float* values = vectors.data<float>() + row * width;
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += static_cast<double>(values[i]) * values[i];
    if (sum == 0) continue;
    const double length = std::sqrt(sum);
    for (std::int64_t i = 0; i < width; ++i)
      values[i] = static_cast<float>(static_cast<double>(values[i]) / length);
  }
}

// Version 1.0 (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
std::string numpy_file(const Tensor& vectors) {
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", vectors.dim(0),
                  vectors.dim(1));
  constexpr std::size_t kBefore = 10;  // magic, version, length of the header
  header.resize((kBefore + header.size() + 1 + 63) / 64 * 64 - kBefore, ' ');
  header.back() = '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(reinterpret_cast<const char*>(vectors.raw()),
              static_cast<std::size_t>(vectors.bytes()));
  return file;
}

}  // namespace

int run_embed(Invocation& invocation) {
  GeneralOptions general;
  EmbedOptions options;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Vectors", options);
  set.add("Tokenizer", tokenizer);
  const std::vector<std::string> files = invocation.parse(set, general);
  refuse_more_arguments(files, 1);
  if (options.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of an encoder");
  const bool numpy = options.output.ends_with(".npy");
  if (!numpy && !options.output.ends_with(".safetensors")) {
    throw Error(Fault::kUsage, "--output: got \"{}\", wanted a file F.safetensors or F.npy",
                options.output);
  }
  check_creatable(options.output);
  if (files.empty() && !has_standard_input())
    throw Error(Fault::kUsage, "embed: wanted a FILE of lines (- is standard input)");
  const std::string name = files.empty() ? "-" : files[0];
  const std::vector<std::string> lines = read_whole_lines(name);
  if (lines.empty()) throw Error(Fault::kData, "{}: has no lines; wanted one or more", name);
  Engine engine(engine_options(general), invocation.log);
  const auto encoder = Encoder::load(engine.machine(), options.load, tokenizer);
  std::vector<std::vector<std::int32_t>> texts;
  std::int64_t cut = 0;
  for (const std::string& line : lines) {
    texts.push_back(encoder->ids_of(line));
    if (std::ssize(texts.back()) > encoder->config().longest_sequence()) ++cut;
  }
  if (cut > 0) {
    invocation.log.warning(
        fmt::format("{}: {} of {} lines are longer than the {} tokens that the model takes: their "
                    "ends are left out",
                    name, cut, lines.size(), encoder->config().longest_sequence()));
  }
  const Tensor vectors = encoder->embed(texts, options.pooling);
  if (options.normalize) normalize_rows(vectors);
  if (numpy) {
    write_text_file(options.output, numpy_file(vectors));
  } else {
    write_safetensors(options.output, {{"embeddings", vectors}});
  }
  invocation.log.info(
      fmt::format("{}: {} vectors of {}", options.output, vectors.dim(0), vectors.dim(1)));
  return 0;
}

}  // namespace piton::cli
