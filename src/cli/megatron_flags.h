// Flags of Megatron-LM (and of MindSpeed beside it) that no option here is called, so that their
// scripts need not be edited flag by flag. megatron_table.cpp says of each what becomes of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/options.h"
#include "model/config.h"

namespace piton::cli {

enum class MegatronKind : std::uint8_t {
  kWorks,    // an option of `piton pretrain`
  kMeans,    // stands for options here; the note is their words
  kIgnored,  // has no meaning here: accepted, with one line at the start
  kSame,     // says what is so anyway; other values, or another model, are refused
  kNotYet,   // refused
};

// Flags that share their fate. `flags`: names without dashes and how many words follow each,
// "name" for none, "name:1", "name:*" for any number; "name:1=a|b" takes these values alone.
struct MegatronGroup {
  MegatronKind kind;
  std::string_view flags;
  std::string_view note;  // one line, no full stop
};
std::span<const MegatronGroup> megatron_table();

struct MegatronFlag {
  std::string name;
  int words = 0;
  std::vector<std::string> values;  // empty: any
  MegatronKind kind = MegatronKind::kNotYet;
  std::string_view note;
};

class MegatronFlags final : public ForeignOptions {
 public:
  MegatronFlags();

  // Every flag of the table but those that are options here.
  const std::vector<MegatronFlag>& flags() const { return flags_; }

  std::optional<int> words(std::string_view name) const override;
  std::vector<std::string> take(const std::string& name,
                                const std::vector<std::string>& values) override;

  // Says which of the flags that were given mean nothing here; one line for each reason.
  void report(Log& log) const;
  // Throws Error(kUsage) about every flag given that says what is not so of this model.
  void check(const ModelOptions& options) const;

 private:
  const MegatronFlag* find(std::string_view name) const;
  std::vector<MegatronFlag> flags_;
  std::vector<const MegatronFlag*> given_;
};

// docs/megatron_flags.md: what becomes of every flag.
std::string megatron_page();

}  // namespace piton::cli
