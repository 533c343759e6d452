#include "model_files/model_tokenizer.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "text/compare_tokenizers.h"
#include "text/files/tokenizer_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultTemplate = "chat_template.jinja";
constexpr const char* kTokenizerSettings = "tokenizer_config.json";
constexpr const char* kTemplateFolder = "chat_templates";  // of named ones

bool belongs_to_tokenizer(const fs::path& file) {
  constexpr std::array<std::string_view, 13> kNames = {"tokenizer.json",
                                                       "tokenizer.model",
                                                       "spiece.model",
                                                       "vocab.json",
                                                       "encoder.json",
                                                       "merges.txt",
                                                       "vocab.bpe",
                                                       "vocab.txt",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "chat_template.jinja",
                                                       "generation_config.json"};
  return std::find(kNames.begin(), kNames.end(), file.filename().string()) != kNames.end() ||
         file.extension() == ".tiktoken";
}

// Decided by name: folders may have dots in their names ("llama-2.7b").
bool is_vocabulary(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".json" || extension == ".model" || extension == ".txt" ||
         extension == ".tiktoken" || extension == ".bpe";
}

// The options that read the files in `folder`.
TokenizerOptions moved_to(const TokenizerOptions& options, const fs::path& folder) {
  TokenizerOptions moved = options;
  const auto move = [&](std::string& path, bool may_be_folder) {
    if (path.empty()) return;
    const bool is_folder = may_be_folder && !is_vocabulary(path);
    path = is_folder ? folder.string() : (folder / fs::path(path).filename()).string();
  };
  move(moved.name_or_path, true);
  move(moved.vocab_file, false);
  move(moved.merge_file, false);
  return moved;
}

// Files by their names in a tokenizer's folder.
std::map<fs::path, fs::path> files_of(const TokenizerOptions& options) {
  std::map<fs::path, fs::path> files;
  for (const fs::path path : {options.name_or_path, options.vocab_file, options.merge_file}) {
    if (path.empty()) continue;
    fs::path folder = path;
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      files.try_emplace(path.filename(), path);
      folder = folder.parent_path().empty() ? fs::path(".") : folder.parent_path();
    }
    for (const fs::path& file : tokenizer_files_in(folder))
      files.try_emplace(file.lexically_relative(folder), file);
  }
  return files;
}

void keep_file(const fs::path& from, const fs::path& to) {
  create_folders(to.parent_path());
  std::error_code failure;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, failure);
  if (failure) {
    throw Error(Fault::kData, "{}: cannot keep the tokenizer's {}: {}", to.parent_path().string(),
                from.string(), failure.message());
  }
}

// The copy of the tokenizer's files for a checkpoint folder; "": there is none.
fs::path kept_folder(const fs::path& checkpoint) {
  for (const fs::path& place :
       {checkpoint / kTokenizerFolder, checkpoint.parent_path() / kTokenizerFolder}) {
    std::error_code ignored;
    if (fs::is_directory(place, ignored)) return place;
  }
  return {};
}

}  // namespace

std::vector<fs::path> tokenizer_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  const auto add = [&](const fs::path& from, auto&& wanted) {
    std::error_code ignored;
    for (fs::directory_iterator it(from, ignored), end; !ignored && it != end;
         it.increment(ignored)) {
      if (it->is_regular_file(ignored) && wanted(it->path())) files.push_back(it->path());
    }
  };
  add(folder, belongs_to_tokenizer);
  add(folder / kTemplateFolder,
      [](const fs::path& file) { return file.extension() == kTemplateEnd; });
  return files;
}

ModelTokenizer tokenizer_of(const TokenizerOptions& options) {
  ModelTokenizer tokenizer{.options = options};
  for (const std::string& file : {options.name_or_path, options.vocab_file}) {
    if (file.empty()) continue;
    std::error_code ignored;
    tokenizer.folder =
        fs::is_directory(file, ignored) ? fs::path(file) : fs::path(file).parent_path();
  }
  return tokenizer;
}

ModelTokenizer tokenizer_of_folder(const fs::path& folder) {
  ModelTokenizer tokenizer;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "tokenizer.json" || name == "tokenizer.model" || name == "spiece.model" ||
        name == "vocab.json" || name == "encoder.json" || name == "vocab.txt" ||
        name.ends_with(".tiktoken")) {
      tokenizer.options.name_or_path = folder.string();
      tokenizer.folder = folder;
    }
  }
  return tokenizer;
}

std::unique_ptr<Tokenizer> open_tokenizer(const ModelTokenizer& tokenizer,
                                          const std::string& where) {
  if (!tokenizer.texts.empty()) return open_tokenizer_texts(tokenizer.texts, where);
  return tokenizer.options.empty() ? nullptr : open_tokenizer(tokenizer.options);
}

std::string other_tokenizer_note(const Tokenizer& used, const ModelTokenizer& own,
                                 const std::string& folder) {
  std::unique_ptr<Tokenizer> theirs;
  try {
    theirs = open_tokenizer(own, folder);
  } catch (const Error&) {
    // It is not used, so what is wrong with it does not matter.
  }
  if (!theirs) return "";
  const std::string difference =
      first_difference({*theirs, "the model's tokenizer"}, {used, "the one that was named"});
  if (difference.empty()) return "";
  return fmt::format(
      "{}: the model has another tokenizer than the one that was named (--tokenizer-...): {}; "
      "leave "
      "that out unless the model is to learn new ids",
      folder, difference);
}

void check_rows_for(const Tokenizer& tokenizer, const ModelConfig& model,
                    const std::string& folder) {
  const std::int64_t ids = tokenizer.vocabulary_size();
  if (ids <= model.vocabulary) return;
  throw Error(Fault::kData,
              "{}: the tokenizer has {} ids, the model's table {} rows; name the model's own "
              "tokenizer",
              folder, ids, model.vocabulary);
}

void keep_tokenizer(const ModelTokenizer& files, const Tokenizer& opened, const fs::path& run) {
  const fs::path folder = run / kTokenizerFolder;
  const std::map<fs::path, fs::path> originals = files_of(files.options);
  if (originals.empty() && files.texts.empty()) return;  // of bytes
  const TokenizerOptions kept = files.texts.empty()
                                    ? moved_to(files.options, folder)
                                    : TokenizerOptions{.name_or_path = folder.string()};
  const auto same = [&] {
    try {
      return open_tokenizer(kept)->content_hash() == opened.content_hash();
    } catch (const Error&) {
      return false;
    }
  };
  if (fs::exists(folder) && same()) return;
  create_folders(folder);
  for (const auto& [name, text] : files.texts) write_text_file(folder / name, text);
  for (const auto& [name, file] : originals) keep_file(file, folder / name);
  if (!same()) {
    throw Error(Fault::kData,
                "{}: the copy of the tokenizer reads back as another one; please report this",
                folder.string());
  }
}

void keep_chat_template(const std::string& text, const fs::path& run) {
  if (text.empty()) return;
  const fs::path folder = run / kTokenizerFolder;
  create_folders(folder);
  write_text_file(folder / kDefaultTemplate, text);
  // llama.cpp's converter and earlier versions of Transformers look into this file first.
  const fs::path settings = folder / kTokenizerSettings;
  if (!fs::exists(settings)) return;
  auto config = read_json_or_discarded<nlohmann::ordered_json>(read_text_file(settings));
  if (!config.is_object() || !config.contains("chat_template") || config["chat_template"] == text)
    return;
  config["chat_template"] = text;
  write_text_file(settings, config.dump(2) + "\n");
}

TokenizerOptions kept_tokenizer(const TokenizerOptions& options, const fs::path& checkpoint) {
  const fs::path folder = kept_folder(checkpoint);
  return folder.empty() ? options : moved_to(options, folder);
}

ModelTokenizer tokenizer_of_checkpoint(const TokenizerOptions& options,
                                       const fs::path& checkpoint) {
  ModelTokenizer tokenizer = tokenizer_of(options);
  if (tokenizer.folder.empty()) tokenizer.folder = kept_folder(checkpoint);
  return tokenizer;
}

TokenizerOptions from_anywhere(const TokenizerOptions& options) {
  TokenizerOptions absolute = options;
  for (std::string* path : {&absolute.name_or_path, &absolute.vocab_file, &absolute.merge_file}) {
    if (!path->empty()) *path = fs::absolute(*path).lexically_normal().string();
  }
  return absolute;
}

}  // namespace piton
