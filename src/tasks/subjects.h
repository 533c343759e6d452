// Subjects of data sets that have many: their names in prompts, and the groups in which they are
// reported.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace piton {

// The subject as words: "high school physics". Of C-Eval and CMMLU the Chinese name that
// lm-evaluation-harness 0.4 puts into the prompt; "" if the data set has no such subject.
std::string subject_words(std::string_view task, std::string_view subject);

// The group of a subject of MMLU: stem, humanities, social_sciences, other. Of a subset of
// RewardBench its section: chat, chat_hard, safety, reasoning. "" for other subjects.
std::string_view subject_group(std::string_view task, std::string_view subject);

// The weight of a subset of RewardBench in its section; 0 for subjects of tasks that have none.
std::int64_t subject_weight(std::string_view task, std::string_view subject);

}  // namespace piton
