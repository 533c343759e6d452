#include "data/preprocess/merge_corpora.h"

#include <chrono>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/seconds.h"
#include "data/corpus/indexed_dataset.h"
#include "data/preprocess/output_prefix.h"

namespace piton {

PreprocessReport merge_corpora(const std::vector<std::string>& prefixes,
                               const std::string& output_prefix, bool overwrite) {
  if (output_prefix.empty()) throw Error(Fault::kUsage, "--merge needs --output-prefix");
  const auto start = std::chrono::steady_clock::now();
  PreprocessReport report;
  std::vector<IndexedDataset> corpora;
  for (const std::string& prefix : prefixes) {
    if (prefix == output_prefix) {
      throw Error(Fault::kUsage, "--merge: {} is read and written; choose another --output-prefix",
                  prefix);
    }
    corpora.push_back(IndexedDataset::open(prefix));
    if (corpora.back().type() != corpora.front().type()) {
      throw Error(Fault::kUsage,
                  "--merge: {} has ids of type {}, {} of type {}; corpora of one tokenizer "
                  "have one type",
                  prefix, static_cast<int>(corpora.back().type()), prefixes.front(),
                  static_cast<int>(corpora.front().type()));
    }
  }
  PITON_ASSERT(!corpora.empty(), "nothing to merge");
  OutputPrefix output(output_prefix, {output_prefix});
  output.refuse_existing({output_prefix}, overwrite);
  output.start_unresumable({""});
  IndexedWriter writer(output_prefix, corpora.front().type());
  for (const IndexedDataset& corpus : corpora) writer.add_corpus(corpus);
  report.documents = writer.position().documents;
  report.tokens = {writer.position().ids_bytes / bytes_of(corpora.front().type())};
  writer.finish();
  report.prefixes = {output_prefix};
  report.seconds = seconds_since(start);
  return report;
}

std::vector<CorpusGroup> corpus_groups(const std::string& folder,
                                       const std::vector<std::string>& keys) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(folder)) {
    throw Error(Fault::kUsage,
                "--merge-group-keys: --input: got \"{}\", wanted a folder of corpora", folder);
  }
  std::set<std::string> names;  // of corpora, in order
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string ending = entry.path().extension();
    if (!entry.is_regular_file() || (ending != ".bin" && ending != ".idx")) continue;
    names.insert(entry.path().stem());
  }
  std::vector<CorpusGroup> groups;
  for (const std::string& key : keys) {
    CorpusGroup& group = groups.emplace_back(CorpusGroup{key, {}});
    for (const std::string& name : names) {
      if (name.find(key) != name.npos) group.prefixes.push_back((fs::path(folder) / name).string());
    }
    for (const std::string& prefix : group.prefixes) {
      for (const char* ending : {".bin", ".idx"}) {
        if (fs::exists(prefix + ending)) continue;
        throw Error(Fault::kData, "--merge-group-keys: {}{} is missing", prefix, ending);
      }
    }
    if (group.prefixes.empty()) {
      throw Error(Fault::kUsage, "--merge-group-keys: no corpus in {} has \"{}\" in its name",
                  folder, key);
    }
    if (group.prefixes.size() != groups.front().prefixes.size()) {
      throw Error(Fault::kUsage,
                  "--merge-group-keys: {} corpora have \"{}\" in their names, and {} "
                  "have \"{}\"; the groups must be equally large",
                  groups.front().prefixes.size(), groups.front().key, group.prefixes.size(), key);
    }
  }
  return groups;
}

}  // namespace piton
