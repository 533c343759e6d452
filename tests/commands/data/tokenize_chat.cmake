# Conversations to texts, ids and masks by chat templates.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/expect.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/model/chat_templates)
file(COPY ${SOURCE}/tests/golden/chat/bpe/tokenizer.json DESTINATION ${WORK}/model)
file(WRITE ${WORK}/model/tokenizer_config.json "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}")
set(folder --tokenizer-name-or-path ${WORK}/model)
file(WRITE ${WORK}/chats.jsonl "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a0\"}]}
{\"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": \"q\"}], \"tools\": [{\"name\": \"f\"}]}\n")

expect(RUN tokenize --chat ${WORK}/chats.jsonl ${folder} CODE 3 ERR "model: no chat template: wanted a default template")
set(loop "{% for m in messages %}[{{ m.role }}]")
file(WRITE ${WORK}/model/chat_template.jinja "{{ bos_token }}${loop}{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}")
file(WRITE ${WORK}/model/chat_templates/tool_use.jinja "{{ tools | tojson }}")
# The template's own <s> is one id, and no other is added.
expect(RUN tokenize --chat ${WORK}/chats.jsonl ${folder} --pieces CODE 0
  OUT "^conversation 1: [0-9]+ tokens, [23] of the assistant\ntext:\n<s>.user.q</s>.assistant.a0</s>\npieces: <s> .*\nmask: 0 [0 ]*1 1( 1)?\nconversation 2: .*\n.{\"type\": \"function\", \"function\": {\"name\": \"f\"}}.\n")
expect(RUN tokenize --chat ${WORK}/chats.jsonl ${folder} --json CODE 0
  OUT "^{\"count\":[0-9]+,\"text\":\"<s>.user.q</s>.assistant.a0</s>\",\"ids\":.1,.*\"mask\":.0,.*,1.}\n")
expect(RUN tokenize --chat ${WORK}/chats.jsonl ${folder} --chat-template default --add-generation-prompt CODE 0
  OUT "a0</s>.assistant.\nids: .*mask: none: .*\n<s>.system.s</s>.user.q</s>.assistant.\n")
file(WRITE ${WORK}/blocks.jinja "${loop}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}")
expect(RUN tokenize --chat ${WORK}/chats.jsonl --tokenizer-type ByteTokenizer --chat-template ${WORK}/blocks.jinja CODE 0
  OUT "text:\n.user.q.assistant.a0\nids: 91 .*\nmask: 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 1 1\n")

# As requests of a server have it: a conversation with its own prompt for the next answer, and variables of the template.
file(WRITE ${WORK}/request.jsonl "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"add_generation_prompt\": true, \"chat_template_kwargs\": {\"name\": \"b\"}}
{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"add_generation_prompt\": false}\n")
file(WRITE ${WORK}/request.jinja "{{ name }}|{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{% if add_generation_prompt %}>{% endif %}")
expect(RUN tokenize --chat ${WORK}/request.jsonl --json --tokenizer-type ByteTokenizer --chat-template ${WORK}/request.jinja --add-generation-prompt CODE 0
  OUT "\"text\":\"b.q>\",.*\"mask\":.0,0,1,0.}\n.*\"text\":\".q\",.*\"mask\":.0,1.}\n")
file(WRITE ${WORK}/request.jsonl "{\"messages\": [], \"add_generation_prompt\": 1}\n")
expect(RUN tokenize --chat ${WORK}/request.jsonl --tokenizer-type ByteTokenizer --chat-template ${WORK}/request.jinja CODE 3
  ERR "request.jsonl: conversation 1: \"add_generation_prompt\": got number, wanted true or false")

# Every fault is one line that says what to do.
expect(RUN tokenize --chat ${WORK}/chats.jsonl ${folder} --chat-template x CODE 2
  ERR "--chat-template: got x, wanted a file in Jinja, or one of default, tool_use,.* qwen3,")
expect(RUN tokenize --chat ${WORK}/chats.jsonl --tokenizer-type ByteTokenizer CODE 2
  ERR "the tokenizer has no folder with a chat template; give --chat-template")
expect(RUN tokenize --chat ${WORK}/chats.jsonl ${folder} --lines CODE 2 ERR "--chat: works only with --json and --pieces")
expect(RUN tokenize ${WORK}/chats.jsonl ${folder} --add-generation-prompt CODE 2 ERR "works only with --chat; add it")
file(WRITE ${WORK}/strict.jinja "a\n{{ raise_exception('no ' ~ messages[0].role) }}")
expect(RUN tokenize --chat ${WORK}/chats.jsonl ${folder} --chat-template ${WORK}/strict.jinja CODE 3
  ERR "strict.jinja: line 2: the template refuses the conversation: no user")
file(WRITE ${WORK}/strict.jinja "\n{% if %}")
expect(RUN tokenize --chat ${WORK}/chats.jsonl ${folder} --chat-template ${WORK}/strict.jinja CODE 3 ERR "strict.jinja: line 2: got \"%}\", wanted an expression")
file(WRITE ${WORK}/bad.jsonl "{\"text\": 1}\n")
expect(RUN tokenize --chat ${WORK}/bad.jsonl ${folder} CODE 3 ERR "bad.jsonl: conversation 1: got an object without messages")

# Variables of the template: those that are given for all, and those of a conversation, which win.
file(WRITE ${WORK}/thinks.jinja "{{ enable_thinking }}/{{ effort }}")
file(WRITE ${WORK}/own.jsonl "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}
{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"effort\": \"low\"}\n")
set(thinks tokenize --chat ${WORK}/own.jsonl --tokenizer-type ByteTokenizer --chat-template ${WORK}/thinks.jinja --chat-template-kwargs)
expect(RUN ${thinks} "{\"enable_thinking\": false, \"effort\": 3}" CODE 0 OUT "text:\nFalse/3\n.*text:\nFalse/low\n")
expect(RUN ${thinks} "{\"thinking\": false}" CODE 2 ERR "--chat-template-kwargs: .*thinks.jinja does not read \"thinking\"")
expect(RUN ${thinks} "{" CODE 2 ERR "--chat-template-kwargs: got {, wanted a JSON object")
expect(RUN tokenize ${WORK}/own.jsonl --tokenizer-type ByteTokenizer --chat-template-kwargs "{}" CODE 2 ERR "--chat-template-kwargs: works only with --chat")
