#include "tasks/task_samples.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "data/instruct/handlers.h"
#include "data/samples/numpy_random.h"
#include "tasks/answers/python_text.h"
#include "tasks/code_answers.h"
#include "tasks/needlebench.h"
#include "tasks/python_random.h"
#include "tasks/shot_texts.h"
#include "tasks/subjects.h"
#include "tasks/task_files.h"
#include "tasks/task_records.h"

namespace piton {
namespace {

using Json = nlohmann::json;

// lm-evaluation-harness draws examples from Random(1234).
constexpr std::uint32_t kShotSeed = 1234;
// It shuffles choices by the module random, which it seeds with 0.
constexpr std::uint32_t kChoiceSeed = 0;

struct Record {
  Json fields;
  std::string where;       // file and record, for messages
  std::int64_t index = 0;  // in its file
  std::string subject;     // "" if it has none
};

// The subject of a record: that of Task::subject_field, else that of its file.
std::string subject_of(const Task& task, const Json& fields, const TaskFile& file) {
  const Json* field = task.subject_field.empty() ? nullptr : find_field(fields, task.subject_field);
  if (field == nullptr || field->is_null()) return task.has_subjects ? file.subject : "";
  return field->is_string() ? field->get<std::string>() : field->dump();
}

void shuffle_choices(Json& fields, PythonRandom& random) {
  Json& choices = fields["choices"];
  const Json right = choices[fields["gold"].get<std::size_t>()];
  std::vector<std::int64_t> order(choices.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  random.shuffle(order);
  Json shuffled = Json::array();
  for (const std::int64_t place : order)
    shuffled.push_back(choices[static_cast<std::size_t>(place)]);
  choices = std::move(shuffled);
  fields["gold"] = std::find(choices.begin(), choices.end(), right) - choices.begin();
}

std::vector<Record> records_of(const Task& task, const TaskFile& file) {
  std::vector<Record> records;
  const bool names_subject = task.prompt.find("{subject_words}") != task.prompt.npos;
  std::int64_t index = 0;
  PythonRandom random(kChoiceSeed);
  for (Json& row : read_task_records(file.path, task.columns)) {
    const std::string where = fmt::format("{}: record {}", file.path.string(), ++index);
    std::vector<Json> rows;
    if (task.prepare != nullptr)
      rows = task.prepare(std::move(row), where);
    else
      rows.push_back(std::move(row));
    for (Json& one : rows) {
      if (task.shuffles_choices) shuffle_choices(one, random);
      std::string subject = subject_of(task, one, file);
      if (names_subject) one["subject_words"] = subject_words(task.name, subject);
      records.push_back({std::move(one), where, std::ssize(records), std::move(subject)});
    }
  }
  return records;
}

// A question as text: the prompt, its choices and the right one.
struct Question {
  std::string prompt;
  std::string ending;
  std::vector<std::string> choices;
  std::vector<std::int64_t> gold;
  std::string answer;
  std::vector<std::string> other_answers;
  std::optional<Conversation> pair;
};

std::vector<std::string> choices_of(const Task& task, const Record& record) {
  std::vector<std::string> choices;
  for (const std::string& choice : task.choices)
    choices.push_back(rendered(choice, record.fields, record.where));
  if (task.choices_field.empty()) return choices;
  const Json* list = find_field(record.fields, task.choices_field);
  const auto is_text = [](const Json& one) { return one.is_string(); };
  if (list == nullptr || !list->is_array() || !std::all_of(list->begin(), list->end(), is_text)) {
    throw Error(Fault::kData, "{}: wanted a list of texts in the field \"{}\"", record.where,
                task.choices_field);
  }
  for (const Json& one : *list) choices.push_back(one.get<std::string>());
  return choices;
}

// The right choices: an index, a list of indices, a label, or the text of a choice. A field that is
// a number is an index, also where it is the text of another choice.
std::vector<std::int64_t> gold_of(const Task& task, const Record& record,
                                  const std::vector<std::string>& choices) {
  const Json* field = named_value(task.answer, record.fields);
  if (task.answer_labels.empty() && field != nullptr && field->is_number_integer() && *field >= 0 &&
      *field < choices.size())
    return {field->get<std::int64_t>()};
  const std::string answer = rendered(task.answer, record.fields, record.where);
  const std::vector<std::string>& names = task.answer_labels.empty() ? choices : task.answer_labels;
  const std::string bare(python_stripped(answer));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == answer || names[i] == bare) return {static_cast<std::int64_t>(i)};
  }
  std::vector<std::int64_t> gold;
  constexpr std::size_t kLongestNumbers = 64;  // characters; longer texts are no list of choices
  const Json value = bare.size() <= kLongestNumbers ? read_json_or_discarded<Json>(bare) : Json();
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    const bool fits = one.is_number_integer() && one >= 0 && one < choices.size();
    if (fits && task.answer_labels.empty()) gold.push_back(one.get<std::int64_t>());
  }
  if (gold.empty()) {
    throw Error(Fault::kData,
                "{}: the answer is \"{}\"; wanted one of {}, or the number of a choice",
                record.where, answer, fmt::join(names, ", "));
  }
  return gold;
}

bool has_choices(TaskKind kind) {
  return kind == TaskKind::kMultipleChoice || kind == TaskKind::kNextToken ||
         kind == TaskKind::kPreference;
}

// The fields of a pair as the lists of messages that they are, by the rules of read_prompt()
// (data/instruct/chat_records.h). Absent if all are texts.
std::optional<Conversation> pair_of_messages(const Task& task, const Record& record) {
  nlohmann::ordered_json pair;
  bool has_lists = false;
  const auto add = [&](const char* key, const std::string& text) {
    const Json* value = named_value(text, record.fields);
    const bool is_list = value != nullptr && value->is_array();
    has_lists = has_lists || is_list;
    if (is_list) pair[key] = *value;
    return is_list;
  };
  const bool is_list[] = {add("prompt", task.prompt), add("chosen", task.choices[0]),
                          add("rejected", task.choices[1])};
  if (!has_lists) return {};
  const auto refuse = [&](const std::string& what) {
    throw Error(Fault::kData, "{}: {}", record.where, what);
  };
  for (const auto& [key, list] : pair.items()) {
    for (const auto& message : list) {
      if (message.is_object() && message.contains("tool_calls"))
        refuse(
            fmt::format("a message of \"{}\" has tool_calls; piton score --reward --pairs reads "
                        "calls of tools",
                        key));
    }
  }
  // Lists that are whole conversations need no prompt.
  const Json* prompt = find_field(record.fields, "prompt");
  const bool no_prompt = task.prompt == "{prompt}" && (prompt == nullptr || prompt->is_null());
  if (!is_list[0] && !no_prompt)
    pair["prompt"] = rendered(task.prompt, record.fields, record.where);
  if (!is_list[1]) pair["chosen"] = rendered(task.choices[0], record.fields, record.where);
  if (!is_list[2]) pair["rejected"] = rendered(task.choices[1], record.fields, record.where);
  const Handler& handler = handler_named("PromptPairwiseHandler");
  try {
    return read_conversation(handler, fields_of(handler, ""), pair);
  } catch (const Error& error) {
    refuse(error.what());
  }
  return {};
}

// The right text, or the list of right texts that `answer` names.
void set_answers(Question& question, const std::string& answer, const Record& record) {
  const Json* list = named_value(answer, record.fields);
  if (list == nullptr || !list->is_array() || list->empty()) {
    question.answer = rendered(answer, record.fields, record.where);
    return;
  }
  for (const Json& one : *list)
    question.other_answers.push_back(one.is_string() ? one.get<std::string>() : one.dump());
  question.answer = question.other_answers.front();
  question.other_answers.erase(question.other_answers.begin());
}

Question question_of(const Task& task, const Record& record) {
  Question question;
  if (task.kind == TaskKind::kPreference) question.pair = pair_of_messages(task, record);
  if (question.pair) {
    const std::vector<Message>& messages = question.pair->messages;
    question.prompt = messages[messages.size() - 2].content;
    question.choices = {messages.back().content, question.pair->rejected->content};
    question.gold = {0};
    return question;
  }
  if (!task.prompt.empty()) question.prompt = rendered(task.prompt, record.fields, record.where);
  if (!task.ending.empty()) question.ending = rendered(task.ending, record.fields, record.where);
  if (!has_choices(task.kind)) {
    const Json* field = named_value(task.answer, record.fields);
    if (field != nullptr && field->is_null())
      throw Error(Fault::kData, "{}: {} is null; wanted the right answer", record.where,
                  task.answer);
    set_answers(question, task.answer, record);
    return question;
  }
  question.choices = choices_of(task, record);
  if (question.choices.size() < 2)
    throw Error(Fault::kData, "{}: got {} choices, wanted two or more", record.where,
                question.choices.size());
  question.gold = task.kind == TaskKind::kPreference ? std::vector<std::int64_t>{0}
                                                     : gold_of(task, record, question.choices);
  return question;
}

// An example: a question with its answer.
ShotTurns shot_of(const Task& task, const Record& record) {
  if (!task.shot_answer.empty())
    return {rendered(task.prompt, record.fields, record.where),
            rendered(task.shot_answer, record.fields, record.where)};
  const Question question = question_of(task, record);
  if (!has_choices(task.kind)) return {question.prompt, question.answer};
  const std::string& right = question.choices[static_cast<std::size_t>(question.gold.front())];
  return task.ending.empty() ? ShotTurns{question.prompt, right}
                             : ShotTurns{right, question.ending};
}

// Makes the samples of one subject after another.
class SampleMaker {
 public:
  SampleMaker(const Task& task, const TaskDataOptions& options, const TaskFiles& files)
      : task_(task),
        options_(options),
        files_(files),
        num_shots_(options.num_shots.value_or(task.num_shots)),
        texts_(task, files.folder, options.few_shot_path, options.flags) {
    check_shots();
  }

  std::int64_t num_shots() const { return num_shots_; }

  void add(const TaskFile& file, std::vector<TaskSample>& samples) {
    std::vector<Record> records = records_of(task_, file);
    // The file of several subjects, each of which has separate examples.
    if (task_.has_subjects)
      std::stable_sort(records.begin(), records.end(),
                       [](const Record& a, const Record& b) { return a.subject < b.subject; });
    const auto same = [](const Record& a, const Record& b) { return a.subject == b.subject; };
    for (auto first = records.begin(); first != records.end();) {
      const auto end = task_.has_subjects
                           ? std::find_if_not(first, records.end(),
                                              [&](const Record& one) { return same(*first, one); })
                           : records.end();
      add_records(file, std::span<const Record>(first, end), samples);
      first = end;
    }
  }

 private:
  // `records`: of one subject, where subjects have separate examples.
  void add_records(const TaskFile& file, std::span<const Record> records,
                   std::vector<TaskSample>& samples) {
    subject_ = records.front().subject;
    std::vector<Record> pool;
    std::vector<std::string> written;
    if (num_shots_ > 0 && task_.shot_texts.empty()) pool = shot_records(file);
    if (num_shots_ > 0 && !task_.shot_texts.empty())
      written = texts_.of(subject_, file.path.parent_path());
    PythonRandom random(kShotSeed);
    std::map<std::string, std::int64_t> sizes;
    std::map<std::string, std::int64_t> taken;
    for (const Record& record : records) ++sizes[record.subject];
    for (const Record& record : records) {
      subject_ = record.subject;
      if (taken[subject_]++ >= most_samples(sizes[subject_])) continue;
      TaskSample sample{.subject = subject_, .index = record.index};
      sample.shots = drawn_shots(random, pool, record);
      sample.system = description();
      std::string before;
      for (const std::int64_t shot : sample.shots) {
        sample.shot_turns.push_back(shot_of(task_, pool[static_cast<std::size_t>(shot)]));
        before += sample.shot_turns.back().question + task_.answer_delimiter +
                  sample.shot_turns.back().answer + task_.shot_delimiter;
      }
      if (!written.empty()) before += written.front() + (written.size() == 1 ? "\n\n" : "");
      // The first paragraph of a file of text is the description.
      const std::size_t paragraph =
          task_.shot_texts.ends_with(".txt") ? before.find("\n\n") : before.npos;
      if (paragraph != before.npos) {
        sample.system += before.substr(0, paragraph + 2);
        before.erase(0, paragraph + 2);
      }
      if (task_.program != nullptr) sample.code = code_question_of(record.fields);
      add_texts(sample, before, question_of(task_, record), written);
      samples.push_back(std::move(sample));
    }
  }

  std::int64_t most_samples(std::int64_t records) const {
    if (options_.sample_share)
      return std::llround(std::ceil(static_cast<double>(records) * *options_.sample_share));
    return options_.max_samples.value_or(records);
  }

  void check_shots() const {
    if (num_shots_ < 0)
      throw Error(Fault::kUsage, "--num-shots: got {}, wanted 0 or more", num_shots_);
    const bool has_shots =
        !task_.shot_splits.empty() || !task_.shot_texts.empty() || task_.own_shots != nullptr;
    if (num_shots_ > 0 && !has_shots)
      throw Error(Fault::kUsage, "--num-shots: got {}, and {} has no examples; leave it out",
                  num_shots_, task_.name);
    const bool surrounds = !task_.shot_texts.empty() && !task_.ending.empty();
    if (!task_.shot_texts.empty() && num_shots_ != task_.num_shots &&
        (num_shots_ != 0 || surrounds))
      throw Error(Fault::kUsage,
                  "--num-shots: got {}; the examples of {} are a fixed text, wanted {}{}",
                  num_shots_, task_.name, task_.num_shots, surrounds ? "" : " or 0");
  }

  std::string description() const {
    if (task_.description.empty()) return "";
    const std::string words = subject_words(task_.name, subject_);
    if (words.empty() && task_.description.find("{subject}") != std::string::npos) {
      throw Error(Fault::kData,
                  "{}: \"{}\" is not a subject of {}; wanted files with the names of subjects",
                  files_.folder.string(), subject_, task_.name);
    }
    return rendered(task_.description, Json{{"subject", words}, {"subject_name", subject_}},
                    task_.name);
  }

  std::vector<Record> own_shots() const {
    std::vector<Record> pool;
    for (Json& fields : task_.own_shots()) pool.push_back({std::move(fields), task_.name});
    if (num_shots_ > std::ssize(pool))
      throw Error(Fault::kUsage, "--num-shots: got {}, and {} has {} examples; wanted no more",
                  num_shots_, task_.name, pool.size());
    return pool;
  }

  std::vector<Record> shot_records(const TaskFile& file) const {
    if (task_.own_shots != nullptr) return own_shots();
    std::vector<Record> pool;
    for (const TaskFile& one : files_.shots) {
      if (task_.has_subjects && one.subject != file.subject && one.subject != subject_) continue;
      pool = records_of(task_, one);
      if (std::ssize(pool) >= drawn_count()) return pool;
      throw Error(Fault::kData, "{}: got {} examples, {} needs {}", one.path.string(), pool.size(),
                  asked_for(), drawn_count());
    }
    const std::string split = task_.shot_splits.front();
    throw Error(Fault::kUsage, "{}: no examples{}; wanted {} there for {} examples{}",
                files_.folder.string(), subject_.empty() ? "" : " of " + subject_,
                task_.has_subjects && !file.subject.empty()
                    ? fmt::format("{}/{}_{}.csv", split, file.subject, split)
                    : split + ".jsonl",
                num_shots_, options_.flags.or_no_shots());
  }

  // What needs the examples: the option, or the task.
  std::string asked_for() const {
    if (options_.flags.num_shots.empty()) return task_.name;
    return fmt::format("{} {}", options_.flags.num_shots, num_shots_);
  }

  std::int64_t drawn_count() const { return num_shots_ + (task_.spare_shot ? 1 : 0); }

  std::vector<std::int64_t> drawn_shots(PythonRandom& random, const std::vector<Record>& pool,
                                        const Record& question) const {
    if (pool.empty()) return {};
    std::vector<std::int64_t> shots;
    if (task_.random_shots) {
      shots = random.sample(std::ssize(pool), drawn_count());
      if (task_.spare_shot) {
        std::erase_if(shots, [&](std::int64_t shot) {
          return pool[static_cast<std::size_t>(shot)].fields == question.fields;
        });
      }
      shots.resize(std::min(shots.size(), static_cast<std::size_t>(num_shots_)));
      return shots;
    }
    shots.resize(pool.size());
    std::iota(shots.begin(), shots.end(), std::int64_t{0});
    if (task_.shots_of_subject || (task_.has_subjects && !task_.subject_field.empty()))
      keep_own_subject(shots, pool);
    if (task_.seeded_shots) NumpyRandom(options_.seed).shuffle(std::span(shots));
    shots.resize(static_cast<std::size_t>(num_shots_));
    return shots;
  }

  void keep_own_subject(std::vector<std::int64_t>& shots, const std::vector<Record>& pool) const {
    std::erase_if(shots, [&](std::int64_t shot) {
      return pool[static_cast<std::size_t>(shot)].subject != subject_;
    });
    if (std::ssize(shots) >= num_shots_) return;
    throw Error(Fault::kData, "{}: got {} examples of {}, {} needs {}", files_.folder.string(),
                shots.size(), subject_, asked_for(), num_shots_);
  }

  void add_texts(TaskSample& sample, const std::string& before, Question question,
                 const std::vector<std::string>& written) const {
    sample.answer = question.answer;
    sample.other_answers = question.other_answers;
    sample.gold = question.gold;
    sample.pair = std::move(question.pair);
    if (written.size() == 3) {
      sample.asked = {
          fmt::format("{}\n{}\n{}\n{}", question.prompt, written[1], question.ending, written[2])};
    } else if (has_choices(task_.kind) && !task_.ending.empty()) {
      sample.asked = question.choices;
      sample.continuations.assign(question.choices.size(),
                                  task_.answer_delimiter + question.ending);
    } else {
      sample.asked = {question.prompt};
      for (const std::string& choice : question.choices)
        sample.continuations.push_back(task_.answer_delimiter + choice);
    }
    if (task_.kind == TaskKind::kLastWord)
      sample.continuations = {task_.answer_delimiter + question.answer};
    sample.choices = std::move(question.choices);
    for (std::string& asked : sample.asked) {
      sample.contexts.push_back(sample.system + before + asked);
      if (!written.empty()) asked.insert(0, before);
    }
  }

  const Task& task_;
  const TaskDataOptions& options_;
  const TaskFiles& files_;
  std::int64_t num_shots_;
  ShotTexts texts_;
  std::string subject_;
};

}  // namespace

std::string hash_of_prompts(const std::vector<TaskSample>& samples) {
  StreamHash hash;
  const auto add = [&](const std::string& text) {
    const std::string framed = fmt::format("{}:{}", text.size(), text);
    hash.add(std::as_bytes(std::span(framed)));
  };
  for (const TaskSample& sample : samples) {
    for (const std::string& context : sample.contexts) add(context);
    for (const std::string& continuation : sample.continuations) add(continuation);
  }
  return hash.hex();
}

TaskData load_task(const Task& task, const TaskDataOptions& options) {
  if (task.has_needles) return load_needlebench(task, options);
  const TaskFiles files =
      find_task_files(task, task_data_path(task.name, options.paths, options.flags));
  SampleMaker maker(task, options, files);
  TaskData data{.task = task, .num_shots = maker.num_shots()};
  for (const TaskFile& file : files.questions) maker.add(file, data.samples);
  if (data.samples.empty())
    throw Error(
        Fault::kData, "{}: holds no question of {}",
        files.questions.size() == 1 ? files.questions[0].path.string() : files.folder.string(),
        task.name);
  data.prompt_hash = hash_of_prompts(data.samples);
  return data;
}

}  // namespace piton
