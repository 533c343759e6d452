// piton tokenize: text to ids, and ids to text.
#include <charconv>
#include <iterator>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "base/nesting.h"
#include "cli/command.h"
#include "cli/text/tokenize_chat.h"
#include "data/records/whole_text.h"
#include "model_files/chosen_tokenizer.h"

namespace piton::cli {
namespace {

struct TokenizeOptions {
  bool lines = false;
  bool json_strings = false;
  bool json = false;
  bool decode = false;
  bool pieces = false;
  bool count = false;
  bool add_special_tokens = false;
  bool parse_special_tokens = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"lines", "treat each line as a separate text"}, lines);
    v(Option{"json-strings", "treat each line as a separate text, written as a JSON string"},
      json_strings);
    v(Option{"json",
             "print an object per text: ids, count, pieces with --pieces, text with --decode"},
      json);
    v(Option{"decode", "read ids and print text"}, decode);
    v(Option{"pieces", "print pieces instead of ids"}, pieces);
    v(Option{"count", "print the number of tokens instead of ids"}, count);
    v(Option{"add-special-tokens",
             "add the tokens that the tokenizer puts around a text (<s>, [CLS] ... [SEP]); by "
             "default "
             "none, as preprocess",
             {.negation = "no-add-special-tokens"}},
      add_special_tokens);
    v(Option{"parse-special-tokens", "convert special tokens in the text to their ids"},
      parse_special_tokens);
  }

  void check() const {
    if (decode && (pieces || count || add_special_tokens || parse_special_tokens)) {
      throw Error(
          Fault::kUsage,
          "--decode: works only with --lines, --json-strings and --json; leave the others out");
    }
    if (pieces && count && !json) {
      throw Error(Fault::kUsage,
                  "--pieces and --count: got both, wanted one of them; or add --json");
    }
    if (lines && json_strings) {
      throw Error(Fault::kUsage, "--lines and --json-strings: got both, wanted one of them");
    }
  }
};

void check_chat(const ChatDisplayOptions& chat, const TokenizeOptions& options) {
  if (!chat.chat) {
    const char* flag = nullptr;
    if (!chat.variables.text.empty()) flag = "--chat-template-kwargs";
    if (!chat.chat_template.empty()) flag = "--chat-template";
    if (chat.add_generation_prompt) flag = "--add-generation-prompt";
    if (flag == nullptr) return;
    throw Error(Fault::kUsage, "{}: works only with --chat; add it", flag);
  }
  if (options.lines || options.json_strings || options.decode || options.count ||
      options.add_special_tokens || options.parse_special_tokens) {
    throw Error(Fault::kUsage,
                "--chat: works only with --json and --pieces: the template writes special tokens; "
                "leave the others out");
  }
}

// Refuses ids that the tokenizer does not have: without them the text would be another one.
std::vector<std::int32_t> parse_ids(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at < end && (*at == ' ' || *at == ',' || *at == '\n' || *at == '\r' || *at == '\t'))
      ++at;
    if (at == end) return ids;
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc{}) {
      throw Error(Fault::kData, "--decode: byte {}: wanted ids separated by spaces",
                  at - text.data());
    }
    if (id < 0 || id >= tokenizer.vocabulary_size()) {
      throw Error(Fault::kData, "--decode: byte {}: got id {}, wanted 0 to {}, the tokenizer's ids",
                  at - text.data(), id, tokenizer.vocabulary_size() - 1);
    }
    ids.push_back(id);
    at = stop;
  }
}

// Bytes that are not characters become U+FFFD in JSON.
std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Printer {
 public:
  Printer(const Tokenizer& tokenizer, const TokenizeOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  void print(std::string_view text) {
    line_.clear();
    if (options_.decode) {
      const std::vector<std::int32_t> ids = parse_ids(text, tokenizer_);
      const std::string decoded = tokenizer_.decode(ids);
      line_ = options_.json || options_.json_strings
                  ? json_text(options_.json ? nlohmann::json{{"ids", ids}, {"text", decoded}}
                                            : nlohmann::json(decoded))
                  : decoded;
    } else {
      ids_.clear();
      tokenizer_.encode(text, {options_.add_special_tokens, options_.parse_special_tokens}, ids_);
      format();
    }
    line_.push_back('\n');
    std::fwrite(line_.data(), 1, line_.size(), stdout);
  }

 private:
  void format() {
    if (options_.json) {
      nlohmann::json object;
      object["count"] = ids_.size();
      if (!options_.count) object["ids"] = ids_;
      if (options_.pieces) {
        object["pieces"] = nlohmann::json::array();
        for (const std::int32_t id : ids_) object["pieces"].push_back(tokenizer_.piece(id));
      }
      line_ = json_text(object);
    } else if (options_.count) {
      line_ = std::to_string(ids_.size());
    } else {
      for (const std::int32_t id : ids_) {
        if (!line_.empty()) line_.push_back(' ');
        if (options_.pieces) {
          line_ += tokenizer_.piece(id);
        } else {
          fmt::format_to(std::back_inserter(line_), "{}", id);
        }
      }
    }
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  std::vector<std::int32_t> ids_;
  std::string line_;
};

std::string string_of(std::string_view line, std::int64_t number) {
  check_json_depth(line, fmt::format("--json-strings: line {}", number));
  try {
    return read_json<nlohmann::json>(line).get<std::string>();
  } catch (const nlohmann::json::exception&) {
    throw Error(Fault::kData, "--json-strings: line {} is not a JSON string", number);
  }
}

}  // namespace

int run_tokenize(Invocation& invocation) {
  GeneralOptions general;
  TokenizeOptions options;
  ChatDisplayOptions chat;
  TokenizerOptions tokenizer_options;
  OptionSet set;
  set.add("Tokenize", options);
  set.add("Conversations", chat);
  set.add("Tokenizer", tokenizer_options);
  const std::vector<std::string> arguments = invocation.parse(set, general);
  refuse_more_arguments(arguments, 1);
  options.check();
  check_chat(chat, options);
  const ChosenTokenizer chosen = chosen_tokenizer(tokenizer_options);
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(chosen);
  const std::string input = read_whole_text(arguments.empty() ? "-" : arguments[0]);
  if (chat.chat) {
    print_chats({*tokenizer, chat, chosen.chat_templates, arguments.empty() ? "-" : arguments[0],
                 options.json, options.pieces},
                input);
    return 0;
  }
  Printer printer(*tokenizer, options);
  if (!options.lines && !options.json_strings) {
    printer.print(input);
    return 0;
  }
  std::int64_t number = 0;
  for (std::string_view rest = input; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ++number;
    if (options.json_strings && !options.decode) {
      printer.print(string_of(line, number));
    } else {
      printer.print(line);
    }
  }
  return 0;
}

}  // namespace piton::cli
