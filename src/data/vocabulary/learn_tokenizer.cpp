#include "data/vocabulary/learn_tokenizer.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files/creatable.h"
#include "base/files/files.h"
#include "base/seconds.h"
#include "data/preprocess/ordered_pipeline.h"
#include "data/vocabulary/word_reader.h"
#include "text/training/tokenizer_plan.h"
#include "text/training/trained_tokenizer.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kCommand = "train-tokenizer";
// Between the reader and the threads that count.
constexpr std::int64_t kBytesInFlight = 32 << 20;

// The two files of a tokenizer: both or none.
class TokenizerFiles {
 public:
  // Throws Error(kUsage) if one is there and may not be replaced, Error(kData) if they could not be
  // written.
  TokenizerFiles(const fs::path& folder, bool overwrite)
      : json_(folder / "tokenizer.json"), config_(folder / "tokenizer_config.json") {
    std::error_code ignored;
    if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) {
      throw Error(Fault::kUsage, "{}: --save: {} is a file, wanted a folder", kCommand,
                  folder.string());
    }
    for (const fs::path& file : {json_, config_}) {
      if (overwrite || !fs::exists(file, ignored)) continue;
      throw Error(Fault::kUsage, "{}: {} is there already; give --overwrite, or another --save",
                  kCommand, file.string());
    }
    check_creatable(json_);
  }
  const fs::path& json() const { return json_; }

  void write(const TrainedTokenizer& tokenizer) const {
    AtomicFile json(json_);
    AtomicFile config(config_);
    json.write(tokenizer.json);
    config.write(tokenizer.config);
    config.commit();
    json.commit();
  }

 private:
  fs::path json_;
  fs::path config_;
};

// Counts the words of all files.
class CorpusCount {
 public:
  CorpusCount(const LearnOptions& options, const WordCutter& cutter, Log& log, Progress& progress)
      : options_(options), keys_(names_in_files(options)) {
    std::int64_t total = 0;  // -1: unknown
    for (const InputFile& file : files_ = files_of(options, log)) {
      total = file.path == "-" || total < 0 ? -1 : total + file.bytes;
    }
    shown_.emplace(progress, std::max<std::int64_t>(total, 0));
    make_reader_ = [this, &cutter] { return WordReader(cutter, keys_, options_.sample_by); };
  }

  WordCounts run(int workers, LearnReport& report) {
    using Pipeline = OrderedPipeline<RecordBlock, BlockSummary>;
    std::vector<WordReader> readers;
    for (int i = 0; i < workers; ++i) readers.push_back(make_reader_());
    BlockReader blocks(files_,
                       {.sample_by = options_.sample_by,
                        .columns = keys_,
                        .max_record_bytes = options_.max_record_bytes},
                       {});
    Pipeline pipeline;
    pipeline.run(
        workers, kBytesInFlight,
        [&]() -> std::optional<Pipeline::Made> {
          auto block = blocks.next();
          if (!block) return {};
          const auto weight = static_cast<std::int64_t>(block->bytes.size());
          return {{*std::move(block), weight}};
        },
        [&](int worker, RecordBlock block) {
          BlockSummary summary = readers[static_cast<std::size_t>(worker)].read(block);
          blocks.recycle(std::move(block));
          return summary;
        },
        [&](BlockSummary summary) { take(std::move(summary), report); });
    WordCounts all = std::move(readers.front().counts());
    for (std::size_t i = 1; i < readers.size(); ++i) {
      all.add(readers[i].counts());
      readers[i].counts() = WordCounts();
    }
    return all;
  }

 private:
  void take(BlockSummary summary, LearnReport& report) {
    constexpr std::size_t kShownBad = 5;
    for (BadRecord& bad : summary.bad) {
      if (options_.on_error == OnError::kFail) refuse_bad_record(bad, options_);
      ++report.bad_records;
      if (report.first_bad.size() < kShownBad) report.first_bad.push_back(std::move(bad));
    }
    report.documents += summary.documents;
    report.text_bytes += summary.text_bytes;
    shown_->at(summary.consumed_bytes, [&] {
      return fmt::format("counting words, {:.1f} MB/s",
                         static_cast<double>(report.text_bytes) / 1e6 / shown_->seconds());
    });
  }

  const LearnOptions& options_;
  std::vector<std::string> keys_;
  std::vector<InputFile> files_;
  std::function<WordReader()> make_reader_;
  std::optional<ThrottledProgress> shown_;  // bytes of the files
};

}  // namespace

LearnReport learn_tokenizer(const LearnOptions& options, const TokenizerTrainingOptions& training,
                            ThreadPool& threads, Log& log, Progress& progress) {
  if (options.save.empty()) {
    throw Error(Fault::kUsage, "{}: no --save; give the folder for tokenizer.json", kCommand);
  }
  check_record_options(options);
  const TokenizerPlan plan = plan_tokenizer(training);
  const TokenizerFiles files(options.save, options.overwrite);
  const WordCutter cutter(plan.normalizer, plan.pre_tokenizer);
  LearnReport report;
  report.file = files.json().string();

  const auto start = Clock::now();
  const WordCounts counts =
      CorpusCount(options, cutter, log, progress).run(threads.threads(), report);
  if (counts.size() == 0) {
    throw Error(
        Fault::kData, "{}: no word in the input{}; is it empty?", kCommand,
        report.bad_records > 0 ? fmt::format(" and {} bad records", report.bad_records) : "");
  }
  report.words = counts.size();
  report.counting_seconds = seconds_since(start);
  log.info(fmt::format(
      "train-tokenizer: {} different words in {:.1f} MB of text, counted in "
      "{:.1f} s",
      report.words, static_cast<double>(report.text_bytes) / 1e6, report.counting_seconds));

  const auto learning = Clock::now();
  const std::vector<CountedWord> words = counts.sorted();
  ThrottledProgress shown(progress, 0);
  const TrainedTokenizer tokenizer =
      train_tokenizer(words, training, plan, threads, [&](std::int64_t pieces) {
        shown.at(pieces, [&] { return fmt::format("{} pieces", pieces); });
      });
  shown.show(tokenizer.pieces, fmt::format("{} pieces", tokenizer.pieces));
  progress.finish();
  report.pieces = tokenizer.pieces;
  report.merges = tokenizer.merges;
  report.learning_seconds = seconds_since(learning);
  if (report.pieces < training.vocab_size) {
    log.warning(fmt::format(
        "train-tokenizer: {} pieces, fewer than --vocab-size {}: the text holds no more{}",
        report.pieces, training.vocab_size,
        training.algorithm == VocabularyAlgorithm::kUnigram
            ? ""
            : fmt::format(" pairs that occur {} times (--min-frequency)", training.min_frequency)));
  }
  files.write(tokenizer);
  return report;
}

}  // namespace piton
