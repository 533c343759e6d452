#include "tasks/answers/instructions.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "tasks/answers/capital_words.h"
#include "tasks/answers/python_text.h"
#include "text/unicode/pattern.h"

namespace piton {
namespace {

using Json = nlohmann::json;

// Arguments of an instruction, and the text of an answer.
struct Given {
  const Json& arguments;
  std::string text;

  std::string word(const char* name) const {
    return std::string(python_stripped(arguments.at(name).get<std::string>()));
  }
  std::int64_t number(const char* name) const { return arguments.at(name).get<std::int64_t>(); }
  // By the words of a relation: "less than" or "at least".
  bool compares(std::int64_t count, const char* relation, const char* threshold) const {
    const bool less = arguments.at(relation) == "less than";
    return less ? count < number(threshold) : count >= number(threshold);
  }
};

std::int64_t count_of(const std::string& expression, std::string_view text) {
  return std::ssize(Pattern(expression, "instruction").matches(text));
}
bool has(const std::string& expression, std::string_view text) {
  return count_of(expression, text) > 0;
}

// re.split(): what is between the matches.
std::vector<std::string_view> pieces_of(const std::string& expression, std::string_view text) {
  std::vector<std::string_view> pieces;
  std::size_t at = 0;
  for (const auto& [begin, end] : Pattern(expression, "instruction").matches(text)) {
    pieces.push_back(text.substr(at, begin - at));
    at = end;
  }
  pieces.push_back(text.substr(at));
  return pieces;
}

bool is_blank(std::string_view text) { return python_stripped(text).empty(); }

// str.strip(character).
std::string_view without_ends(std::string_view text, char character) {
  while (text.starts_with(character)) text.remove_prefix(1);
  while (text.ends_with(character)) text.remove_suffix(1);
  return text;
}

bool has_keywords(const Given& given) {
  return std::ranges::all_of(given.arguments.at("keywords"), [&](const Json& word) {
    return has("(?i)" + word.get<std::string>(), given.text);
  });
}

bool has_keyword_often(const Given& given) {
  return given.compares(count_of("(?i)" + given.word("keyword"), given.text), "relation",
                        "frequency");
}

bool has_no_forbidden_word(const Given& given) {
  return std::ranges::none_of(given.arguments.at("forbidden_words"), [&](const Json& word) {
    return has("(?i)\\b" + word.get<std::string>() + "\\b", given.text);
  });
}

bool has_letter_often(const Given& given) {
  const std::string text = python_lower(given.text);
  const char letter = python_lower(given.word("letter")).front();
  return given.compares(std::ranges::count(text, letter), "let_relation", "let_frequency");
}

bool has_paragraphs(const Given& given) {
  const auto paragraphs = pieces_of("\\s?\\*\\*\\*\\s?", given.text);
  auto count = std::ssize(paragraphs);
  for (std::size_t i = 0; i < paragraphs.size(); ++i) {
    if (!is_blank(paragraphs[i])) continue;
    if (i != 0 && i != paragraphs.size() - 1) return false;
    --count;
  }
  return count == given.number("num_paragraphs");
}

bool has_words(const Given& given) {
  return given.compares(count_of("[\\p{L}\\p{N}_]+", given.text), "relation", "num_words");
}

// The first word of a paragraph up to a mark of punctuation, without quotation marks before it.
std::string first_word(std::string_view paragraph) {
  std::string_view word = pieces_of("\\s+", paragraph).front();
  while (word.starts_with('\'')) word.remove_prefix(1);
  while (word.starts_with('"')) word.remove_prefix(1);
  return python_lower(word.substr(0, word.find_first_of(".,?!'\"")));
}

bool begins_a_paragraph(const Given& given) {
  const auto paragraphs = pieces_of("\n\n", given.text);
  const std::int64_t count = std::ssize(paragraphs) - std::ranges::count_if(paragraphs, is_blank);
  const std::int64_t nth = given.number("nth_paragraph");
  if (nth > count) return false;
  const std::string_view paragraph = python_stripped(paragraphs[static_cast<std::size_t>(nth - 1)]);
  if (paragraph.empty()) return false;
  return count == given.number("num_paragraphs") &&
         first_word(paragraph) == python_lower(given.arguments.at("first_word").get<std::string>());
}

bool has_placeholders(const Given& given) {
  return count_of("\\[.*?\\]", given.text) >= given.number("num_placeholders");
}

bool has_postscript(const Given& given) {
  const std::string marker = given.word("postscript_marker");
  std::string expression = python_lower(marker);
  if (marker == "P.P.S") expression = "p\\.\\s?p\\.\\s?s";
  if (marker == "P.S.") expression = "p\\.\\s?s\\.";
  return has("(?m)\\s*" + expression + ".*$", python_lower(given.text));
}

bool has_bullets(const Given& given) {
  return count_of("(?m)^\\s*\\*[^*].*$", given.text) + count_of("(?m)^\\s*-.*$", given.text) ==
         given.number("num_bullets");
}

bool is_a_given_answer(const Given& given) {
  for (const char* one : {"My answer is yes.", "My answer is no.", "My answer is maybe."})
    if (given.text.find(one) != std::string::npos) return true;
  return false;
}

bool has_highlights(const Given& given) {
  const std::string_view text = given.text;
  std::int64_t count = 0;
  for (const auto& [begin, end] : Pattern("\\*[^\\n*]*\\*", "instruction").matches(text))
    count += is_blank(without_ends(text.substr(begin, end - begin), '*')) ? 0 : 1;
  for (const auto& [begin, end] : Pattern("\\*\\*[^\\n*]*\\*\\*", "instruction").matches(text))
    count += is_blank(text.substr(begin + 2, end - begin - 4)) ? 0 : 1;
  return count >= given.number("num_highlights");
}

bool has_sections(const Given& given) {
  return count_of("\\s?" + given.word("section_spliter") + "\\s?\\d+\\s?", given.text) >=
         given.number("num_sections");
}

bool is_json(const Given& given) {
  std::string_view text = python_stripped(given.text);
  for (const std::string_view fence : {"```json", "```Json", "```JSON", "```"})
    if (text.starts_with(fence)) text.remove_prefix(fence.size());
  if (text.ends_with("```")) text.remove_suffix(3);
  return Json::accept(python_stripped(text));
}

bool has_title(const Given& given) {
  const std::string_view text = given.text;
  for (const auto& [begin, end] : Pattern("<<[^\\n]+>>", "instruction").matches(text)) {
    std::string_view title = text.substr(begin, end - begin);
    while (title.starts_with('<')) title.remove_prefix(1);
    while (title.ends_with('>')) title.remove_suffix(1);
    if (!is_blank(title)) return true;
  }
  return false;
}

bool has_two_responses(const Given& given) {
  const auto responses = pieces_of("\\*{6}", given.text);
  std::vector<std::string_view> written;
  for (std::size_t i = 0; i < responses.size(); ++i) {
    if (!is_blank(responses[i])) {
      written.push_back(python_stripped(responses[i]));
    } else if (i != 0 && i != responses.size() - 1) {
      return false;
    }
  }
  return written.size() == 2 && written[0] != written[1];
}

bool repeats_the_prompt(const Given& given) {
  return python_lower(python_stripped(given.text))
      .starts_with(python_lower(given.word("prompt_to_repeat")));
}

bool ends_with_phrase(const Given& given) {
  return python_lower(without_ends(python_stripped(given.text), '"'))
      .ends_with(python_lower(given.word("end_phrase")));
}

bool has_capital_words(const Given& given) {
  return given.compares(capital_word_count(given.text), "capital_relation", "capital_frequency");
}

bool has_no_comma(const Given& given) { return given.text.find(',') == std::string::npos; }

bool is_quoted(const Given& given) {
  const std::string_view text = python_stripped(given.text);
  return text.size() > 1 && text.front() == '"' && text.back() == '"';
}

struct Rule {
  bool (*follows)(const Given& given) = nullptr;  // null: not checked
  std::vector<const char*> texts;
  std::vector<const char*> lists;    // of texts
  std::vector<const char*> numbers;  // above 0
};

const std::map<std::string, Rule, std::less<>>& rules() {
  static const std::map<std::string, Rule, std::less<>> all{
      {"keywords:existence", {has_keywords, {}, {"keywords"}, {}}},
      {"keywords:frequency", {has_keyword_often, {"keyword", "relation"}, {}, {"frequency"}}},
      {"keywords:forbidden_words", {has_no_forbidden_word, {}, {"forbidden_words"}, {}}},
      {"keywords:letter_frequency",
       {has_letter_often, {"letter", "let_relation"}, {}, {"let_frequency"}}},
      {"language:response_language", {}},
      {"length_constraints:number_sentences", {}},
      {"length_constraints:number_paragraphs", {has_paragraphs, {}, {}, {"num_paragraphs"}}},
      {"length_constraints:number_words", {has_words, {"relation"}, {}, {"num_words"}}},
      {"length_constraints:nth_paragraph_first_word",
       {begins_a_paragraph, {"first_word"}, {}, {"num_paragraphs", "nth_paragraph"}}},
      {"detectable_content:number_placeholders", {has_placeholders, {}, {}, {"num_placeholders"}}},
      {"detectable_content:postscript", {has_postscript, {"postscript_marker"}, {}, {}}},
      {"detectable_format:number_bullet_lists", {has_bullets, {}, {}, {"num_bullets"}}},
      {"detectable_format:constrained_response", {is_a_given_answer, {}, {}, {}}},
      {"detectable_format:number_highlighted_sections",
       {has_highlights, {}, {}, {"num_highlights"}}},
      {"detectable_format:multiple_sections",
       {has_sections, {"section_spliter"}, {}, {"num_sections"}}},
      {"detectable_format:json_format", {is_json, {}, {}, {}}},
      {"detectable_format:title", {has_title, {}, {}, {}}},
      {"combination:two_responses", {has_two_responses, {}, {}, {}}},
      {"combination:repeat_prompt", {repeats_the_prompt, {"prompt_to_repeat"}, {}, {}}},
      {"startend:end_checker", {ends_with_phrase, {"end_phrase"}, {}, {}}},
      {"startend:quotation", {is_quoted, {}, {}, {}}},
      {"change_case:capital_word_frequency",
       {has_capital_words, {"capital_relation"}, {}, {"capital_frequency"}}},
      {"change_case:english_capital", {}},
      {"change_case:english_lowercase", {}},
      {"punctuation:no_comma", {has_no_comma, {}, {}, {}}}};
  return all;
}

bool is_text(const Json& value) { return value.is_string(); }
bool are_texts(const Json& value) {
  return value.is_array() && std::ranges::all_of(value, is_text);
}
bool is_count(const Json& value) { return value.is_number() && value > 0; }

void check_arguments(const Instruction& instruction, const std::string& where) {
  const Rule& rule = rules().find(instruction.id)->second;
  const auto check = [&](const std::vector<const char*>& names, bool (*fits)(const Json&),
                         const char* wanted) {
    for (const char* name : names) {
      const auto found = instruction.arguments.find(name);
      if (found != instruction.arguments.end() && fits(*found)) continue;
      throw Error(Fault::kData, "{}: {}: {} is {}, wanted {}", where, instruction.id, name,
                  found == instruction.arguments.end() ? "missing" : found->dump(), wanted);
    }
  };
  check(rule.texts, is_text, "a text");
  check(rule.lists, are_texts, "a list of texts");
  check(rule.numbers, is_count, "a number above 0");
  for (const char* name : rule.texts) {
    const Json& value = instruction.arguments.at(name);
    if (!std::string_view(name).ends_with("relation") || value == "less than" ||
        value == "at least")
      continue;
    throw Error(Fault::kData, "{}: {}: {} is {}, wanted \"less than\" or \"at least\"", where,
                instruction.id, name, value.dump());
  }
  if (!instruction.is_checked()) return;
  try {  // words that are read as regular expressions
    rule.follows({instruction.arguments, ""});
  } catch (const Error& error) {
    throw Error(Fault::kData, "{}: {}: {}", where, instruction.id, error.what());
  }
}

// Values that Python takes as false are left out there.
bool counts_as_absent(const Json& value) {
  return value.is_null() || value == 0 || value == "" || value == false || value.empty();
}

std::vector<std::string> variants_of(std::string_view answer) {
  std::vector<std::string> variants{std::string(answer)};
  const std::size_t first = answer.find('\n');
  const std::size_t last = answer.rfind('\n');
  const auto add = [&](std::string_view text) { variants.emplace_back(python_stripped(text)); };
  const bool several = first != answer.npos;
  add(several ? answer.substr(first + 1) : "");
  add(several ? answer.substr(0, last) : "");
  add(several && last > first ? answer.substr(first + 1, last - first - 1) : "");
  for (std::size_t i = 0; i < 4; ++i) variants.push_back(python_replaced(variants[i], "*", ""));
  return variants;
}

}  // namespace

bool Instruction::is_checked() const {
  if (rules().find(id)->second.follows == nullptr) return false;
  if (id == "keywords:letter_frequency") {
    const std::string letter = python_lower(arguments.at("letter").get<std::string>());
    return letter.size() == 1 && letter[0] >= 'a' && letter[0] <= 'z';
  }
  return id != "length_constraints:nth_paragraph_first_word" ||
         arguments.at("nth_paragraph") <= arguments.at("num_paragraphs");
}

std::vector<Instruction> read_instructions(const Json& record, const std::string& where) {
  const auto list = [&](const char* name) -> const Json& {
    const auto found = record.find(name);
    if (found == record.end() || !found->is_array() || found->empty())
      throw Error(Fault::kData, "{}: {} is missing, wanted a list", where, name);
    return *found;
  };
  const Json& ids = list("instruction_id_list");
  const Json& arguments = list("kwargs");
  if (ids.size() != arguments.size())
    throw Error(Fault::kData, "{}: got {} of kwargs for {} instructions, wanted one for each",
                where, arguments.size(), ids.size());
  std::vector<Instruction> all;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!ids[i].is_string() || !rules().contains(ids[i].get<std::string>()))
      throw Error(Fault::kData, "{}: {} is no instruction of IFEval", where, ids[i].dump());
    Instruction& one = all.emplace_back(Instruction{ids[i].get<std::string>(), Json::object()});
    if (!arguments[i].is_object())
      throw Error(Fault::kData, "{}: {}: got kwargs {}, wanted an object", where, one.id,
                  arguments[i].dump());
    for (const auto& [name, value] : arguments[i].items())
      if (!counts_as_absent(value)) one.arguments[name] = value;
    check_arguments(one, where);
  }
  return all;
}

std::vector<bool> followed(const std::vector<Instruction>& instructions, std::string_view answer,
                           bool loosely) {
  std::vector<std::string> variants{std::string(answer)};
  if (loosely) variants = variants_of(answer);
  std::vector<bool> all;
  for (const Instruction& one : instructions) {
    const auto follows = rules().find(one.id)->second.follows;
    all.push_back(std::ranges::any_of(variants, [&](const std::string& text) {
      return !is_blank(text) && follows({one.arguments, text});
    }));
  }
  return all;
}

}  // namespace piton
