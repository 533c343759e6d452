#include "tasks/prepare_records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/listed.h"
#include "tasks/answers/python_text.h"
#include "tasks/record_fields.h"
#include "tasks/task_records.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kOptionLetters = "ABCDEFGHIJ";

// Removes [...] on one line, the shortest match, as re.sub(r"\[.*?\]", "", text).
std::string without_brackets(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = std::min(text.find('['), text.size());
    out.append(text.substr(0, open));
    text.remove_prefix(open);
    if (text.empty()) break;
    const std::size_t end = text.find_first_of("]\n");
    if (end == text.npos) return out.append(text);
    if (text[end] == '\n') out.append(text.substr(0, end));
    text.remove_prefix(text[end] == '\n' ? end : end + 1);
  }
  return out;
}

std::string hellaswag_text(std::string_view text) {
  const std::string dotted = python_replaced(python_stripped(text), " [title]", ". ");
  return python_replaced(without_brackets(dotted), "  ", " ");
}

}  // namespace

TaskRows prepare_mmlu(Json record, const std::string& where) {
  const Json* choices = find_field(record, "choices");
  if (choices != nullptr && choices->is_array() && choices->size() == 4 &&
      has_all(record, {"question", "answer"})) {
    const std::vector<std::string> texts = texts_of(*choices, where);
    for (std::size_t i = 0; i < 4; ++i) record[std::string(1, kOptionLetters[i])] = texts[i];
    const Json answer = *find_field(record, "answer");
    if (answer.is_number_integer() && answer >= 0 && answer < 4)
      record["answer"] = std::string(1, kOptionLetters[answer.get<std::size_t>()]);
  }
  if (!has_all(record, {"question", "A", "B", "C", "D", "answer"})) {
    refuse_columns(record, where,
                   "question, A, B, C, D, answer, or question, choices (a list of four), answer");
  }
  return {std::move(record)};
}

TaskRows prepare_boolq(Json record, const std::string& where) {
  if (!has_all(record, {"passage", "question"}) ||
      (!has_all(record, {"answer"}) && !has_all(record, {"label"}))) {
    refuse_columns(record, where, "passage, question, answer (true or false) or label (0 or 1)");
  }
  if (!has_all(record, {"answer"})) {
    const std::string label = text_field(record, "label");
    if (label != "0" && label != "1" && label != "false" && label != "true") {
      throw Error(Fault::kData,
                  "{}: label is {}, wanted 0 or 1 (the published test split has none)", where,
                  label);
    }
    record["answer"] = label == "1" || label == "true";
  }
  return {std::move(record)};
}

TaskRows prepare_hellaswag(Json record, const std::string& where) {
  Json out = {{"activity_label", text_field(record, "activity_label")}};
  if (has_all(record, {"ctx_a", "ctx_b", "endings", "activity_label", "label"})) {
    const std::string context =
        text_field(record, "ctx_a") + " " + python_capitalized(text_field(record, "ctx_b"));
    out["query"] = hellaswag_text(text_field(record, "activity_label") + ": " + context);
    out["endings"] = Json::array();
    for (const std::string& ending : texts_of(record["endings"], where))
      out["endings"].push_back(hellaswag_text(ending));
    out["label"] = text_field(record, "label");
  } else if (has_all(record, {"query", "choices", "gold"})) {
    out["query"] = record["query"];
    out["endings"] = record["choices"];
    out["label"] = text_field(record, "gold");
  } else {
    refuse_columns(record, where,
                   "activity_label, ctx_a, ctx_b, endings, label, or query, choices, gold");
  }
  return {std::move(out)};
}

TaskRows prepare_lambada(Json record, const std::string& where) {
  if (!has_all(record, {"text"})) refuse_columns(record, where, "text");
  const std::string text = text_field(record, "text");
  // lm-evaluation-harness: text.split(' ')[-1], and the words before it.
  const std::size_t blank = text.rfind(' ');
  if (blank == text.npos)
    throw Error(Fault::kData, "{}: \"text\" has one word, wanted two or more", where);
  record["before"] = text.substr(0, blank);
  record["last_word"] = text.substr(blank + 1);
  return {std::move(record)};
}

TaskRows prepare_arc(Json record, const std::string& where) {
  const Json* question = find_field(record, "question");
  const Json* stem = find_field(record, "question_stem");
  const Json* choices = find_field(record, "choices");
  Json out;
  if (question != nullptr && question->is_object()) {
    stem = find_field(*question, "stem");
    choices = find_field(*question, "choices");
  } else if (stem == nullptr) {
    stem = question;
  }
  const Json* key = find_field(record, "answerKey");
  if (stem == nullptr || choices == nullptr || key == nullptr || !stem->is_string() ||
      !key->is_string()) {
    refuse_columns(record, where, "question, choices (text, label), answerKey");
  }
  out["question"] = *stem;
  out["texts"] = Json::array();
  std::vector<std::string> labels;
  if (choices->is_object() && has_all(*choices, {"text", "label"})) {
    out["texts"] = *find_field(*choices, "text");
    labels = texts_of(*find_field(*choices, "label"), where);
  } else if (choices->is_array()) {
    for (const Json& one : *choices) {
      if (!one.is_object() || !has_all(one, {"text", "label"}))
        refuse_columns(record, where, "choices with text and label");
      out["texts"].push_back(*find_field(one, "text"));
      labels.push_back(text_field(one, "label"));
    }
  }
  const std::string wanted(python_left_stripped(key->get<std::string>()));
  const auto found = std::find(labels.begin(), labels.end(), wanted);
  if (found == labels.end()) {
    throw Error(Fault::kData, "{}: answerKey is \"{}\"; the choices are {}", where, wanted,
                listed(labels, 10));
  }
  out["gold"] = found - labels.begin();
  return {std::move(out)};
}

TaskRows prepare_winogrande(Json record, const std::string& where) {
  const std::string sentence = text_field(record, "sentence");
  const std::string answer = text_field(record, "answer");
  const std::size_t blank = sentence.find('_');
  if (!has_all(record, {"sentence", "option1", "option2", "answer"}) || blank == sentence.npos ||
      (answer != "1" && answer != "2")) {
    refuse_columns(record, where,
                   "sentence (with _), option1, option2, answer (1 or 2; the published test split "
                   "has none)");
  }
  record["before"] = sentence.substr(0, blank);
  record["after"] = std::string(python_stripped(std::string_view(sentence).substr(blank + 1)));
  record["gold"] = answer == "1" ? 0 : 1;
  return {std::move(record)};
}

namespace {

// Of AGIEval: a question with a free answer (math, gaokao-mathcloze).
bool is_free_question(const Json& record) {
  const Json* options = find_field(record, "options");
  const Json* answer = find_field(record, "answer");
  return (options == nullptr || options->is_null()) && answer != nullptr && !answer->is_null();
}

// Chinese and English questions have different words (convert_zero_shot() of AGIEval).
bool is_chinese(std::string_view question) {
  for (std::size_t at = 0; at < question.size();) {
    const Utf8Char c = decode_utf8(question, at);
    if (c.value >= 0x4E00 && c.value <= 0x9FFF) return true;
    at += c.length;
  }
  return false;
}

}  // namespace

TaskRows prepare_agieval_cloze(Json record, const std::string& where) {
  if (has_all(record, {"query", "answer"})) return {std::move(record)};
  if (has_all(record, {"question", "options"}) && !is_free_question(record)) return {};
  if (!has_all(record, {"question", "answer"}))
    refuse_columns(record, where, "question, answer, or query, answer");
  const std::string passage = text_field(record, "passage");
  const std::string question = text_field(record, "question");
  record["query"] = is_chinese(question)
                        ? fmt::format("{}问题：{}\n答案：", passage, question)
                        : fmt::format("{}Q: {}\nA: The answer is", passage, question);
  return {std::move(record)};
}

TaskRows prepare_agieval(Json record, const std::string& where) {
  if (has_all(record, {"query", "choices", "gold"})) {
    record["options"] = record["choices"];
    return {std::move(record)};
  }
  if (is_free_question(record)) return {};
  if (!has_all(record, {"question", "options", "label"}))
    refuse_columns(record, where, "passage, question, options, label, or query, choices, gold");
  const std::string passage = text_field(record, "passage");
  const std::string question = text_field(record, "question");
  const std::string label = text_field(record, "label");
  const Json options = *find_field(record, "options");
  if (!options.is_array() || options.empty() || options.size() > kOptionLetters.size()) {
    throw Error(Fault::kData, "{}: got {} options, wanted a list of 1 to {}", where,
                options.is_array() ? options.size() : 0, kOptionLetters.size());
  }
  std::string list;
  for (const std::string& one : texts_of(options, where)) list += (list.empty() ? "" : " ") + one;
  const char last = kOptionLetters[options.size() - 1];
  record["query"] =
      is_chinese(question)
          ? fmt::format("{}问题：{} 选项：{}\n答案：从A到{}, 我们应选择", passage, question, list,
                        last)
          : fmt::format("{}Q: {} Answer Choices: {}\nA: Among A through {}, the answer is", passage,
                        question, list, last);
  Json gold = Json::array();
  for (const char letter : label) {
    const std::size_t index = kOptionLetters.find(letter);
    if (index < options.size()) gold.push_back(index);
  }
  if (gold.empty())
    throw Error(Fault::kData, "{}: label is \"{}\", wanted letters from A to {}", where, label,
                last);
  record["gold"] = gold;
  return {std::move(record)};
}

TaskRows prepare_mindspeed_agieval(Json record, const std::string& where) {
  if (!has_all(record, {"question"}))
    refuse_columns(record, where, "passage, question, options, label or answer");
  const auto list_or_empty = [&](std::string_view name) {
    const Json* list = find_field(record, name);
    return list != nullptr && list->is_array() ? texts_of(*list, where)
                                               : std::vector<std::string>();
  };
  const std::string passage = text_field(record, "passage");
  std::vector<std::string> labels = list_or_empty("label");
  if (labels.empty()) labels = {text_field(record, "label")};
  std::string right = fmt::format("{}", fmt::join(labels, ","));
  if (right.empty()) right = python_replaced(text_field(record, "answer"), "$", "");
  if (right.empty())
    throw Error(Fault::kData, "{}: has neither label nor answer, wanted one of them", where);
  record["asked"] = (passage.empty() ? "" : passage + "\n") + text_field(record, "question");
  record["lines"] = fmt::format("{}", fmt::join(list_or_empty("options"), "\n"));
  record["right"] = right;
  return {std::move(record)};
}

TaskRows prepare_gsm8k(Json record, const std::string& where) {
  if (!has_all(record, {"question", "answer"})) refuse_columns(record, where, "question, answer");
  Json& answer = record["answer"];
  if (answer.is_array() && answer.size() == 1) answer = Json(answer.front());
  if (answer.is_number()) answer = answer.dump();
  if (!answer.is_string())
    throw Error(Fault::kData, "{}: answer is {}, wanted text", where, answer.type_name());
  const std::string text = answer.get<std::string>();
  const std::size_t mark = text.rfind("#### ");
  record["number"] = python_replaced(mark == text.npos ? text : text.substr(mark + 5), ",", "");
  return {std::move(record)};
}

TaskRows prepare_humaneval(Json record, const std::string& where) {
  for (const std::string_view field : {"prompt", "test", "entry_point"}) {
    const Json* value = find_field(record, field);
    if (value == nullptr || !value->is_string())
      refuse_columns(record, where, "prompt, test, entry_point (texts)");
  }
  return {std::move(record)};
}

namespace {

// The text of a page without the marks that WikiText put between words
// (tasks/wikitext/preprocess_wikitext.py of lm-evaluation-harness 0.4).
std::string plain_page(std::string_view page) {
  std::string text = python_replaced(page, "s '", "s'");
  constexpr std::array<std::array<std::string_view, 2>, 9> kMarks = {{{" @-@ ", "-"},
                                                                      {" @,@ ", ","},
                                                                      {" @.@ ", "."},
                                                                      {" : ", ": "},
                                                                      {" ; ", "; "},
                                                                      {" . ", ". "},
                                                                      {" ! ", "! "},
                                                                      {" ? ", "? "},
                                                                      {" , ", ", "}}};
  for (const auto& [from, to] : kMarks) text = python_replaced(text, from, to);
  // Brackets and quotes without the white space inside: \(\s*([^\)]*?)\s*\) and the like.
  for (const std::string_view pair : {"()", "[]", "{}", "\"\"", "''"}) {
    std::string out;
    std::size_t at = 0;
    while (true) {
      const std::size_t open = text.find(pair[0], at);
      const std::size_t close = open == text.npos ? text.npos : text.find(pair[1], open + 1);
      if (close == text.npos) break;
      out.append(text, at, open + 1 - at);
      out.append(python_stripped(std::string_view(text).substr(open + 1, close - open - 1)));
      out += pair[1];
      at = close + 1;
    }
    text = out.append(text, at);
  }
  constexpr std::array<std::array<std::string_view, 2>, 8> kRest = {{{"= = = =", "===="},
                                                                     {"= = =", "==="},
                                                                     {"= =", "=="},
                                                                     {" \u00B0 ", "\u00B0"},
                                                                     {" \n", "\n"},
                                                                     {"\n ", "\n"},
                                                                     {" N ", " 1 "},
                                                                     {" 's", "'s"}}};
  for (const auto& [from, to] : kRest) text = python_replaced(text, from, to);
  return text;
}

bool is_heading(std::string_view line) {
  const std::string joined = python_replaced(python_replaced(line, "= = =", "==="), "= =", "==");
  const std::string_view bare = python_stripped(joined);
  return bare.starts_with("= ") && bare.ends_with(" =");
}

}  // namespace

TaskRows prepare_wikitext(Json record, const std::string& where) {
  TaskRows rows;
  const auto add = [&](const std::string& page) {
    if (!python_stripped(page).empty())
      rows.push_back({{"page", page}, {"text", plain_page(page)}});
  };
  if (find_field(record, "page") != nullptr) {
    add(text_field(record, "page"));
    return rows;
  }
  if (!has_all(record, {"text"})) refuse_columns(record, where, "page, or text");
  const std::string text = text_field(record, "text");
  std::string page;
  bool first = true;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (is_heading(line)) {
      add(page);
      page.clear();
      first = true;
    }
    page += (first ? "" : "\n") + line;
    first = false;
    at = end + 1;
  }
  add(page);
  return rows;
}

}  // namespace piton
