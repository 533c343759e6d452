#include "rollouts/reward_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "data/instruct/model_prompt.h"
#include "data/samples/batch_source.h"
#include "model/label_head.h"
#include "rollouts/questions.h"
#include "text/chat/chat_tokens.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::int32_t> text_of_chat(const RewardModel& model, const JudgedAnswer& answer,
                                       Json messages) {
  if (!model.templates.fault.empty()) throw Error(Fault::kData, "{}", model.templates.fault);
  if (model.templates.files.templates.empty()) {
    throw Error(Fault::kData,
                "--reward-model: {} has no chat template, and questions are conversations; put a "
                "chat_template.jinja next to its tokenizer",
                model.folder);
  }
  messages = without_answer(std::move(messages));
  messages.push_back({{"role", "assistant"}, {"content", answer.completion}});
  // The date of prompts that it was trained with.
  const ChatInput input{.messages = std::move(messages), .now_seconds = kDateOfPrompts};
  const ChatTemplate used = choose_chat_template(model.templates.files, "", false);
  return encode_chat(*model.tokenizer, used.render(input, /*add_generation_prompt=*/false)).ids;
}

// Texts [first, first + samples) as rows, whose last tokens have labels; after the last text that
// again.
MicroBatch rows_of_texts(const std::vector<std::vector<std::int32_t>>& texts, std::int64_t first,
                         std::int64_t samples, std::int64_t length) {
  MicroBatch batch{.samples = samples, .sequence = length, .sample_index = first};
  for (std::int64_t i = first; i < first + samples; ++i) {
    const auto& text = texts[static_cast<std::size_t>(std::min(i, std::ssize(texts) - 1))];
    for (std::int64_t at = 0; at < length; ++at) {
      const bool inside = at < std::ssize(text);
      batch.tokens.push_back(inside ? text[static_cast<std::size_t>(at)] : 0);
      batch.labels.push_back(at + 1 == std::ssize(text) ? kRewardLabel : kNoLabel);
      batch.loss_mask.push_back(0);
      batch.positions.push_back(static_cast<std::int32_t>(at));
    }
  }
  return batch;
}

struct PlacedReward {
  std::int64_t place = 0;  // of the text
  double reward = 0;
};

}  // namespace

std::vector<std::vector<std::int32_t>> judged_texts(const RewardModel& model,
                                                    std::span<const JudgedAnswer> answers) {
  std::vector<std::vector<std::int32_t>> texts;
  const std::int64_t longest = model.session->settings().model.longest_sequence();
  for (const JudgedAnswer& one : answers) {
    const Json& question = question_in(*one.record);
    texts.push_back(
        question.is_array()
            ? text_of_chat(model, one, question)
            : model.tokenizer->encode(question.get_ref<const std::string&>() + one.completion, {}));
    if (texts.back().empty() || std::ssize(texts.back()) > longest) {
      throw Error(Fault::kData,
                  "--reward-model: a question with its answer has {} tokens, wanted 1 to {}, as "
                  "many as {} reads; lower --max-completion-length",
                  texts.back().size(), longest, model.folder);
    }
  }
  return texts;
}

std::vector<double> rewards_of(const RewardModel& model,
                               const std::vector<std::vector<std::int32_t>>& texts,
                               const RewardBatches& batches, Communicator& everyone) {
  Session& session = *model.session;
  Mesh& mesh = session.mesh();
  std::int64_t longest = 1;
  for (const auto& text : texts) longest = std::max(longest, std::ssize(text));
  const std::int64_t length = BatchSource::padded_length(
      longest, kRowMultiple, session.settings().model.longest_sequence());
  const BatchPlace place{.global_batch = batches.samples,
                         .micro_batch = batches.micro_batch,
                         .rank = mesh.sample_rank(),
                         .ranks = mesh.sizes().sample_ranks()};
  const bool tells = session.pipeline().on_last_stage() && mesh.coordinate(Axis::kTensor) == 0;
  std::vector<double> rewards(texts.size());
  std::string own;
  for (std::int64_t begin = 0; begin < std::ssize(texts); begin += batches.samples) {
    std::vector<MicroBatch> rows;
    BatchSource::for_each_micro_batch(place, [&](std::int64_t first, std::int64_t samples) {
      rows.push_back(rows_of_texts(texts, begin + first, samples, length));
    });
    const std::vector<std::vector<double>> losses = session.token_losses(rows, {});
    if (!tells) continue;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::int64_t sample = 0; sample < rows[i].samples; ++sample) {
        const std::int64_t text = rows[i].sample_index + sample;
        if (text >= std::ssize(texts)) break;
        const std::int64_t last =
            sample * length + std::ssize(texts[static_cast<std::size_t>(text)]) - 1;
        const PlacedReward placed{text, losses[i][static_cast<std::size_t>(last)]};
        own.append(reinterpret_cast<const char*>(&placed), sizeof placed);
      }
    }
  }
  for (const std::string& told : everyone.gather_bytes(own)) {
    for (std::size_t at = 0; at < told.size(); at += sizeof(PlacedReward)) {
      PlacedReward placed;
      std::memcpy(&placed, told.data() + at, sizeof placed);
      rewards[static_cast<std::size_t>(placed.place)] = placed.reward;
    }
  }
  for (const double reward : rewards) {
    if (std::isfinite(reward)) continue;
    throw Error(Fault::kData, "--reward-model: {} gives the reward {}, wanted a finite number",
                model.folder, reward);
  }
  return rewards;
}

}  // namespace piton
