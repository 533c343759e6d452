#!/usr/bin/env python3
"""Compares `piton serve` with the clients that people use: openai, anthropic and jsonschema (PyPI).

    serve.py PITON MODEL [--schemas N] [--seed S]

MODEL is any folder that `piton serve --load` takes; a run of a few steps is enough. Checks that the
official clients read every kind of answer, streaming and not; that a stream joins to the answer
that is not one; that the three interfaces for conversations write the same text; that errors are the client's classes; that answers under N random JSON schemas and
regular expressions are accepted by jsonschema and by Python's re. Prints one line a check, exits
with 1 at the first difference.
"""

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading

import anthropic
import jsonschema
import openai

TEMPLATE = (
    "{% if tools %}{{ tools | length }} tools\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    "{% if think %}<think>{% endif %}"
)
KEY = "secret"


def check(right, what):
    if not right:
        sys.exit(f"serve.py: {what}")


class Server:
    def __init__(self, piton, model):
        self.folder = tempfile.TemporaryDirectory()
        template = self.folder.name + "/chat.jinja"
        key = self.folder.name + "/key"
        with open(template, "w") as file:
            file.write(TEMPLATE)
        with open(key, "w") as file:
            file.write(KEY + "\n")
        self.process = subprocess.Popen(
            [piton, "serve", "--load", model, "--port", "0", "--chat-template", template,
             "--api-key-file", key, "--served-model-name", "m", "--threads", "1"],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        check(found, f"the server does not listen: {line!r}")
        self.url = found.group()

    def client(self, key=KEY):
        return openai.OpenAI(base_url=self.url + "v1", api_key=key, max_retries=0, timeout=120)

    def messages_client(self, key=KEY):
        # The answers are checked, not only read.
        return anthropic.Anthropic(base_url=self.url, api_key=key, max_retries=0, timeout=120,
                                   _strict_response_validation=True)

    def strict_client(self):
        return openai.OpenAI(base_url=self.url + "v1", api_key=KEY, max_retries=0, timeout=120,
                             _strict_response_validation=True)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(60) == 0, "exit code after SIGTERM")


def check_answers(client):
    check([m.id for m in client.models.list()] == ["m"], "models")
    check(client.models.retrieve("m").id == "m", "model")
    ask = {"model": "m", "prompt": "To be", "max_tokens": 20, "seed": 5, "logprobs": 2}
    for extra in ({}, {"temperature": 0}, {"n": 3}, {"stop": ["e", "o"]}, {"echo": True}):
        whole = client.completions.create(**ask, **extra)
        texts = [""] * len(whole.choices)
        tokens = [[] for _ in texts]
        reasons = [None] * len(texts)
        usage = None
        for part in client.completions.create(**ask, **extra, stream=True,
                                              stream_options={"include_usage": True}):
            usage = part.usage or usage
            for choice in part.choices:
                texts[choice.index] += choice.text
                if choice.logprobs:
                    tokens[choice.index] += choice.logprobs.tokens
                reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        for choice in whole.choices:
            check(texts[choice.index] == choice.text, f"{extra}: stream and answer differ")
            check(tokens[choice.index] == choice.logprobs.tokens, f"{extra}: tokens of the stream")
            check(len(choice.logprobs.token_logprobs) == len(choice.logprobs.tokens), "logprobs")
            check(reasons[choice.index] == choice.finish_reason, f"{extra}: reasons differ")
        check(usage.completion_tokens == whole.usage.completion_tokens, f"{extra}: usage")
    same = client.completions.create(**ask).choices[0].text
    check(same == client.completions.create(**ask).choices[0].text, "the same seed, another text")
    print("completions: answers and streams agree")

    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    ask = {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
           "max_completion_tokens": 20, "seed": 5, "logprobs": True, "top_logprobs": 3}
    for extra in ({}, {"n": 2}, {"stop": "e"}, {"tools": [tool]}, {"tools": [tool], "tool_choice": "none"},
                  {"response_format": {"type": "json_object"}, "max_completion_tokens": 60}):
        arguments = {**ask, **extra}
        whole = client.chat.completions.create(**arguments)
        texts = [""] * len(whole.choices)
        for part in client.chat.completions.create(**arguments, stream=True):
            for choice in part.choices:
                texts[choice.index] += choice.delta.content or ""
        for choice in whole.choices:
            check(texts[choice.index] == choice.message.content, f"{extra}: stream and answer differ")
            check(len(choice.logprobs.content[0].top_logprobs) == 3, "top_logprobs")
    print("chat completions: answers and streams agree")


def check_offsets(client):
    """Each token is where text_offset says, in the text of the answer; special tokens are nowhere."""
    for prompt in ("Once upon", "naïve café 你好", "x"):
        for echo in (False, True):
            choice = client.completions.create(model="m", prompt=prompt, max_tokens=25, logprobs=1, echo=echo,
                                               seed=3, temperature=1.5).choices[0]
            text, tokens, offsets = choice.text, choice.logprobs.tokens, choice.logprobs.text_offset
            check(offsets == sorted(offsets) and offsets[-1] <= len(text), f"offsets {offsets} of {text!r}")
            for token, begin, end in zip(tokens, offsets, offsets[1:] + [len(text)]):
                part = text[begin:end]
                whole = "\ufffd" not in token and part
                check(not whole or part in (token, token.lstrip()), f"{token!r} at {begin} of {text!r}")
    print("text_offset: tokens are where it says")


def check_tools(client):
    """Answers that must be calls, of models that know nothing about tools."""
    parameters = {"type": "object", "required": ["a", "b"], "additionalProperties": False,
                  "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}}}
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("f", "look_up")]
    ask = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": tools, "max_completion_tokens": 150}
    for seed in range(10):
        for choice in ("required", {"type": "function", "function": {"name": "look_up"}}):
            arguments = {**ask, "tool_choice": choice, "seed": seed}
            whole = client.chat.completions.create(**arguments).choices[0]
            check(whole.finish_reason == "tool_calls", f"{choice}: finish reason {whole.finish_reason}")
            check(whole.message.content is None, f"{choice}: content {whole.message.content!r}")
            call = whole.message.tool_calls[0].function
            check(call.name in (("f", "look_up") if choice == "required" else ("look_up",)), f"name {call.name}")
            jsonschema.validate(json.loads(call.arguments), parameters)
            calls = []
            for part in client.chat.completions.create(**arguments, stream=True):
                check(not part.choices[0].delta.content, "text next to a call")
                calls += part.choices[0].delta.tool_calls or []
            check([(c.function.name, c.function.arguments) for c in calls] == [(call.name, call.arguments)],
                  "calls of the stream differ")
    print("tools: answers are calls that their schemas accept")


def check_embeddings(client):
    texts = ["To be", "or not", "To be"]
    coded = client.embeddings.create(model="m", input=texts)  # the client asks for base64
    plain = client.embeddings.create(model="m", input=texts, encoding_format="float")
    for a, b in zip(coded.data, plain.data):
        check(len(a.embedding) == len(b.embedding), "lengths of vectors")
        check(all(abs(x - y) < 1e-6 for x, y in zip(a.embedding, b.embedding)), "base64 and float differ")
        check(abs(sum(x * x for x in a.embedding) - 1) < 1e-4, "a vector is not of length 1")
    check(plain.data[0].embedding == plain.data[2].embedding, "one text, two vectors")
    check(plain.data[0].embedding != plain.data[1].embedding, "two texts, one vector")
    print("embeddings: float and base64 agree")


PARAMETERS = {"type": "object", "required": ["a"], "additionalProperties": False,
              "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}}
THINKS = {"chat_template_kwargs": {"think": True}}


def without_ids(value):
    """An answer without what differs between two answers."""
    if isinstance(value, list):
        return [without_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {k: without_ids(v) for k, v in value.items() if k not in ("id", "call_id", "created_at", "stop_details")}


def check_responses(client):
    tools = [{"type": "function", "name": name, "parameters": PARAMETERS, "strict": True} for name in ("f", "g")]
    schema = {"type": "json_schema", "name": "n", "schema": PARAMETERS, "strict": True}
    ask = {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "q"}]}],
           "instructions": "s", "max_output_tokens": 30, "extra_body": {"seed": 5}}
    named = {"type": "function", "name": "g"}
    for extra in ({}, {"temperature": 0, "metadata": {"a": "b"}}, {"tools": tools, "max_output_tokens": 150},
                  {"tools": tools, "tool_choice": "required", "max_output_tokens": 150},
                  {"tools": tools, "tool_choice": named, "max_output_tokens": 150, "parallel_tool_calls": False},
                  {"text": {"format": schema}, "max_output_tokens": 150},
                  {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
                  {"extra_body": {"seed": 5, **THINKS}}, {"store": False, "user": "u", "truncation": "disabled"}):
        arguments = {**ask, **extra}
        whole = client.responses.create(**arguments)
        deltas = {}
        last = None
        numbers = []
        for event in client.responses.create(**arguments, stream=True):
            numbers.append(event.sequence_number)
            if event.type.endswith(".delta"):
                deltas[event.output_index] = deltas.get(event.output_index, "") + event.delta
            last = event
        check(numbers == list(range(len(numbers))), f"{extra}: numbers of events")
        check(last.type in ("response.completed", "response.incomplete"), f"{extra}: ends with {last.type}")
        check(without_ids(last.response.to_dict()) == without_ids(whole.to_dict()), f"{extra}: the stream differs")
        for i, item in enumerate(whole.output):
            text = item.arguments if item.type == "function_call" else "".join(part.text for part in item.content)
            check(deltas.get(i, "") == text, f"{extra}: parts of item {i}")
        with client.responses.stream(**{k: v for k, v in arguments.items()}) as stream:
            for event in stream:
                pass
            if last.type == "response.completed":
                check(stream.get_final_response().output_text == whole.output_text, f"{extra}: the helper's text")
        if extra.get("tool_choice"):
            call = whole.output[0]
            check(call.name in (("f", "g") if extra["tool_choice"] == "required" else ("g",)), f"name {call.name}")
            jsonschema.validate(json.loads(call.arguments), PARAMETERS)
            # The answer, sent back with what the tool gave.
            client.responses.create(model="m", max_output_tokens=5, input=[
                *ask["input"], *whole.output,
                {"type": "function_call_output", "call_id": call.call_id, "output": "3"}])
        if "text" in extra:
            jsonschema.validate(json.loads(whole.output_text), PARAMETERS)
        if "top_logprobs" in extra:
            check(len(whole.output[0].content[0].logprobs[0].top_logprobs) == 2, "top_logprobs")
    for bad in ({"previous_response_id": "resp_1"}, {"store": True}, {"tools": [{"type": "web_search"}]},
                {"input": []}, {"background": True}):
        check(status_of(lambda: client.responses.create(**{**ask, **bad})) == 400, f"{bad} is not refused")
    print("responses: answers, streams and the client's helper agree")


def check_messages(server, client):
    messages = server.messages_client()
    tools = [{"name": name, "description": "d", "input_schema": PARAMETERS} for name in ("f", "g")]
    turns = [{"role": "user", "content": [{"type": "text", "text": "q", "cache_control": {"type": "ephemeral"}}]}]
    ask = {"model": "m", "messages": turns, "system": "s", "max_tokens": 30, "extra_body": {"seed": 5}}
    # The package has no arguments of sampling any more; the interface has them.
    for extra in ({}, {"extra_body": {"temperature": 0}}, {"stop_sequences": ["e", "o", "\n"]},
                  {"extra_body": {"seed": 5, "top_k": 3, "top_p": 0.9, "temperature": 0.7}},
                  {"tools": tools, "max_tokens": 150}, {"tools": tools, "tool_choice": {"type": "none"}},
                  {"tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 150},
                  {"tools": tools, "tool_choice": {"type": "tool", "name": "g"}, "max_tokens": 150},
                  {"extra_body": {"seed": 5, **THINKS}}, {"metadata": {"user_id": "u"}}):
        arguments = {**ask, **extra}
        whole = messages.messages.create(**arguments)
        with messages.messages.stream(**arguments) as stream:
            for _ in stream:
                pass
            joined = stream.get_final_message()
        one, other = without_ids(joined.to_dict()), without_ids(whole.to_dict())
        check(one == other, f"{extra}: the stream gives {one}, wanted {other}")
        counted = {k: v for k, v in arguments.items() if k in ("model", "messages", "system", "tools", "tool_choice")}
        think = THINKS if "chat_template_kwargs" in arguments["extra_body"] else {}
        count = messages.messages.count_tokens(**counted, extra_body=think).input_tokens
        check(count == whole.usage.input_tokens, f"{extra}: {count} tokens are counted")
        if whole.stop_reason == "stop_sequence":
            check(whole.stop_sequence in extra["stop_sequences"], f"stop sequence {whole.stop_sequence!r}")
        if extra.get("tool_choice", {}).get("type") in ("any", "tool"):
            call = whole.content[0]
            check(whole.stop_reason == "tool_use" and call.type == "tool_use", f"{extra}: no call")
            jsonschema.validate(call.input, PARAMETERS)
            messages.messages.create(model="m", max_tokens=5, tools=tools, messages=[
                *turns, {"role": "assistant", "content": whole.content},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "3"}]}])
        elif not think and "tools" not in extra:
            stop = extra.get("stop_sequences")
            body = {"seed": 5, **arguments["extra_body"]}
            chat = client.chat.completions.create(
                model="m", messages=[{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
                max_tokens=30, stop=stop, extra_body=body)
            check(whole.content[0].text == chat.choices[0].message.content, f"{extra}: chat completions differ")
            response = client.responses.create(
                model="m", instructions="s", input="q", max_output_tokens=30, extra_body={**body, "stop": stop})
            check(whole.content[0].text == response.output_text, f"{extra}: responses differ")
    begun = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "It is"}]
    rest = messages.messages.create(model="m", max_tokens=20, messages=begun, extra_body={"temperature": 0})
    # By the template of this script.
    plain = client.completions.create(model="m", prompt="user: q\nassistant: It is", max_tokens=20, temperature=0)
    check(rest.content[0].text == plain.choices[0].text, "an answer that is begun is not continued")
    refused = [
        (anthropic.BadRequestError, lambda: messages.messages.create(**{**ask, "messages": []})),
        (anthropic.BadRequestError, lambda: messages.messages.create(**ask, tools=[{"name": "f"}])),
        (anthropic.NotFoundError, lambda: messages.messages.create(**{**ask, "model": "claude"})),
        (anthropic.AuthenticationError, lambda: server.messages_client("wrong").messages.create(**ask)),
    ]
    for kind, call in refused:
        try:
            call()
        except kind as error:
            check(error.body["error"]["message"], f"{kind.__name__} without a message")
        else:
            check(False, f"no {kind.__name__}")
    print("messages: answers, streams, counts and errors are what the client reads")


def status_of(call):
    try:
        call()
    except openai.APIStatusError as error:
        return error.status_code
    return 200


def check_errors(server, client):
    messages = [{"role": "user", "content": "q"}]
    refused = [
        (openai.BadRequestError, lambda: client.completions.create(model="m", prompt=[])),
        (openai.BadRequestError, lambda: client.completions.create(model="m", prompt="x", temperature=-1)),
        (openai.BadRequestError, lambda: client.completions.create(model="m", prompt="x", extra_body={"x": 1})),
        (openai.BadRequestError, lambda: client.chat.completions.create(model="m", messages=[])),
        (openai.NotFoundError, lambda: client.chat.completions.create(model="gpt", messages=messages)),
        (openai.AuthenticationError, lambda: server.client("wrong").models.list()),
        # More texts than there are places at all: waiting would not help.
        (openai.BadRequestError, lambda: client.completions.create(model="m", prompt="x", n=100)),
    ]
    for kind, call in refused:
        try:
            call()
        except kind as error:
            check(error.body and error.body["message"], f"{kind.__name__} without a message")
        else:
            check(False, f"no {kind.__name__}")
    # More texts than there are places now.
    many = [threading.Thread(target=lambda: waited.append(status_of(
        lambda: client.completions.create(model="m", prompt="x", n=50, max_tokens=100)))) for _ in range(4)]
    waited = []
    for one in many:
        one.start()
    for one in many:
        one.join()
    check({200, 429} == set(waited), f"four requests for 50 texts each: {waited}")
    print("errors: the client's classes")


def random_schema(draw, depth=0):
    """A schema whose texts are short."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern", "format"]
    if depth < 3:
        kinds += ["object"] * 5 + ["array"] * 3 + ["anyOf"] * 2 + ["oneOf", "allOf"]
    kind = "object" if depth == 0 else draw.choice(kinds)
    if kind == "object":
        names = draw.sample(["a", "name", "é", "with \"quotes\"", "x y", "z"], draw.randint(0, 3))
        return {"type": "object", "properties": {n: random_schema(draw, depth + 1) for n in names},
                "required": [n for n in names if draw.random() < 0.6], "additionalProperties": False}
    if kind == "array":
        least = draw.randint(0, 2)
        schema = {"type": "array", "items": random_schema(draw, depth + 1), "minItems": least,
                  "maxItems": least + draw.randint(0, 1)}
        if draw.random() < 0.3:
            schema["prefixItems"] = [random_schema(draw, depth + 1)]
        return schema
    if kind == "anyOf":
        return {"anyOf": [random_schema(draw, depth + 1) for _ in range(draw.randint(1, 3))]}
    if kind == "oneOf":
        return {"oneOf": [{"type": "object", "properties": {"kind": {"const": k}, "v": random_schema(draw, depth + 1)},
                           "required": ["kind"], "additionalProperties": False} for k in ("a", "b")],
                "discriminator": {"propertyName": "kind"}}
    if kind == "allOf":
        return {"allOf": [{"type": "object", "properties": {n: random_schema(draw, depth + 1)}, "required": [n] * (n < "c")}
                          for n in "abc"[:draw.randint(1, 3)]]}
    if kind == "string":
        least = draw.randint(0, 3)
        return {"type": "string", "minLength": least, "maxLength": least + draw.randint(0, 5)}
    if kind in ("integer", "number"):
        low = draw.randint(-2000, 2000) if kind == "integer" else round(draw.uniform(-20, 20), draw.randint(0, 3))
        high = low + (draw.randint(2, 3000) if kind == "integer" else round(draw.uniform(0.5, 30), 2))
        schema = {"type": kind}
        schema[draw.choice(["minimum", "exclusiveMinimum"])] = low
        schema[draw.choice(["maximum", "exclusiveMaximum"])] = high
        return schema
    if kind == "enum":
        return {"enum": draw.sample(["red", "gr\"een", 3, -1.5, None, True, [1], {"k": "v"}, "é"], draw.randint(1, 4))}
    if kind == "const":
        return {"const": draw.choice(["x", 0, {"a": [1, 2]}, False])}
    if kind == "pattern":
        return {"type": "string", "pattern": draw.choice(["^[a-c]{1,4}$", "^\\d{3}-\\w+$", "^(yes|no)$", "^\"\\\\?$"])}
    if kind == "format":
        return {"type": "string", "format": draw.choice(["date", "date-time", "uuid", "ipv4", "email", "time"])}
    return {"type": kind}


def check_constraints(client, count, seed):
    draw = random.Random(seed)
    whole = cut = 0
    for i in range(count):
        schema = random_schema(draw)
        answer = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "q"}], temperature=draw.choice([0, 1, 2]), seed=i,
            response_format={"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}})
        choice = answer.choices[0]
        if choice.finish_reason == "length":
            cut += 1
            continue
        try:
            jsonschema.validate(json.loads(choice.message.content), schema,
                                format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        except (ValueError, jsonschema.ValidationError) as error:
            check(False, f"{choice.message.content!r} under {json.dumps(schema)}: {error}")
        whole += 1
    check(whole > 0.6 * count, f"only {whole} of {count} answers were whole")
    print(f"JSON schemas: {whole} answers are valid, {cut} were cut at the model's length")
    for pattern in ("[a-f]{3,9}", "(ab|c)*d", "\\d+\\.\\d{2}", "[^\\n]{1,20}!", "[à-ü]{2}"):
        for i in range(10):
            choice = client.completions.create(model="m", prompt="x", max_tokens=60, seed=i,
                                               extra_body={"guided_regex": pattern}).choices[0]
            check(choice.finish_reason == "length" or re.fullmatch(pattern, choice.text),
                  f"{choice.text!r} does not match {pattern}")
    print("regular expressions: Python's re agrees")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("piton")
    parser.add_argument("model")
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    server = Server(options.piton, options.model)
    try:
        client = server.client()
        check_answers(client)
        check_offsets(client)
        check_tools(client)
        check_responses(server.strict_client())
        check_messages(server, client)
        check_embeddings(client)
        check_errors(server, client)
        check_constraints(client, options.schemas, options.seed)
        server.stop()
    finally:
        server.process.kill()


if __name__ == "__main__":
    main()
