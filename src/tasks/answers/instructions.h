// Instructions about the form of an answer, and whether an answer follows them: IFEval (Zhou et al.
// 2023, arXiv:2311.07911), with the verdicts of lm-evaluation-harness 0.4.13 (tasks/ifeval).
//
// Some are not checked. The language of an answer (language:response_language,
// change_case:english_capital and english_lowercase) is guessed by a model of languages there, and
// sentences (length_constraints:number_sentences) are divided by trained parameters. Where
// arguments are outside of their range, lm-evaluation-harness draws others at random: a letter that
// is none, a paragraph after the last one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace piton {

struct Instruction {
  std::string id;
  nlohmann::json arguments;  // an object, without those that are null or empty

  bool is_checked() const;
};

// Of a record with instruction_id_list and kwargs, an object for each. Throws Error(kData) that
// begins with `where` for ids that are unknown, for arguments that are missing or have another
// type, and for words that are no regular expression where they are read as one.
std::vector<Instruction> read_instructions(const nlohmann::json& record, const std::string& where);

// Whether the answer follows each of the instructions, which are checked ones. `loosely`: or one of
// its variants does, without its first line, its last line, its stars.
std::vector<bool> followed(const std::vector<Instruction>& instructions, std::string_view answer,
                           bool loosely);

}  // namespace piton
