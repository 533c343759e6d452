#include "tasks/needlebench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/listed.h"
#include "base/options/option_range.h"
#include "tasks/answers/python_text.h"
#include "tasks/python_random.h"
#include "tasks/task_files.h"
#include "tasks/task_records.h"
#include "text/files/tokenizer_options.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

struct Language {
  std::string_view name;      // of --needle-languages
  std::string_view in_files;  // of needles.jsonl
  std::string_view haystack;  // file
  std::string_view before;    // of the prompt: the document follows,
  std::string_view asks;      // and the question after this
  std::string_view format;    // begins the part of a question that says how to answer
  std::string_view hint;      // is put before that part
};

constexpr std::array<Language, 2> kLanguages = {
    {{"en", "English", "PaulGrahamEssays",
      "You are an intelligent AI assistant skilled in answering user questions.\n"
      "Please keep your answers concise and clear. Do not talk about irrelevant topics or repeat "
      "your answers.\nThe document given to you by the user is ",
      "\n\nNow, the question is: ", "Please answer in the format",
      "Before answering, please consider what in the document is most relevant to this question. "},
     {"zh", "Chinese", "zh_finance",
      "你是一个善于回答用户问题的智能AI助手\n请保持你的回答简洁清楚。不要说和下面文档中的无关的话"
      "，或重复你的回答\n用户现在给你的文档是",
      "\n\n现在请问：", "请按照", "在回答之前，请思考文档中与此问题最相关的内容是什么。"}}};

// Tokens of a prompt that are no haystack and no needle.
constexpr std::int64_t kEnglishBuffer = 600;
constexpr std::int64_t kChineseBuffer = 200;

// What a model of so many tokens is asked.
struct LengthClass {
  std::int64_t thousands = 0;  // of 1024 tokens
  std::vector<std::int64_t> lengths;
  bool many_depths = false;
  std::int64_t english_buffer = kEnglishBuffer;
};

const std::vector<LengthClass>& length_classes() {
  static const std::vector<LengthClass> classes = {
      {4, {1000, 2000, 3000, 4000}, true},
      {8, {5000, 6000, 7000, 8000}, true},
      {32, {9000, 13000, 17000, 21000, 25000, 29000, 31000, 32000}, false, 3000},
      {128, {16000, 32000, 48000, 64000, 80000, 96000, 112000, 128000}},
      {200, {16000, 48000, 80000, 112000, 128000, 144000, 176000, 200000}},
      {256, {32000, 128000, 256000}},
      {512, {32000, 128000, 256000, 512000}},
      {1000, {20000, 160000, 300000, 440000, 580000, 720000, 860000, 1000000}}};
  return classes;
}

std::vector<double> depths_of(bool many) {
  if (!many) return {0, 10, 21, 31, 42, 52, 63, 73, 84, 94, 100};
  constexpr int kDepths = 20;
  std::vector<double> depths;
  for (int i = 0; i < kDepths; ++i) depths.push_back(100.0 / (kDepths - 1) * i);
  return depths;
}

// Lengths, depths and buffers of all haystacks.
struct NeedleLayout {
  std::vector<std::int64_t> lengths;
  std::vector<double> depths;
  std::int64_t english_buffer = kEnglishBuffer;
  std::int64_t chinese_buffer = kChineseBuffer;
};

NeedleLayout layout_of(const NeedleOptions& options, std::int64_t longest) {
  NeedleLayout layout{.lengths = options.lengths, .depths = options.depths};
  // MindSpeed-LLM calls 1000 x 1024 tokens a million, its documents 1024 x 1024.
  const std::int64_t thousands = longest == 1024 * 1024 ? 1000 : longest / 1024;
  const auto known = std::ranges::find(length_classes(), thousands, &LengthClass::thousands);
  const bool is_known = known != length_classes().end();
  if (layout.lengths.empty()) {
    if (!is_known) {
      std::vector<std::string> sizes;
      for (const LengthClass& one : length_classes())
        sizes.push_back(std::to_string(one.thousands * 1024));
      throw Error(
          Fault::kUsage,
          "--needle-lengths: not given, and needlebench has lengths for models that read {} "
          "tokens; this one reads {}; give the lengths, or --seq-length",
          listed(sizes, sizes.size()), longest);
    }
    layout.lengths = known->lengths;
    layout.english_buffer = known->english_buffer;
  }
  if (layout.depths.empty()) layout.depths = depths_of(!is_known || known->many_depths);
  if (options.buffer) layout.english_buffer = layout.chinese_buffer = *options.buffer;
  return layout;
}

std::string text_of(const Json& record, const char* field, const std::string& where) {
  const Json* value = find_field(record, field);
  if (value == nullptr || !value->is_string())
    throw Error(Fault::kData, "{}: wanted a text in the field \"{}\"", where, field);
  return value->get<std::string>();
}

std::vector<Json> records_of(const fs::path& file) {
  if (!fs::is_regular_file(file)) {
    throw Error(Fault::kUsage,
                "{}: {} is not in it; wanted needles.jsonl, and PaulGrahamEssays.jsonl and "
                "zh_finance.jsonl, or one language by --needle-languages",
                file.parent_path().string(), file.filename().string());
  }
  return read_task_records(file, {});
}

// The question with the hint before the words that say how to answer.
std::string hinted(const std::string& question, const Language& language,
                   const std::string& where) {
  const std::size_t at = question.find(language.format);
  if (at == question.npos) {
    throw Error(Fault::kData, "{}: retrieval_question has no \"{}\"; got \"{}\"", where,
                language.format, question);
  }
  const std::size_t begin = at + language.format.size();
  const std::string rest = question.substr(begin, question.find(language.format, begin) - begin);
  return fmt::format("{}{}{}{}", question.substr(0, at), language.hint, language.format, rest);
}

Haystack read_haystack(const fs::path& folder, const Language& language) {
  Haystack haystack{.name = std::string(language.haystack), .chinese = language.name == "zh"};
  const auto read = [&](const std::string& name, const auto& use) {
    const fs::path file = folder / (name + ".jsonl");
    std::int64_t index = 0;
    for (const Json& record : records_of(file))
      use(record, fmt::format("{}: record {}", file.string(), ++index));
  };
  read("needles", [&](const Json& record, const std::string& where) {
    if (text_of(record, "language", where) != language.in_files) return;
    haystack.needles.push_back(
        {.text = text_of(record, "needle", where),
         .question = hinted(text_of(record, "retrieval_question", where), language, where),
         .keyword = text_of(record, "arg2", where)});
  });
  if (haystack.needles.empty()) {
    throw Error(Fault::kData, "{}: has no needle in {}; wanted one, or another --needle-languages",
                (folder / "needles.jsonl").string(), language.in_files);
  }
  read(haystack.name, [&](const Json& record, const std::string& where) {
    haystack.texts.push_back(text_of(record, "text", where));
  });
  if (haystack.texts.empty())
    throw Error(Fault::kData, "{}: has no text", (folder / language.haystack).string() + ".jsonl");
  return haystack;
}

void check(const NeedleOptions& options) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  for (const std::int64_t length : options.lengths)
    check_range("--needle-lengths", length, 1, kMost);
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 100))
      throw Error(Fault::kUsage, "--needle-depths: got {}, wanted 0 to 100 (percent)", depth);
  }
  check_range("--needle-repeats", options.repeats, 1, kMost);
  if (options.buffer) check_range("--needle-buffer", *options.buffer, 0, kMost);
  for (const std::string& name : options.languages) {
    if (std::ranges::find(kLanguages, name, &Language::name) == kLanguages.end())
      throw Error(Fault::kUsage, "--needle-languages: got \"{}\", wanted en or zh", name);
  }
}

// A text for each repetition: texts in a drawn order, and a drawn needle.
struct Draw {
  std::vector<std::int64_t> order;
  const Needle* needle = nullptr;
};

std::vector<Draw> draws_of(const Haystack& haystack, std::int64_t count) {
  std::vector<std::int64_t> order(haystack.texts.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::vector<Draw> draws;
  for (std::int64_t i = 0; i < count; ++i) {
    PythonRandom(static_cast<std::uint32_t>(i)).shuffle(order);
    const auto chosen =
        PythonRandom(static_cast<std::uint32_t>(i)).below(std::ssize(haystack.needles));
    draws.push_back({order, &haystack.needles[static_cast<std::size_t>(chosen)]});
  }
  return draws;
}

class NeedleSamples {
 public:
  NeedleSamples(const Haystack& haystack, const NeedleLayout& layout, const Tokenizer& tokenizer)
      : haystack_(haystack),
        layout_(layout),
        tokenizer_(tokenizer),
        encoded_(haystack.texts.size()) {}

  void add(const std::vector<Draw>& draws, std::vector<TaskSample>& samples) {
    for (const std::int64_t length : layout_.lengths) {
      std::vector<Ids> hay;
      for (const Draw& draw : draws) hay.push_back(hay_of(draw, length));
      for (const double depth : layout_.depths) {
        for (std::size_t i = 0; i < draws.size(); ++i) {
          TaskSample sample = sample_of(*draws[i].needle, with_needle(hay[i], draws[i], depth));
          sample.subject = fmt::format("{}_{}_{:.4g}", haystack_.name, length, depth);
          sample.index = static_cast<std::int64_t>(i);
          samples.push_back(std::move(sample));
        }
      }
    }
  }

 private:
  static std::string line_of(const Needle& needle) { return "\n" + needle.text + "\n"; }

  const Ids& encoded(std::int64_t text) {
    const auto at = static_cast<std::size_t>(text);
    if (encoded_[at].empty()) encoded_[at] = tokenizer_.encode(haystack_.texts[at]);
    return encoded_[at];
  }

  // As many tokens as a prompt of `length` has room for.
  Ids hay_of(const Draw& draw, std::int64_t length) {
    const std::int64_t buffer = haystack_.chinese ? layout_.chinese_buffer : layout_.english_buffer;
    const std::int64_t room =
        length - buffer - std::ssize(tokenizer_.encode(line_of(*draw.needle)));
    const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(room, 0));
    Ids ids;
    for (const std::int64_t text : draw.order) {
      const Ids& more = encoded(text);
      ids.insert(ids.end(), more.begin(), more.end());
      if (ids.size() >= wanted) break;
    }
    ids.resize(std::min(ids.size(), wanted));
    return ids;
  }

  std::string with_needle(const Ids& hay, const Draw& draw, double depth) const {
    const Ids needle = tokenizer_.encode(line_of(*draw.needle));
    Ids ids = hay;
    const auto at = static_cast<std::ptrdiff_t>(static_cast<double>(hay.size()) * (depth / 100));
    ids.insert(ids.begin() + at, needle.begin(), needle.end());
    return replace_bad_utf8(tokenizer_.decode(ids));
  }

  TaskSample sample_of(const Needle& needle, const std::string& document) const {
    const Language& language = kLanguages[haystack_.chinese ? 1 : 0];
    TaskSample sample;
    sample.contexts = {
        fmt::format("{}{}{}{}", language.before, document, language.asks, needle.question)};
    sample.asked = sample.contexts;
    sample.answer = line_of(needle);
    sample.keyword = needle.keyword;
    return sample;
  }

  const Haystack& haystack_;
  const NeedleLayout& layout_;
  const Tokenizer& tokenizer_;
  std::vector<Ids> encoded_;  // of each text; empty: not yet
};

std::u32string without_space(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!is_python_space(c.value)) out += c.value;
    at += c.length;
  }
  return out;
}

// The answer up to 1.2 times the length of the reference, or up to the first place after 0.8 times
// that length that has the last character of the reference.
std::u32string trimmed(const std::u32string& answer, const std::u32string& reference) {
  const auto size = static_cast<double>(reference.size());
  const auto least = static_cast<std::size_t>(0.8 * size);
  const auto most = static_cast<std::size_t>(1.2 * size);
  std::u32string cut = answer.substr(0, most);
  if (cut.size() <= least) return cut;
  const std::size_t end = cut.find(reference.back(), least);
  return end == cut.npos ? cut : cut.substr(0, end + 1);
}

std::size_t levenshtein_distance(const std::u32string& a, const std::u32string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t corner = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = corner + (a[i] == b[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

TaskData load_needlebench(const Task& task, const TaskDataOptions& options) {
  check(options.needles);
  if (options.num_shots.value_or(0) > 0)
    throw Error(Fault::kUsage, "--num-shots: got {}, and {} has no examples; leave it out",
                *options.num_shots, task.name);
  const fs::path folder = task_data_path(task.name, options.paths, options.flags);
  if (!fs::is_directory(folder))
    throw Error(Fault::kUsage, "{}: {} is a file, wanted the folder of needlebench",
                options.flags.paths, folder.string());
  auto files = std::make_shared<NeedleFiles>();
  files->options = options.needles;
  files->max_samples = options.max_samples;
  if (options.sample_share)
    files->max_samples = std::llround(
        std::ceil(static_cast<double>(options.needles.repeats) * *options.sample_share));
  for (const Language& language : kLanguages) {
    if (std::ranges::count(options.needles.languages, language.name) > 0)
      files->haystacks.push_back(read_haystack(folder, language));
  }
  const fs::path ranks = folder / "cl100k_base.tiktoken";
  if (fs::is_regular_file(ranks)) {
    TokenizerOptions tokenizer;
    tokenizer.type = "TikTokenizer";
    tokenizer.vocab_file = ranks.string();
    files->tokenizer = open_tokenizer(tokenizer);
  }
  TaskData data{.task = task};
  data.needles = std::move(files);
  return data;
}

void make_needle_samples(TaskData& data, const Tokenizer& model_tokenizer, std::int64_t longest) {
  const NeedleFiles& files = *data.needles;
  const NeedleLayout layout = layout_of(files.options, longest);
  const bool has_own = files.tokenizer != nullptr;
  data.task.variant =
      fmt::format("texts cut by {}", has_own ? "cl100k_base" : "the model's tokenizer");
  const std::int64_t repeats =
      std::min(files.options.repeats, files.max_samples.value_or(files.options.repeats));
  data.samples.clear();
  for (const Haystack& haystack : files.haystacks) {
    NeedleSamples(haystack, layout, has_own ? *files.tokenizer : model_tokenizer)
        .add(draws_of(haystack, repeats), data.samples);
  }
  data.prompt_hash = hash_of_prompts(data.samples);
}

double needle_score(std::string_view answer, std::string_view needle, std::string_view keyword) {
  if (answer.find(keyword) != answer.npos) return 1;
  const std::u32string reference = without_space(needle);
  if (reference.empty()) return 0;
  const std::u32string text = trimmed(without_space(answer), reference);
  const auto longer = static_cast<double>(std::max(text.size(), reference.size()));
  constexpr double kShareOfLikeness = 0.2;
  return kShareOfLikeness *
         (1 - static_cast<double>(levenshtein_distance(text, reference)) / longer);
}

}  // namespace piton
