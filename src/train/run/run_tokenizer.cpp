#include "train/run/run_tokenizer.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"
#include "base/files/files.h"
#include "text/compare_tokenizers.h"

namespace piton {

namespace fs = std::filesystem;

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

namespace {

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

std::vector<fs::path> files_of(const TokenizerOptions& options) {
  std::vector<fs::path> files;
  const auto add = [&](const fs::path& file) {
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  };
  for (const std::string& path : {options.name_or_path, options.vocab_file, options.merge_file}) {
    if (path.empty()) continue;
    fs::path folder = path;
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      add(path);
      folder = folder.parent_path().empty() ? fs::path(".") : folder.parent_path();
    }
    for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end;
         it.increment(ignored)) {
      if (it->is_regular_file(ignored) && belongs_to_tokenizer(it->path())) add(it->path());
    }
  }
  return files;
}

}  // namespace

std::string other_tokenizer_note(const Tokenizer& used, const Tokenizer& own,
                                 const std::string& folder) {
  const std::string difference =
      first_difference({own, "the model's tokenizer"}, {used, "the one that was named"});
  if (difference.empty()) return "";
  return fmt::format(
      "{}: the model has another tokenizer than the one that was named (--tokenizer-...): {}; "
      "leave "
      "that out unless the model is to learn new ids",
      folder, difference);
}

std::string other_tokenizer_note(const Tokenizer& used, const TokenizerOptions& own,
                                 const std::string& folder) {
  if (own.empty()) return "";
  try {
    return other_tokenizer_note(used, *open_tokenizer(own), folder);
  } catch (const Error&) {
    return "";  // it is not used, so what is wrong with it does not matter
  }
}

void keep_tokenizer(const TokenizerOptions& options, const Tokenizer& tokenizer,
                    const fs::path& run) {
  const std::vector<fs::path> files = files_of(options);
  if (files.empty()) return;  // of bytes
  const fs::path folder = run / kTokenizerFolder;
  const TokenizerOptions kept = moved_to(options, folder);
  const auto same = [&] {
    try {
      return open_tokenizer(kept)->content_hash() == tokenizer.content_hash();
    } catch (const Error&) {
      return false;
    }
  };
  if (fs::exists(folder) && same()) return;
  create_folders(folder);
  for (const fs::path& file : files) {
    std::error_code failure;
    fs::copy_file(file, folder / file.filename(), fs::copy_options::overwrite_existing, failure);
    if (failure) {
      throw Error(Fault::kData, "{}: cannot keep the tokenizer's {}: {}", folder.string(),
                  file.string(), failure.message());
    }
  }
  if (!same()) {
    throw Error(Fault::kData,
                "{}: the copy of the tokenizer reads back as another one; please report this",
                folder.string());
  }
}

TokenizerOptions kept_tokenizer(const TokenizerOptions& options, const fs::path& checkpoint) {
  for (const fs::path& place :
       {checkpoint / kTokenizerFolder, checkpoint.parent_path() / kTokenizerFolder}) {
    std::error_code ignored;
    if (fs::is_directory(place, ignored)) return moved_to(options, place);
  }
  return options;
}

TokenizerOptions tokenizer_of_folder(const fs::path& folder) {
  TokenizerOptions options;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "tokenizer.json" || name == "tokenizer.model" || name == "spiece.model" ||
        name == "vocab.json" || name == "encoder.json" || name == "vocab.txt" ||
        name.ends_with(".tiktoken")) {
      options.name_or_path = folder.string();
    }
  }
  return options;
}

TokenizerOptions from_anywhere(const TokenizerOptions& options) {
  TokenizerOptions absolute = options;
  for (std::string* path : {&absolute.name_or_path, &absolute.vocab_file, &absolute.merge_file}) {
    if (!path->empty()) *path = fs::absolute(*path).lexically_normal().string();
  }
  return absolute;
}

}  // namespace piton
