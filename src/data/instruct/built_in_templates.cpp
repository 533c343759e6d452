// The named templates, in the form of parse_slots().
#include <array>

#include "base/error.h"
#include "data/instruct/prompt_template.h"

namespace piton {
namespace {

using Style = PromptTemplate::Style;

// What several templates share; "" is "left open".
struct Row {
  std::string_view name;
  std::string_view user = "";
  std::string_view assistant = "";
  std::string_view system = "";
  std::string_view observation = "";
  std::string_view prefix = "";
  std::string_view separator = "";
  std::string_view function = "";
  std::string_view default_system = "";
  std::string_view stop_word = "";
  std::string_view other_stop_word = "";
  bool efficient_eos = false;
  bool replace_eos = false;
  ToolFormat tools = ToolFormat::kDefault;
  Style style = Style::kPlain;
};

constexpr std::string_view kContent = "{{content}}";
constexpr std::string_view kBos = "{{bos_token}}";
constexpr std::string_view kHelpful = "You are a helpful assistant.";

// ChatML: <|im_start|>ROLE, a line end, the content, <|im_end|>.
constexpr std::string_view kChatMlUser =
    "<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n";
constexpr std::string_view kChatMlSystem = "<|im_start|>system\n{{content}}<|im_end|>\n";
constexpr std::string_view kChatMlTool =
    "<|im_start|>tool\n{{content}}<|im_end|>\n<|im_start|>assistant\n";
constexpr std::string_view kChatMlAnswer = "{{content}}<|im_end|>\n";

constexpr std::string_view kGlmUser =
    "{{token <|user|>}}\n{{next}}{{content}}{{token <|assistant|>}}";
constexpr std::string_view kGlmAnswer = "\n{{next}}{{content}}";
constexpr std::string_view kGlmTool =
    "{{token <|observation|>}}\n{{next}}{{content}}{{token <|assistant|>}}";
constexpr std::string_view kGlmPrefix = "{{token [gMASK]}}{{token sop}}";

constexpr std::string_view kDeepSeekUser = "User: {{content}}\n\nAssistant:";
constexpr std::string_view kDeepSeekSystem = "{{content}}\n\n";

constexpr Row kRows[] = {
    {.name = "empty", .user = kContent, .assistant = kContent},
    {.name = "default",
     .user = "Human: {{content}}\nAssistant:",
     .system = "{{content}}\n",
     .separator = "\n"},
    {.name = "trl", .user = kContent, .assistant = kContent, .prefix = kBos},
    {.name = "alpaca",
     .user = "### Instruction:\n{{content}}\n\n### Response:\n",
     .separator = "\n\n",
     .default_system = "Below is an instruction that describes a task. Write a response that "
                       "appropriately completes the request.\n\n"},
    {.name = "chatml",
     .user = kChatMlUser,
     .system = kChatMlSystem,
     .observation = kChatMlTool,
     .separator = "\n",
     .stop_word = "<|im_end|>",
     .other_stop_word = "<|im_start|>",
     .replace_eos = true},
    {.name = "chatml_de",
     .user = kChatMlUser,
     .system = kChatMlSystem,
     .observation = kChatMlTool,
     .separator = "\n",
     .default_system = "Du bist ein freundlicher und hilfsbereiter KI-Assistent.",
     .stop_word = "<|im_end|>",
     .other_stop_word = "<|im_start|>",
     .replace_eos = true},
    {.name = "qwen",
     .user = kChatMlUser,
     .system = kChatMlSystem,
     .observation = kChatMlTool,
     .separator = "\n",
     .default_system = kHelpful,
     .stop_word = "<|im_end|>",
     .replace_eos = true},
    {.name = "qwen_r1",
     .user = "<|im_start|>user\nA conversation between User and Assistant. The user asks a "
             "question, and the Assistant solves it. The assistant first thinks about the "
             "reasoning process in the mind and then provides the user with the answer. The "
             "reasoning process and answer are enclosed within <think> </think> and <answer> "
             "</answer> tags, respectively, i.e., <think> reasoning process here </think><answer> "
             "answer here </answer>Put your final answer within \\\\boxed{}. "
             "{{content}}<|im_end|>\n<|im_start|>assistant\n",
     .system = kChatMlSystem,
     .observation = kChatMlTool,
     .separator = "\n",
     .default_system = kHelpful,
     .stop_word = "<|im_end|>",
     .replace_eos = true},
    {.name = "qwen_math_r1",
     .user = kChatMlUser,
     .system = kChatMlSystem,
     .observation = kChatMlTool,
     .separator = "\n",
     .default_system = "Please reason step by step, and put your final answer within \\boxed{}.",
     .stop_word = "<|im_end|>",
     .replace_eos = true},
    {.name = "qwen3",
     .user = kChatMlUser,
     .assistant = kChatMlAnswer,
     .system = kChatMlSystem,
     .observation = "<|im_start|>user\n<tool_response>\n{{content}}\n</tool_response><|im_end|>\n"
                    "<|im_start|>assistant\n",
     .function = kChatMlAnswer,
     .stop_word = "<|im_end|>",
     .replace_eos = true,
     .tools = ToolFormat::kQwen,
     .style = Style::kReasoning},
    {.name = "intern2",
     .user = kChatMlUser,
     .assistant = kChatMlAnswer,
     .system = kChatMlSystem,
     .prefix = kBos,
     .stop_word = "<|im_end|>"},
    {.name = "llama2",
     .user = "{{bos_token}}[INST] {{content}} [/INST]",
     .system = "<<SYS>>\n{{content}}\n<</SYS>>\n\n",
     .style = Style::kLlama2},
    {.name = "llama3",
     .user = "<|start_header_id|>user<|end_header_id|>\n\n{{content}}<|eot_id|>"
             "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .system = "<|start_header_id|>system<|end_header_id|>\n\n{{content}}<|eot_id|>",
     .observation = "<|start_header_id|>tool<|end_header_id|>\n\n{{content}}<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .prefix = kBos,
     .stop_word = "<|eot_id|>",
     .replace_eos = true},
    {.name = "mistral", .user = "[INST] {{content}} [/INST]", .prefix = kBos},
    {.name = "mixtral", .user = "[INST] {{content}} [/INST]", .prefix = kBos},
    {.name = "gemma",
     .user = "<start_of_turn>user\n{{content}}<end_of_turn>\n<start_of_turn>model\n",
     .observation = "<start_of_turn>tool\n{{content}}<end_of_turn>\n<start_of_turn>model\n",
     .prefix = kBos,
     .separator = "<end_of_turn>\n",
     .efficient_eos = true},
    {.name = "deepseek2", .user = kDeepSeekUser, .system = kDeepSeekSystem, .prefix = kBos},
    {.name = "deepseek2-lite", .user = kDeepSeekUser, .system = kDeepSeekSystem, .prefix = kBos},
    {.name = "deepseek3", .user = "<｜User｜>{{content}}<｜Assistant｜>", .prefix = kBos},
    {.name = "minicpm3", .user = kDeepSeekUser, .system = kDeepSeekSystem, .prefix = kBos},
    {.name = "cpm", .user = "<用户>{{content}}<AI>", .prefix = kBos},
    {.name = "baichuan2", .user = "<reserved_106>{{content}}<reserved_107>", .efficient_eos = true},
    {.name = "hunyuan", .user = kContent, .assistant = kContent, .default_system = kHelpful},
    {.name = "chatglm2",
     .user = "[Round {{idx}}]\n\n问：{{content}}\n\n答：",
     .prefix = kGlmPrefix,
     .separator = "\n\n",
     .efficient_eos = true},
    {.name = "chatglm3",
     .user = kGlmUser,
     .assistant = kGlmAnswer,
     .system = "{{token <|system|>}}\n{{next}}{{content}}",
     .observation = kGlmTool,
     .prefix = kGlmPrefix,
     .stop_word = "<|user|>",
     .other_stop_word = "<|observation|>",
     .efficient_eos = true,
     .tools = ToolFormat::kGlm4},
    {.name = "chatglm3_system",
     .user = kGlmUser,
     .assistant = kGlmAnswer,
     .system = "{{token [gMASK]}}{{token sop}}{{token <|system|>}}\n{{next}}{{content}}",
     .observation = kGlmTool,
     .function = "{{name}}\n{{arguments}}",
     .default_system = "You are ChatGLM3, a large language model trained by Zhipu.AI. Follow the "
                       "user's instructions carefully. Respond using markdown.",
     .stop_word = "<|user|>",
     .other_stop_word = "<|observation|>",
     .efficient_eos = true},
    {.name = "glm4",
     .user = "<|user|>\n{{content}}<|assistant|>",
     .assistant = "\n{{content}}",
     .system = "<|system|>\n{{content}}",
     .observation = "<|observation|>\n{{content}}<|assistant|>",
     .prefix = "[gMASK]<sop>",
     .function = "{{name}}\n{{arguments}}",
     .stop_word = "<|user|>",
     .other_stop_word = "<|observation|>",
     .efficient_eos = true,
     .tools = ToolFormat::kGlm4},
};

PromptTemplate of_row(const Row& row) {
  PromptTemplate prompt;
  prompt.name = row.name;
  prompt.prefix = parse_slots(row.prefix);
  prompt.system = parse_slots(row.system);
  prompt.user = parse_slots(row.user);
  prompt.assistant = parse_slots(row.assistant);
  prompt.function = parse_slots(row.function);
  prompt.observation = parse_slots(row.observation);
  prompt.separator = parse_slots(row.separator);
  prompt.default_system = row.default_system;
  for (const std::string_view word : {row.stop_word, row.other_stop_word}) {
    if (!word.empty()) prompt.stop_words.emplace_back(word);
  }
  prompt.efficient_eos = row.efficient_eos;
  prompt.replace_eos = row.replace_eos;
  prompt.tools = row.tools;
  prompt.style = row.style;
  complete(prompt);
  return prompt;
}

}  // namespace

const std::vector<PromptTemplate>& built_in_templates() {
  static const std::vector<PromptTemplate> list = [] {
    std::vector<PromptTemplate> templates;
    for (const Row& row : kRows) templates.push_back(of_row(row));
    return templates;
  }();
  return list;
}

}  // namespace piton
