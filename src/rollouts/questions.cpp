#include "rollouts/questions.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/hash.h"
#include "data/instruct/model_prompt.h"
#include "data/records/block_reader.h"
#include "data/records/whole_record_parser.h"
#include "data/samples/numpy_random.h"
#include "rollouts/reward.h"
#include "text/chat/chat_tokens.h"
#include "text/chat/turn_ends.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostWarnings = 3;

bool is_of_assistant(const Json& message) {
  return message.is_object() && message.value("role", Json()) == "assistant";
}

// Turns records into ids.
class QuestionEncoder {
 public:
  explicit QuestionEncoder(const QuestionReading& reading)
      : reading_(reading), ends_(reading.ends) {}

  std::vector<std::int32_t> ids_of(const Json& record) {
    const auto prompt = record.find("prompt");
    const auto messages = record.find("messages");
    if ((prompt == record.end()) == (messages == record.end())) {
      throw Error(Fault::kData, "got {}, wanted \"messages\" or \"prompt\"",
                  prompt == record.end() ? "neither of the two" : "both");
    }
    const Json& question = prompt == record.end() ? *messages : *prompt;
    if (question.is_array()) return ids_of_chat(record, question);
    if (prompt == record.end() || !question.is_string()) {
      throw Error(Fault::kData, "\"{}\": got {}, wanted {}a list of messages",
                  prompt == record.end() ? "messages" : "prompt", question.type_name(),
                  prompt == record.end() ? "" : "a text or ");
    }
    return reading_.tokenizer.encode(question.get_ref<const std::string&>(),
                                     {.add_special_tokens = reading_.adds_special_tokens});
  }
  std::vector<std::int32_t> ends() const { return ends_; }

 private:
  std::vector<std::int32_t> ids_of_chat(const Json& record, Json messages) {
    messages = without_answer(std::move(messages));
    if (messages.empty()) throw Error(Fault::kData, "the conversation has no question");
    // Not that of today: a run that continues tomorrow has the same questions.
    ChatInput input{.messages = std::move(messages), .now_seconds = kDateOfPrompts};
    input.variables = Json::object();
    for (const char* key : {"tools", "documents"}) {
      const auto found = record.find(key);
      if (found != record.end())
        (key == std::string_view("tools") ? input.tools : input.documents) = *found;
    }
    const ChatTemplate& chosen = template_for(!input.tools.is_null());
    const RenderedChat chat = chosen.render(input, /*add_generation_prompt=*/true);
    return encode_chat(reading_.tokenizer, chat).ids;
  }

  const ChatTemplate& template_for(bool with_tools) {
    std::optional<ChatTemplate>& kept = with_tools ? with_tools_ : plain_;
    if (!kept) {
      if (!reading_.template_fault.empty())
        throw Error(Fault::kUsage, "{}", reading_.template_fault);
      if (reading_.templates.templates.empty()) {
        throw Error(Fault::kUsage,
                    "--data-path: records are conversations, and the model has no chat template; "
                    "put a chat_template.jinja next to its tokenizer, or give texts as \"prompt\"");
      }
      kept = choose_chat_template(reading_.templates, "", with_tools);
      for (const std::int32_t id : turn_ends(*kept, reading_.tokenizer)) {
        if (std::ranges::find(ends_, id) == ends_.end()) ends_.push_back(id);
      }
    }
    return *kept;
  }

  const QuestionReading& reading_;
  std::vector<std::int32_t> ends_;
  std::optional<ChatTemplate> plain_;
  std::optional<ChatTemplate> with_tools_;
};

class LeftOutRecords {
 public:
  explicit LeftOutRecords(Log& log) : log_(log) {}
  void add(const BadRecord& bad) {
    if (++count_ <= kMostWarnings) log_.warning(describe(bad));
    if (count_ == 1) first_ = describe(bad);
  }
  void finish(std::int64_t questions) const {
    if (questions == 0) {
      throw Error(Fault::kData,
                  "--data-path: no question, wanted records with \"messages\" or "
                  "\"prompt\"{}{}",
                  first_.empty() ? "" : "; ", first_);
    }
    if (count_ > 0) {
      log_.warning(
          fmt::format("--data-path: {} records of {} are left out", count_, count_ + questions));
    }
  }

 private:
  Log& log_;
  std::int64_t count_ = 0;
  std::string first_;
};

class QuestionSamples final : public SampleSource {
 public:
  QuestionSamples(std::shared_ptr<const Questions> questions, std::int64_t generations,
                  std::int64_t sequence)
      : questions_(std::move(questions)), generations_(generations), sequence_(sequence) {}

  std::int64_t size() const override { return std::numeric_limits<std::int64_t>::max(); }
  std::int64_t sequence() const override { return sequence_; }
  void sample(std::int64_t index, Sample& sample) const override {
    const std::vector<std::int32_t>& ids = questions_->at(index / generations_).ids;
    const auto length = static_cast<std::size_t>(sequence_);
    sample = {.length = std::ssize(ids)};
    sample.tokens = ids;
    sample.tokens.resize(length);
    sample.labels.assign(length, kNoLabel);
    sample.positions.resize(length);
    std::iota(sample.positions.begin(), sample.positions.end(), 0);
  }

 private:
  std::shared_ptr<const Questions> questions_;
  std::int64_t generations_;
  std::int64_t sequence_;
};

}  // namespace

const Json& question_in(const Json& record) {
  return record.at(record.contains("prompt") ? "prompt" : "messages");
}

Json without_answer(Json messages) {
  while (!messages.empty() && is_of_assistant(messages.back())) messages.erase(messages.size() - 1);
  return messages;
}

Questions::Questions(const std::vector<std::string>& files, const QuestionReading& reading,
                     std::uint64_t seed, Log& log)
    : seed_(seed) {
  read(files, reading, log);
  StreamHash hash;
  const auto add = [&](const auto& values) { hash.add(std::as_bytes(std::span(values))); };
  for (const RolloutQuestion& one : questions_) {
    add(one.record.dump());
    add(one.ids);
  }
  identity_ = fmt::format("{} questions, {}", size(), hash.hex());
}

void Questions::read(const std::vector<std::string>& files, const QuestionReading& reading,
                     Log& log) {
  for (const std::string& file : files) static_cast<void>(RegularFile(file));
  QuestionEncoder encoder(reading);
  LeftOutRecords left_out(log);
  BlockReader reader(find_input_files(files, std::nullopt), {.any_type = true}, {});
  const auto use = [&](Json& record) {
    if (reading.needs_answer) static_cast<void>(answer_of_record(record));
    std::vector<std::int32_t> ids = encoder.ids_of(record);
    if (ids.empty() || std::ssize(ids) > reading.longest) {
      throw Error(Fault::kData,
                  "the question has {} tokens, wanted 1 to {}: --seq-length without "
                  "--max-completion-length",
                  ids.size(), reading.longest);
    }
    questions_.push_back({std::move(record), std::move(ids)});
  };
  for_each_record(reader, SampleBy::kLine, use, [&](const BadRecord& bad) { left_out.add(bad); });
  left_out.finish(size());
  ends_ = encoder.ends();
}

const RolloutQuestion& Questions::at(std::int64_t place, std::int64_t order) const {
  // Seeds of epochs are neighbors; those of other orders are far from them.
  constexpr std::uint64_t kSeedStep = 0x9E3779B1;
  const std::int64_t epoch = place / size();
  if (epoch != epoch_ || order != number_) {
    order_.resize(questions_.size());
    std::iota(order_.begin(), order_.end(), 0);
    const std::uint64_t seed =
        seed_ + static_cast<std::uint64_t>(epoch) + kSeedStep * static_cast<std::uint64_t>(order);
    NumpyRandom(static_cast<std::uint32_t>(seed)).shuffle(std::span(order_));
    epoch_ = epoch;
    number_ = order;
  }
  return questions_[static_cast<std::size_t>(order_[static_cast<std::size_t>(place % size())])];
}

std::shared_ptr<const SampleSource> samples_of_questions(std::shared_ptr<const Questions> questions,
                                                         std::int64_t generations,
                                                         std::int64_t sequence) {
  return std::make_shared<QuestionSamples>(std::move(questions), generations, sequence);
}

}  // namespace piton
