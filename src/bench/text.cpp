#include "bench/text.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"
#include "data/records/block_reader.h"
#include "data/records/record_parser.h"

namespace piton {
namespace {

// CPU time of all threads, with a resolution of nanoseconds. getrusage() splits user and system
// time by sampling, with an error of up to a half for rounds of a tenth of a second.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void sample(TextSamples& samples, const std::function<void()>& work) {
  const double before = cpu_seconds();
  samples.wall.seconds.push_back(seconds_of(work));
  samples.cpu.seconds.push_back(cpu_seconds() - before);
}

std::vector<InputFile> files_of(const PreprocessOptions& options) {
  std::vector<std::string> inputs = options.input;
  inputs.insert(inputs.end(), options.datasets.begin(), options.datasets.end());
  return find_input_files(inputs, input_format(options.input_format));
}

std::int64_t bytes_of(const std::vector<std::string>& documents) {
  std::int64_t bytes = 0;
  for (const std::string& document : documents) bytes += static_cast<std::int64_t>(document.size());
  return bytes;
}

void add_texts(const PreprocessOptions& options, std::vector<std::string>& texts) {
  BlockReader reader(files_of(options),
                     {.sample_by = options.sample_by,
                      .columns = options.json_keys,
                      .max_record_bytes = options.max_record_bytes},
                     {});
  std::shared_ptr<const FileFacts> file;
  std::unique_ptr<RecordParser> parser;
  ParsedRecord record;
  std::string reason;
  while (auto block = reader.next()) {
    if (block->file != file) {
      file = block->file;
      parser = make_record_parser(*file, options.json_keys, options.sample_by);
    }
    for (std::size_t i = 0; i < records_of(*block, options.json_keys.size()); ++i) {
      if (parser->parse(*block, i, record, reason) != Parsed::kRecord) continue;
      for (const auto& column : record.texts) {
        for (const std::string_view text : column) texts.emplace_back(text);
      }
    }
  }
}

// The first document of each worker's share, then the number of documents. Shares have about the
// same number of bytes.
std::vector<std::size_t> shares(const std::vector<std::string>& documents, int workers) {
  const std::int64_t all = bytes_of(documents);
  std::vector<std::size_t> bounds{0};
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    while (static_cast<int>(bounds.size()) < workers &&
           seen * workers >= all * static_cast<std::int64_t>(bounds.size())) {
      bounds.push_back(i);
    }
    seen += static_cast<std::int64_t>(documents[i].size());
  }
  bounds.resize(static_cast<std::size_t>(workers), documents.size());
  bounds.push_back(documents.size());
  return bounds;
}

std::int64_t encode_all(const Tokenizer& tokenizer, const std::vector<std::string>& documents,
                        EncodeOptions options, const std::vector<std::size_t>& bounds) {
  std::vector<std::int64_t> tokens(bounds.size() - 1, 0);
  const auto encode_share = [&](std::size_t worker) {
    std::vector<std::int32_t> ids;
    std::int64_t count = 0;
    for (std::size_t i = bounds[worker]; i < bounds[worker + 1]; ++i) {
      ids.clear();
      tokenizer.encode(documents[i], options, ids);
      count += static_cast<std::int64_t>(ids.size());
    }
    tokens[worker] = count;
  };
  std::vector<std::jthread> threads;
  for (std::size_t worker = 1; worker < tokens.size(); ++worker)
    threads.emplace_back(encode_share, worker);
  encode_share(0);
  threads.clear();
  std::int64_t all = 0;
  for (const std::int64_t count : tokens) all += count;
  return all;
}

void unpack(const std::vector<InputFile>& files) {
  std::vector<char> buffer(1 << 20);
  for (const InputFile& file : files) {
    const auto stream = open_byte_stream(file.path);
    while (stream->read(buffer) > 0) {
    }
  }
}

void check(int workers, int rounds) {
  if (workers < 1 || workers > 1024)
    throw Error(Fault::kUsage, "--workers: got {}, wanted 1 to 1024", workers);
  if (rounds < 1) throw Error(Fault::kUsage, "--rounds: got {}, wanted 1 or more", rounds);
}

}  // namespace

std::vector<std::string> read_texts(const PreprocessOptions& options, std::int64_t least_bytes) {
  std::vector<std::string> texts;
  add_texts(options, texts);
  std::int64_t bytes = bytes_of(texts);
  if (bytes == 0)
    throw Error(Fault::kData, "--input: there is no text in it; wanted records with \"{}\"",
                options.json_keys[0]);
  for (std::size_t i = 0; bytes < least_bytes; ++i) {
    texts.push_back(std::string(texts[i]));
    bytes += static_cast<std::int64_t>(texts.back().size());
  }
  return texts;
}

std::vector<std::string> made_texts(MadeText kind, std::int64_t bytes) {
  constexpr std::int64_t kDocumentBytes = 1000000;
  std::vector<std::string> texts;
  std::uint64_t state = 1;
  for (std::int64_t made = 0; made < bytes; made += kDocumentBytes) {
    std::string text(static_cast<std::size_t>(std::min(kDocumentBytes, bytes - made)), 'a');
    for (char& byte : text) {
      if (kind == MadeText::kOneLetter) break;
      // Knuth's multiplier (MMIX); the upper bits are the random ones.
      state = state * 6364136223846793005U + 1442695040888963407U;
      const std::uint64_t top = state >> 33;
      byte = static_cast<char>(kind == MadeText::kRandomLetters ? 'a' + top % 26 : top % 256);
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

TokenizerBench bench_tokenizer(const Tokenizer& tokenizer,
                               const std::vector<std::string>& documents, EncodeOptions options,
                               int workers, int rounds) {
  check(workers, rounds);
  const std::vector<std::size_t> bounds = shares(documents, workers);
  TokenizerBench bench{.documents = static_cast<std::int64_t>(documents.size()),
                       .bytes = bytes_of(documents)};
  bench.tokens = encode_all(tokenizer, documents, options, bounds);
  for (int round = 0; round < rounds; ++round) {
    sample(bench.encode, [&] { encode_all(tokenizer, documents, options, bounds); });
  }
  return bench;
}

TokenizerBench bench_fresh_tokenizer(const std::function<std::unique_ptr<Tokenizer>()>& open,
                                     const std::vector<std::string>& documents,
                                     EncodeOptions options, int workers, int rounds) {
  check(workers, rounds);
  const std::vector<std::size_t> bounds = shares(documents, workers);
  TokenizerBench bench{.documents = static_cast<std::int64_t>(documents.size()),
                       .bytes = bytes_of(documents)};
  for (int round = 0; round < rounds; ++round) {
    const std::unique_ptr<Tokenizer> tokenizer = open();
    sample(bench.encode,
           [&] { bench.tokens = encode_all(*tokenizer, documents, options, bounds); });
  }
  return bench;
}

double PreprocessBench::share_of_tokenizer() const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < whole.cpu.seconds.size(); ++i) {
    ratios.push_back(tokenizer.encode.cpu.seconds[i] /
                     (whole.cpu.seconds[i] - unpack.cpu.seconds[i]));
  }
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

PreprocessBench bench_preprocess(const Tokenizer& tokenizer, const PreprocessOptions& options,
                                 int rounds, Log& log, Progress& progress) {
  check(options.workers, rounds);
  const std::vector<InputFile> files = files_of(options);
  const std::vector<std::string> texts = read_texts(options, 0);
  const EncodeOptions encode{options.add_special_tokens, options.parse_special_tokens};
  const std::vector<std::size_t> bounds = shares(texts, options.workers);
  PreprocessBench bench;
  bench.tokenizer = {.documents = static_cast<std::int64_t>(texts.size()),
                     .bytes = bytes_of(texts)};
  bench.tokenizer.tokens = encode_all(tokenizer, texts, encode, bounds);
  PreprocessOptions again = options;
  for (int round = 0; round < rounds; ++round) {
    sample(bench.whole,
           [&] { bench.bytes = preprocess(again, tokenizer, log, progress).text_bytes; });
    again.overwrite = true;  // later rounds overwrite the files of the first one
    sample(bench.unpack, [&] { unpack(files); });
    sample(bench.tokenizer.encode, [&] { encode_all(tokenizer, texts, encode, bounds); });
  }
  return bench;
}

}  // namespace piton
