// Flags of Megatron-LM (and of MindSpeed) that are not options here, so that scripts need not be
// edited flag by flag. megatron_table.cpp lists how each is treated.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/options/options.h"
#include "model/config.h"

namespace piton::cli {

enum class MegatronKind : std::uint8_t {
  kWorks,    // an option of `piton pretrain`
  kMeans,    // means options here; the note has them
  kRead,     // read with others: means several options here
  kIgnored,  // has no effect here: accepted, with one line at the start
  kSame,     // fixed here: other values, or another model, are refused
  kNotYet,   // refused
};

// Flags with the same treatment. `flags`: names without dashes, with the number of words after
// each: "name" for none, "name:1", "name:*" for any number; "name:1=a|b" accepts only these values,
// and "name:1=a>c|b>d" of kMeans gives c and d to the option of the note.
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
  std::vector<std::string> become;  // of kMeans, as many as `values`
  MegatronKind kind = MegatronKind::kNotYet;
  std::string_view note;
};

// The flag of that name, of any kind; "_" equals "-". nullopt: Megatron-LM and MindSpeed have none.
std::optional<MegatronFlag> megatron_flag(std::string_view name);

class MegatronFlags final : public ForeignOptions {
 public:
  MegatronFlags();

  // All flags of the table that are not options here.
  const std::vector<MegatronFlag>& flags() const { return flags_; }

  std::optional<int> words(std::string_view name) const override;
  std::vector<std::string> take(const std::string& name,
                                const std::vector<std::string>& values) override;

  // The values of a given flag of kind kRead with blanks between them, "" for one without values;
  // nullopt: it is not given.
  std::optional<std::string> value_of(std::string_view name) const;

  // Logs which of the given flags have no effect; one line per reason.
  void report(Log& log) const;
  // Throws Error(kUsage) with every given flag that is not true of this model.
  void check(const ModelOptions& options) const;

 private:
  const MegatronFlag* find(std::string_view name) const;
  std::vector<MegatronFlag> flags_;
  std::vector<const MegatronFlag*> given_;
  std::map<std::string, std::string> read_;  // values of flags of kind kRead
};

// The text of docs/megatron_flags.md: the treatment of every flag.
std::string megatron_page();

}  // namespace piton::cli
