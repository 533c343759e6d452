#include "data/preprocess/corpus_writer.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "base/error.h"

namespace piton {
std::vector<std::string> corpus_suffixes(const PreprocessOptions& options) {
  std::vector<std::string> suffixes;
  for (const std::string& column : options.sample_columns) {
    suffixes.push_back(fmt::format("_packed_{}_document", column));
  }
  if (!suffixes.empty()) return suffixes;
  for (const std::string& key : options.json_keys) {
    suffixes.push_back(
        fmt::format("_{}_{}", key, options.split_sentences ? "sentence" : "document"));
  }
  return suffixes;
}

std::vector<std::string> corpus_prefixes(const PreprocessOptions& options) {
  std::vector<std::string> prefixes = corpus_suffixes(options);
  for (std::string& prefix : prefixes) prefix = options.output_prefix + prefix;
  return prefixes;
}

bool can_resume(const PreprocessOptions& options, const PreprocessProgress& progress,
                bool complete) {
  const auto prefixes = corpus_prefixes(options);
  if (progress.positions.size() != prefixes.size()) return false;
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    if (partial_files_reach(prefixes[i], progress.positions[i])) continue;
    if (!complete || !corpus_is_finished(prefixes[i], progress.positions[i])) return false;
  }
  std::error_code code;
  const auto logged = std::filesystem::file_size(options.output_prefix + ".duplicates.log", code);
  return complete || !options.remove_duplicates ||
         (!code && static_cast<std::int64_t>(logged) >= progress.duplicates_logged * 16);
}

CorpusWriter::CorpusWriter(const PreprocessOptions& options, IdType type, JournalStart start)
    : options_(options),
      journal_(std::move(start.journal)),
      input_(std::move(start.input)),
      set_of_file_(std::move(start.set_of_file)),
      rule_(start.rule),
      type_(type),
      prefixes_(corpus_prefixes(options)),
      stored_documents_(start.resumed ? journal_.documents : 0) {
  const bool resumed = start.resumed;
  journal_.corpora = corpus_suffixes(options);
  journal_.has_table = options.remove_duplicates;
  if (!resumed) {
    if (!set_of_file_.empty()) journal_.set_documents.assign(set_of_file_.back() + 1, 0);
    // Store the journal before the first file of this run exists: it tells whose files these are.
    journal_.positions.assign(prefixes_.size(), {});
    journal_.file_start = journal_;
    enter_file(journal_.place.file);
    journal_.store(options_.output_prefix);
  }
  for (std::size_t i = 0; i < prefixes_.size(); ++i) {
    std::optional<IndexedWriter>& writer = writers_.emplace_back();
    if (resumed && !partial_files_reach(prefixes_[i], journal_.positions[i])) continue;
    writer.emplace(prefixes_[i], type_,
                   resumed ? std::optional(journal_.positions[i]) : std::nullopt);
  }
  if (options.remove_duplicates && !journal_.complete) {
    filter_.emplace(options.output_prefix + ".duplicates", journal_.duplicates_logged);
  }
}

void CorpusWriter::enter_file(std::size_t file) {
  journal_.place = {file, 0};
  journal_.file_start = journal_;
  if (input_.at.empty()) return;
  journal_.before = input_.before[file];
  journal_.at = file < input_.at.size() ? input_.at[file] : "";
}

void CorpusWriter::add(EncodedBlock& block) {
  for (const BadRecord& bad : block.bad) {
    if (options_.on_error == OnError::kFail) refuse_bad_record(bad, options_);
  }
  adding_ = true;
  if (block.file != journal_.place.file) {
    for (std::size_t i = 0; i < writers_.size(); ++i) {
      journal_.positions[i] = writers_[i]->position();
    }
    if (filter_) journal_.duplicates_logged = filter_->size();
    enter_file(block.file);
  }
  for (const BadRecord& bad : block.bad) journal_.bad.add(bad);
  choose(block);
  for (std::size_t key = 0; key < writers_.size(); ++key)
    add_column(block.columns[key], *writers_[key]);
  journal_.text_bytes += block.text_bytes;
  journal_.place = {block.file, block.end_byte};
  adding_ = false;
  if (!input_.at.empty() &&
      std::chrono::duration<double>(Clock::now() - stored_).count() >= rule_.seconds) {
    checkpoint();
  }
}

void CorpusWriter::choose(const EncodedBlock& block) {
  wanted_.assign(static_cast<std::size_t>(block.documents), true);
  std::int64_t* const of_set =
      set_of_file_.empty() ? nullptr : &journal_.set_documents[set_of_file_[block.file]];
  const auto& most = options_.instruct.max_samples;
  const bool was_full = most && *of_set >= *most;
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    if (most && *of_set >= *most) {
      wanted_[i] = false;
      continue;
    }
    if (filter_) wanted_[i] = filter_->insert(block.hashes[i]);
    ++(wanted_[i] ? journal_.documents : journal_.duplicates);
    if (!wanted_[i]) continue;
    if (of_set != nullptr) ++*of_set;
    if (!block.taught.empty()) journal_.taught_tokens += block.taught[i];
  }
  if (was_full) return;
  for (const BadRecord& record : block.too_long) journal_.too_long.add(record);
  for (const BadRecord& record : block.unteaching) journal_.unteaching.add(record);
}

bool CorpusWriter::is_full() const {
  const auto& most = options_.instruct.max_samples;
  return most && std::all_of(journal_.set_documents.begin(), journal_.set_documents.end(),
                             [&](std::int64_t documents) { return documents >= *most; });
}

void CorpusWriter::finish() {
  if (journal_.documents == 0) {
    std::string rest;
    const auto count = [&](const LeftOut& left_out, const char* what) {
      if (left_out.count > 0) rest += fmt::format("; {} {}", left_out.count, what);
    };
    count(journal_.bad, "bad records");
    count(journal_.too_long, "samples are too long");
    count(journal_.unteaching, "samples teach nothing");
    throw Error(Fault::kData, "no document in the input{}", rest.empty() ? "; is it empty?" : rest);
  }
  if (!journal_.complete) {
    journal_.complete = true;
    journal_.all = input_.at.empty() ? "" : input_.before.back();
    checkpoint();
  }
  for (std::optional<IndexedWriter>& writer : writers_) {
    if (writer) writer->finish();
  }
  if (filter_) filter_->discard();
  std::error_code ignored;
  for (const std::string& file : journal_.files(options_.output_prefix)) {
    std::filesystem::remove(file, ignored);
  }
  std::filesystem::remove(PreprocessJournal::path(options_.output_prefix), ignored);
}

bool CorpusWriter::suspend() {
  if (!input_.at.empty() && !adding_ && journal_.documents > 0) {
    try {
      checkpoint();
    } catch (const Error&) {
      // A full disk may be why the run stops. The stored journal stays valid.
    }
  }
  // A run that stopped in the middle of a block resumes from the stored journal, too.
  if (stored_documents_ == 0) {
    filter_.reset();
    writers_.clear();
    std::error_code ignored;
    std::filesystem::remove(PreprocessJournal::path(options_.output_prefix), ignored);
    return false;
  }
  for (std::optional<IndexedWriter>& writer : writers_) {
    if (writer) writer->keep_partial();
  }
  if (filter_) filter_->keep();
  return true;
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
  for (std::size_t i = 0; i < writers_.size(); ++i) {
    if (!writers_[i]) continue;
    writers_[i]->flush();
    journal_.positions[i] = writers_[i]->position();
  }
  if (filter_) {
    filter_->flush();
    journal_.duplicates_logged = filter_->size();
  }
  journal_.store(options_.output_prefix);
  stored_documents_ = input_.at.empty() ? 0 : journal_.documents;
  stored_ = Clock::now();
}

}  // namespace piton
