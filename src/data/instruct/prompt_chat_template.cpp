#include "data/instruct/prompt_chat_template.h"

#include <optional>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

// Placeholders of a slot, with the expressions that replace them.
using Expressions = std::vector<std::pair<std::string_view, std::string>>;

std::string literal(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
    } else {
      if (c == '\'' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "'";
}

class TemplateText {
 public:
  TemplateText(const PromptTemplate& prompt, const Tokenizer& tokenizer)
      : bos_(name_of(tokenizer, tokenizer.special().bos)) {
    const SpecialIds& special = tokenizer.special();
    eos_ = prompt.replace_eos && !prompt.stop_words.empty()
               ? prompt.stop_words[0]
               : name_of(tokenizer, special.eos ? special.eos : special.eod);
  }

  // The slots as one expression; "": they are empty.
  std::string expression(const Slots& slots, const Expressions& values) const {
    std::string sum;
    const auto add = [&](const std::string& term) { sum += (sum.empty() ? "" : " + ") + term; };
    for (const Slot& slot : slots) {
      switch (slot.kind) {
        case Slot::Kind::kText:
          add_text(slot.text, values, add);
          break;
        case Slot::Kind::kToken:
          add(literal(slot.text));
          break;
        case Slot::Kind::kBos:
          if (!bos_.empty()) add(literal(bos_));
          break;
        case Slot::Kind::kEos:
          add(literal(eos_));
          break;
      }
    }
    return sum;
  }

 private:
  static std::string name_of(const Tokenizer& tokenizer, std::optional<std::int32_t> id) {
    return id ? tokenizer.piece(*id) : "";
  }

  template <typename Add>
  static void add_text(std::string_view text, const Expressions& values, const Add& add) {
    while (!text.empty()) {
      std::size_t at = text.size();
      std::size_t after = at;
      std::string value;
      for (const auto& [name, expression] : values) {
        const std::string mark = fmt::format("{{{{{}}}}}", name);
        const std::size_t place = text.find(mark);
        if (place >= at) continue;
        at = place;
        after = place + mark.size();
        value = expression;
      }
      if (at > 0) add(literal(text.substr(0, at)));
      if (!value.empty()) add(value);
      text.remove_prefix(after);
    }
  }

  std::string bos_;
  std::string eos_;
};

std::string print(const std::string& expression) {
  return expression.empty() ? "" : "{{ " + expression + " }}";
}

}  // namespace

std::string chat_template_of(const PromptTemplate& prompt, const Tokenizer& tokenizer,
                             Thinking thinking) {
  const TemplateText text(prompt, tokenizer);
  const bool in_user = prompt.style == PromptTemplate::Style::kLlama2;
  const bool reasoning = prompt.style == PromptTemplate::Style::kReasoning;
  const bool no_thoughts = reasoning && thinking == Thinking::kRemoved;
  const std::string empty_thought = print(literal("<think>\n\n</think>\n\n"));
  const Expressions content = {{"content", "content"}, {"idx", "(loop.index0 // 2) | string"}};
  const std::string system = text.expression(prompt.system, {{"content", "system"}});
  std::string jinja =
      "{% if tools %}{{ raise_exception('this template cannot write tools') }}{% endif %}"
      "{% if messages[0]['role'] == 'system' %}"
      "{% set system = messages[0]['content'] %}{% set turns = messages[1:] %}"
      "{% else %}"
      "{% set system = " +
      literal(prompt.default_system) +
      " %}{% set turns = messages %}"
      "{% endif %}";
  jinja += print(text.expression(prompt.prefix, {}));
  if (!in_user && !system.empty()) jinja += "{% if system %}" + print(system) + "{% endif %}";
  jinja +=
      "{% for message in turns %}"
      "{% set content = message['content'] %}"
      "{% if message['role'] == 'assistant' %}"
      "{% if message['tool_calls'] %}"
      "{{ raise_exception('this template cannot write tool calls') }}"
      "{% endif %}";
  if (no_thoughts) {
    jinja +=
        "{% if '</think>' in content %}"
        "{% set content = content.split('</think>')[-1].lstrip('\\n') %}"
        "{% endif %}";
  }
  if (reasoning && thinking == Thinking::kAsGiven) {
    jinja += "{% if '<think>' not in content and '</think>' not in content %}" + empty_thought +
             "{% endif %}";
  }
  // A generation block tells which text the assistant writes. Where the next turn ends an answer,
  // the last one has its own end.
  jinja += "{% generation %}" + print(text.expression(prompt.assistant, content));
  if (prompt.efficient_eos) {
    jinja +=
        "{% if loop.last %}" + print(text.expression({{Slot::Kind::kEos, ""}}, {})) + "{% endif %}";
  }
  jinja += "{% endgeneration %}{% else %}";
  if (!prompt.separator.empty()) {
    jinja +=
        "{% if not loop.first %}" + print(text.expression(prompt.separator, {})) + "{% endif %}";
  }
  jinja += "{% if message['role'] == 'user' %}";
  if (in_user && !system.empty()) {
    jinja +=
        "{% if loop.first and system %}{% set content = " + system + " + content %}{% endif %}";
  }
  jinja += print(text.expression(prompt.user, content)) + "{% elif message['role'] == 'tool' %}" +
           print(text.expression(prompt.observation, {{"content", "content"}})) +
           "{% else %}"
           "{{ raise_exception('this template has no role ' + message['role']) }}"
           "{% endif %}";
  if (no_thoughts) jinja += empty_thought;
  return jinja + "{% endif %}{% endfor %}";
}

}  // namespace piton
