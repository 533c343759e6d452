// A reward model (model/label_head.h) that judges answers (--reward model): it reads a question
// with its answer in its own chat template and its own tokens, as piton score --reward does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "rollouts/reward.h"
#include "session/session.h"
#include "text/chat/chat_template_files.h"
#include "text/tokenizer.h"

namespace piton {

// Rows of a batch of texts are as long as the longest of them, up to a multiple of this.
inline constexpr std::int64_t kRowMultiple = 16;

struct RewardModel {
  std::unique_ptr<Session> session;  // for inference, in the layout of the model in training
  std::unique_ptr<Tokenizer> tokenizer;
  ModelChatTemplates templates;
  std::string folder;  // for messages
};

// The tokens that the model reads of each answer, on one rank. A text is continued, with the
// special tokens of its tokenizer around it; of a conversation the answer is the last message.
// Throws Error(kData) for a conversation that the template refuses, for a model without one, and
// for texts that are longer than the model allows.
std::vector<std::vector<std::int32_t>> judged_texts(const RewardModel& model,
                                                    std::span<const JudgedAnswer> answers);

struct RewardBatches {
  std::int64_t samples = 1;      // of all ranks at once
  std::int64_t micro_batch = 1;  // `samples` is a multiple of it, times the ranks that share them
};

// The reward of each text, at its last token, on all ranks. Collective over `everyone`, all ranks
// of the session. Throws Error(kData) for a reward that is not finite.
std::vector<double> rewards_of(const RewardModel& model,
                               const std::vector<std::vector<std::int32_t>>& texts,
                               const RewardBatches& batches, Communicator& everyone);

}  // namespace piton
