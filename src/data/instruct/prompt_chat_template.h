// A named template of prompts as a chat template: with it a model answers in the form that its
// instruction data had (--prompt-type).
#pragma once

#include <string>

#include "data/instruct/prompt_template.h"
#include "data/instruct/thinking.h"
#include "text/tokenizer.h"

namespace piton {

// Jinja that renders conversations as NamedPrompt encodes them, special tokens by the names that
// `tokenizer` has for them. `thinking`: of the data. It refuses tool calls and
// roles that the template has no form for. Ids can differ from NamedPrompt's: that encodes each
// element separately, and a rendered text is encoded as a whole.
std::string chat_template_of(const PromptTemplate& prompt, const Tokenizer& tokenizer,
                             Thinking thinking);

}  // namespace piton
