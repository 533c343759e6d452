#include "data/preprocess/corpus_writer.h"

#include <filesystem>
#include <span>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::size_t kShownBad = 5;

}  // namespace

std::vector<std::string> corpus_prefixes(const PreprocessOptions& options) {
  std::vector<std::string> prefixes;
  for (const std::string& key : options.json_keys) {
    prefixes.push_back(fmt::format("{}_{}_{}", options.output_prefix, key,
                                   options.split_sentences ? "sentence" : "document"));
  }
  return prefixes;
}

bool can_resume(const PreprocessOptions& options, const PreprocessJournal& journal) {
  const auto prefixes = corpus_prefixes(options);
  if (journal.positions.size() != prefixes.size()) return false;
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    if (!partial_files_reach(prefixes[i], journal.positions[i])) return false;
  }
  std::error_code code;
  const auto logged = std::filesystem::file_size(options.output_prefix + ".duplicates.log", code);
  return !options.remove_duplicates ||
         (!code && static_cast<std::int64_t>(logged) >= journal.duplicates_logged * 16);
}

CorpusWriter::CorpusWriter(const PreprocessOptions& options, IdType type, PreprocessJournal journal,
                           bool resumed, bool resumable, CheckpointRule rule)
    : options_(options),
      journal_(std::move(journal)),
      resumable_(resumable),
      rule_(rule),
      type_(type) {
  prefixes_ = corpus_prefixes(options);
  for (std::size_t i = 0; i < prefixes_.size(); ++i) {
    std::optional<IndexedWriter::Position> from;
    if (resumed) from = journal_.positions[i];
    writers_.emplace_back(prefixes_[i], type_, from);
  }
  if (options.remove_duplicates) {
    filter_.emplace(options.output_prefix + ".duplicates", journal_.duplicates_logged);
  }
}

void CorpusWriter::add(EncodedBlock& block) {
  for (const BadRecord& bad : block.bad) {
    if (options_.on_error == OnError::kFail) {
      throw Error(Fault::kData,
                  "{}; mend it, or count and leave out such records with --on-error skip",
                  describe(bad));
    }
    ++journal_.bad_records;
    if (journal_.first_bad.size() < kShownBad) journal_.first_bad.push_back(bad);
  }
  wanted_.assign(static_cast<std::size_t>(block.documents), true);
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    if (filter_) wanted_[i] = filter_->insert(block.hashes[i]);
    ++(wanted_[i] ? journal_.documents : journal_.duplicates);
  }
  for (std::size_t key = 0; key < writers_.size(); ++key)
    add_column(block.columns[key], writers_[key]);
  journal_.text_bytes += block.text_bytes;
  journal_.place = {block.file, block.end_byte};
  if (resumable_ && std::chrono::duration<double>(Clock::now() - stored_).count() >= rule_.seconds)
    checkpoint();
}

void CorpusWriter::finish() {
  if (journal_.documents == 0) {
    throw Error(Fault::kData, "preprocess: no document in the input{}; is it empty?",
                journal_.bad_records > 0
                    ? fmt::format(" beside {} bad records", journal_.bad_records)
                    : "");
  }
  for (IndexedWriter& writer : writers_) writer.finish();
  if (filter_) filter_->discard();
  forget();
}

void CorpusWriter::forget() {
  std::error_code ignored;
  std::filesystem::remove(PreprocessJournal::path(options_.output_prefix), ignored);
}

void CorpusWriter::add_column(const EncodedBlock::Column& column, IndexedWriter& writer) {
  const std::span<const std::byte> ids(column.ids);
  const std::span<const std::int32_t> lengths(column.lengths), sequences(column.sequences);
  std::size_t byte = 0, sequence = 0;
  for (std::size_t first = 0, end = 0; first < wanted_.size(); first = end) {
    const std::size_t first_byte = byte, first_sequence = sequence;
    while (end < wanted_.size() && wanted_[end] == wanted_[first]) {
      const std::size_t next = sequence + static_cast<std::size_t>(sequences[end++]);
      for (; sequence < next; ++sequence)
        byte += static_cast<std::size_t>(lengths[sequence] * bytes_of(type_));
    }
    if (!wanted_[first]) continue;
    writer.add_documents(ids.subspan(first_byte, byte - first_byte),
                         lengths.subspan(first_sequence, sequence - first_sequence),
                         sequences.subspan(first, end - first));
  }
}

void CorpusWriter::checkpoint() {
  journal_.positions.clear();
  for (IndexedWriter& writer : writers_) {
    writer.flush();
    journal_.positions.push_back(writer.position());
  }
  if (filter_) {
    filter_->flush();
    journal_.duplicates_logged = filter_->size();
  }
  journal_.store(options_.output_prefix);
  stored_ = Clock::now();
}

}  // namespace piton
