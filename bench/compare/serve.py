"""llama.cpp's server beside `piton serve`, in turns, on the same machine and with the same GGUF file.

    python bench/compare/serve.py --llama-server LLAMA_SERVER [--quantize q8_0|q4_0]

Wants a built piton, llama.cpp's llama-server, and gguf and sentencepiece from PyPI. The model is the 1.1B LLaMA of
decode.py. Its head continues each token by a fixed one (tokens 1000 to 16999 in circles of 40), so that a text repeats
itself as a copied one does, both servers write the same ids, and no text ends early. All matrices are computed.

  one     one user: a prompt of --prompt tokens, --tokens new ones; tokens a second of the whole request
  users   --users of them at the same time, each with a prompt that was not seen before
  first   time to the first token of a prompt of --long tokens: alone, and while all other places are decoding
  prefix  time to the first token of a prompt of --prefix tokens, and of another one that begins with them
  lookup  one user, by a `piton serve --prompt-lookup 8`; piton alone

The servers stay in memory while the others are measured, and wait. Each round measures all in turns; the best of
each counts. Texts are streamed. Writes bench/results/DATE-serve-llama-1.1b[-FORMAT].json.
"""
import argparse
import datetime
import http.client
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time

from decode import MODEL, VOCABULARY, write_gguf
from train import ROOT, command_line, cpu_model, text_of, write_result

FIRST, LAST, CIRCLE = 1000, 17000, 40


def next_token(token):
    begin = token - token % CIRCLE
    return begin + (token + 1) % CIRCLE if FIRST <= token < LAST else token


class CopyingModel:
    """Values of matrices that continue token t by next_token(t)."""

    def __init__(self, tokenizer):
        self.path = tokenizer

    def tokenizer(self, writer):
        import gguf
        import sentencepiece

        pieces = sentencepiece.SentencePieceProcessor(model_file=self.path)
        kinds = gguf.TokenType

        def kind(token):
            if pieces.is_unknown(token):
                return kinds.UNKNOWN
            if pieces.is_control(token):
                return kinds.CONTROL
            return kinds.BYTE if pieces.is_byte(token) else kinds.NORMAL

        writer.add_tokenizer_model("llama")
        writer.add_token_list([pieces.id_to_piece(t) for t in range(VOCABULARY)])
        writer.add_token_scores([pieces.get_score(t) for t in range(VOCABULARY)])
        writer.add_token_types([kind(t) for t in range(VOCABULARY)])
        writer.add_bos_token_id(pieces.bos_id())
        writer.add_eos_token_id(pieces.eos_id())
        writer.add_unk_token_id(pieces.unk_id())

    def values(self, name, normals):
        if name == "output.weight":
            head = normals.copy()
            head[[next_token(t) for t in range(VOCABULARY)]] = normals
            return head
        # What the layers add to the residual stream is a quarter of the embedding of the token, which so decides.
        return normals * 0.001 if name.endswith(("attn_output.weight", "ffn_down.weight")) else normals


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    def __init__(self, name, command, log):
        self.name = name
        self.port = free_port()
        self.command = [*command, "--port", str(self.port)]
        self.log = open(log, "w")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        for _ in range(1200):
            if self.process.poll() is not None:
                raise SystemExit(f"{name} ended with {self.process.returncode}: see {log}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"{name} does not answer: see {log}")

    def complete(self, prompt, tokens):
        """Seconds to the first token and to the end, and the text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True})
        start = time.perf_counter()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{self.name}: {answer.status}: {answer.read().decode()[:500]}")
        first, text = None, []
        for line in answer:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            choices = json.loads(line[6:]).get("choices")
            if choices and choices[0].get("text"):
                first = first or time.perf_counter() - start
                text.append(choices[0]["text"])
        seconds = time.perf_counter() - start
        connection.close()
        return first, seconds, "".join(text)

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def together(works):
    """Results of functions that run at the same time, and the seconds until the last has ended."""
    results = [None] * len(works)

    def run(index):
        results[index] = works[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if None in results:
        raise SystemExit("a request failed")
    return results, time.perf_counter() - start


class Prompts:
    """Prompts that differ from the first token on, and go round in one circle at their end."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def fresh(self, tokens):
        noise = [self.random.randrange(FIRST, LAST) for _ in range(max(1, tokens // 4))]
        token = self.random.randrange(FIRST, LAST)
        for _ in range(tokens - len(noise)):
            noise.append(token)
            token = next_token(token)
        return noise


def measure(server, prompts, arguments):
    figures = {}
    _, seconds, text = server.complete(prompts.fresh(arguments.prompt), arguments.tokens)
    figures["one"] = seconds
    figures["one_text"] = text
    if server.name == "piton with look-up":
        return figures
    users = [prompts.fresh(arguments.prompt) for _ in range(arguments.users)]
    _, figures["users"] = together([lambda p=p: server.complete(p, arguments.tokens) for p in users])

    figures["first_alone"], _, _ = server.complete(prompts.fresh(arguments.long), 1)
    others = [prompts.fresh(32) for _ in range(arguments.users - 1)]
    long_prompt = prompts.fresh(arguments.long)

    def late():
        time.sleep(arguments.delay)
        return server.complete(long_prompt, 1)

    results, _ = together([late, *(lambda p=p: server.complete(p, arguments.tokens) for p in others)])
    figures["first_beside_others"] = results[0][0]
    figures["others_ended_before"] = sum(one[1] < arguments.delay + results[0][0] for one in results[1:])

    prefix = prompts.fresh(arguments.prefix)
    figures["prefix_first"], _, _ = server.complete(prefix, 1)
    figures["prefix_again"], _, _ = server.complete(prefix + prompts.fresh(4), 1)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", help="llama.cpp's server (default: piton alone)")
    parser.add_argument("--quantize", choices=["q8_0", "q4_0"], help="format of the matrices (default: bf16)")
    parser.add_argument("--tokenizer", default=str(ROOT.parent / "shared/data/tokenizers/llama2/tokenizer.model"))
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--long", type=int, default=512)
    parser.add_argument("--prefix", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=2.0, help="seconds until the long prompt comes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--gguf", help="kept here, and not written where it is there; default: a temporary file")
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--output", help="default: bench/results/DATE-serve-llama-1.1b[-FORMAT].json; -: stdout")
    arguments = parser.parse_args()

    servers = []
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.gguf or str(pathlib.Path(folder) / "model.gguf")
        if not pathlib.Path(path).exists():
            write_gguf(path, arguments.quantize, CopyingModel(arguments.tokenizer))
        own = [arguments.piton, "serve", "--load", path, "--threads", str(arguments.threads),
               "--max-concurrent-requests", str(arguments.users)]
        commands = {"piton": own, "piton with look-up": [*own, "--prompt-lookup", "8"]}
        if arguments.llama_server:
            places = arguments.users * (arguments.prefix + arguments.tokens + 128)
            commands["llama.cpp"] = [arguments.llama_server, "-m", path, "-t", str(arguments.threads),
                                     "-tb", str(arguments.threads), "-np", str(arguments.users), "-c", str(places),
                                     "--no-warmup"]
        try:
            for name, command in commands.items():
                log = pathlib.Path(tempfile.gettempdir()) / f"serve-{name.replace(' ', '-')}.log"
                servers.append(Server(name, command, log))
                print(f"{name} answers", file=sys.stderr, flush=True)
            for server in servers:
                server.complete(Prompts(0).fresh(arguments.prompt), arguments.tokens)
            raw = {server.name: [] for server in servers}
            for turn in range(arguments.rounds):
                for server in servers:
                    raw[server.name].append(measure(server, Prompts(turn + 1), arguments))
                print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        finally:
            for server in servers:
                server.close()

    figures = {}
    for name, rounds in raw.items():
        best = {key: min(one[key] for one in rounds) for key in rounds[0] if not key.endswith("text")}
        figure = {"one_tokens_per_second": arguments.tokens / best["one"]}
        if "users" in best:
            figure |= {
                "users_tokens_per_second": arguments.users * arguments.tokens / best["users"],
                "users_over_one": arguments.users * best["one"] / best["users"],
                "first_alone_seconds": best["first_alone"],
                "first_beside_others_over_alone": best["first_beside_others"] / best["first_alone"],
                "prefix_again_over_first": best["prefix_again"] / best["prefix_first"],
            }
        figures[name] = figure
    own, look_up = figures["piton"], figures["piton with look-up"]
    look_up["times_without"] = look_up["one_tokens_per_second"] / own["one_tokens_per_second"]
    if "llama.cpp" in figures:
        for key in ("one_tokens_per_second", "users_tokens_per_second"):
            own[f"times_llama.cpp_{key}"] = own[key] / figures["llama.cpp"][key]
    texts = [[one["one_text"] for one in raw[server.name]] for server in servers]
    figures["texts_are_equal"] = all(one == texts[0] for one in texts)

    version = "none"
    if arguments.llama_server:
        version = subprocess.run([arguments.llama_server, "--version"], capture_output=True, text=True).stderr.strip()
    result = {
        "what": f"servers of a LLaMA of 1.1 billion {arguments.quantize or 'bf16'} weights",
        "command": command_line(arguments).replace("train.py", "serve.py"),
        "commands": {name: " ".join([pathlib.Path(command[0]).name, *command[1:]]).replace(path, "model.gguf")
                     for name, command in commands.items()},
        "commit": text_of("git", "rev-parse", "HEAD"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": arguments.threads},
        "peer": version,
        "figures": figures,
        "raw": raw,
    }
    path = write_result(result, arguments.output, "-".join(filter(None, ["serve", MODEL, arguments.quantize])))
    if path is not None:
        print(f"{path}:\n{json.dumps(figures, indent=1)}")


if __name__ == "__main__":
    main()
