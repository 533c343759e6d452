// Flags that pages of documentation name exist: docs/cli.md or docs/megatron_flags.md, which are
// written by the binary, have them. The finder is first tested on made-up pages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "repo/pages.h"
#include "repo/source_tree.h"

namespace piton::repo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Faults = std::vector<std::string>;
using Flags = std::set<std::string>;

constexpr const char* kFlag = "(^|[^\\w-])--([A-Za-z][A-Za-z0-9_-]*)";

// Not in the two pages.
const Flags kOthers = {
    "help",
    "version",                      // of every command
    "modle",                        // a mistake, whose message docs/first_hour.md shows
    "fault",                        // of builds with assertions; the page is of the release
    "list",                         // of tools/nightly.sh
    "num_layers",                   // of MindSpeed's converters, accepted by piton convert
    "model-type-hf",                // the same
    "load-from-legacy",             // the same
    "load-checkpoint-loosely",      // the same
    "save-lora-to-hf",              // the same
    "source-expert-parallel-size",  // the same
    "hf-cfg-dir",                   // the same
    "loader",                       // the same
    "saver",                        // the same
    "w-pack",                       // the same
    "orm",                          // the same, refused by it
    "hf-chat-template",             // of MindSpeed-LLM's inference, accepted by piton chat
    "inference-prompt-type",        // the same
    "valid-data",                   // of Megatron-LM's evaluations, accepted by piton eval
    "origin-postprocess",           // of MindSpeed-LLM, named in comparisons with it
    "dataset-additional-keys"       // the same
};

void add_flags(const std::string& text, Flags& flags) {
  const std::regex flag(kFlag);
  for (std::sregex_iterator it(text.begin(), text.end(), flag), end; it != end; ++it)
    flags.insert((*it)[2]);
  std::erase_if(flags, [](const std::string& name) { return name.ends_with('-'); });  // --lora-*
}

// Flags in command lines of piton, also over the end of a line, and in words between backticks
// that begin with a flag.
Flags flags_in(const std::string& page) {
  Flags flags;
  const std::string text = std::regex_replace(page, std::regex("\\\\\n"), " ");
  const std::regex place("(piton [a-z][a-z-]*|`(?=--))[^`\n#|]*");
  for (std::sregex_iterator it(text.begin(), text.end(), place), end; it != end; ++it)
    add_flags(it->str(), flags);
  return flags;
}

Faults flag_faults(const SourceTree& pages, const Flags& known) {
  Faults faults;
  for (const auto& [path, page] : pages) {
    for (const std::string& flag : flags_in(page)) {
      const bool off = flag.starts_with("no-") && known.contains(flag.substr(3));
      if (!off && !known.contains(flag))
        faults.push_back(path + ": names --" + flag + ", which no command has");
    }
  }
  return faults;
}

TEST(Flags, AreThoseOfCommands) {
  EXPECT_THAT(flag_faults({{"a.md",
                            "`--lr 1`, `--no-pack`, `--los X` `--lora-*` `other --bad` --worse\n"
                            "```\npiton eval --load a \\\n  --tasks b  # --worst\n```\n"}},
                          {"lr", "pack", "load"}),
              ElementsAre("a.md: names --los, which no command has",
                          "a.md: names --tasks, which no command has"));
}

TEST(Flags, OfThisRepositoryAreThoseOfCommands) {
  SourceTree pages = read_pages(PITON_SOURCE_DIR);
  pages.erase("CHANGELOG.md");  // names flags that are gone
  Flags known = kOthers;
  for (const char* page : {"docs/cli.md", "docs/megatron_flags.md"}) {
    add_flags(pages.at(page), known);
    pages.erase(page);
  }
  EXPECT_THAT(flag_faults(pages, known), IsEmpty());
}

}  // namespace
}  // namespace piton::repo
