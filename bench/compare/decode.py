"""llama.cpp beside `piton bench decode` and `piton bench prefill`, in turns, on the same machine.

    python bench/compare/decode.py [--model qwen3-moe-1b] [--quantize q8_0|q4_0|q4_k|q6_k]

Wants llama-cpp-python and gguf (pip install llama-cpp-python gguf; the first is compiled for the processor
that it is installed on) and a built piton; with --peers transformers also torch and transformers. Everyone
gets the 1.1B LLaMA of random bf16 weights: llama.cpp a gguf file that this script writes (2.2 GB, --gguf),
transformers a model made in memory. With --quantize the matrices of the layers are in this format on both sides,
and the head in Q8_0, or in Q6_K with q4_k and q6_k, which llama.cpp's own quantizer writes. --model qwen3-moe-1b is
a mixture of experts in its place: Qwen 3 MoE of 12 layers of width 1024 with 32 experts of width 768, of which a token
has 4; 1.0 billion weights, of which 0.2 billion take part in a token.

  decode   --tokens tokens one after the other behind --context tokens in the cache, of 1 and of --batch
           samples together; the time is that of one step
  prefill  one prompt of --prompt tokens into an empty cache, logits of the last token only

Each round measures every peer and piton one after the other; the best of each counts. Ids are not drawn
from the logits on either side: which token comes next takes no part of the time.

Writes bench/results/DATE-decode-MODEL[-FORMAT].json with the command, the commit, the machine and all times of
both sides.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from train import ROOT, command_line, cpu_model, text_of, write_result

LAYERS, HIDDEN, FFN, HEADS, GROUPS, VOCABULARY, POSITIONS = 22, 2048, 5632, 32, 4, 32000, 2048
MODEL = "llama-1.1b"
EXPERTS, CHOICES = 0, 0
MIXTURE = "qwen3-moe-1b"


def take_mixture():
    global LAYERS, HIDDEN, FFN, HEADS, EXPERTS, CHOICES
    LAYERS, HIDDEN, FFN, HEADS, EXPERTS, CHOICES = 12, 1024, 768, 16, 32, 4


def token(index):
    return (index * 7919 + 1) % VOCABULARY


def write_gguf(path, quantize=None, model=None):
    """The model in bf16, or with the matrices of the layers in `quantize` and the head in Q8_0.

    `model` has `tokenizer(writer)`, which adds one, and `values(name, normals)`, the values of a matrix. Without it
    there is no tokenizer, and every matrix has the same values: time does not depend on them.
    """
    import gguf
    import numpy

    types, files = gguf.GGMLQuantizationType, gguf.LlamaFileType
    of_layers, of_head, of_file = {
        None: (types.BF16, types.BF16, files.MOSTLY_BF16),
        "q8_0": (types.Q8_0, types.Q8_0, files.MOSTLY_Q8_0),
        "q4_0": (types.Q4_0, types.Q8_0, files.MOSTLY_Q4_0),
    }[quantize]
    writer = gguf.GGUFWriter(path, "qwen3moe" if EXPERTS else "llama")
    if EXPERTS:
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(CHOICES)
        writer.add_expert_feed_forward_length(FFN)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(of_file)
    if model:
        model.tokenizer(writer)
    else:
        writer.add_tokenizer_model("no_vocab")

    normals = numpy.random.default_rng(1).standard_normal(VOCABULARY * HIDDEN, dtype=numpy.float32) * 0.02
    stored = {}

    def matrix(name, rows, columns):
        form = {"token_embd.weight": types.BF16, "output.weight": of_head}.get(name, of_layers)
        values = normals[: rows * columns].reshape(rows, columns)
        if model:
            writer.add_tensor(name, gguf.quants.quantize(model.values(name, values), form), raw_dtype=form)
            return
        if (form, rows, columns) not in stored:
            stored[form, rows, columns] = gguf.quants.quantize(values, form)
        writer.add_tensor(name, stored[form, rows, columns], raw_dtype=form)

    def gain(name, size=HIDDEN):
        writer.add_tensor(name, numpy.ones(size, dtype=numpy.float32))

    def stack(name, rows, columns):
        if (name.split(".")[2], rows) not in stored:
            one = gguf.quants.quantize(normals[: rows * columns].reshape(rows, columns), of_layers)
            stored[name.split(".")[2], rows] = numpy.stack([one] * EXPERTS)
        writer.add_tensor(name, stored[name.split(".")[2], rows], raw_dtype=of_layers)

    def mlp(block, layer):
        if not EXPERTS:
            matrix(block + "ffn_gate.weight", FFN, HIDDEN)
            matrix(block + "ffn_up.weight", FFN, HIDDEN)
            matrix(block + "ffn_down.weight", HIDDEN, FFN)
            return
        # Another one in each layer, so that tokens choose otherwise in each.
        routes = normals[layer * EXPERTS * HIDDEN:][: EXPERTS * HIDDEN].reshape(EXPERTS, HIDDEN)
        writer.add_tensor(block + "ffn_gate_inp.weight", routes)
        gain(block + "attn_q_norm.weight", HIDDEN // HEADS)
        gain(block + "attn_k_norm.weight", HIDDEN // HEADS)
        stack(block + "ffn_gate_exps.weight", FFN, HIDDEN)
        stack(block + "ffn_up_exps.weight", FFN, HIDDEN)
        stack(block + "ffn_down_exps.weight", HIDDEN, FFN)

    matrix("token_embd.weight", VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        gain(block + "attn_norm.weight")
        matrix(block + "attn_q.weight", HIDDEN, HIDDEN)
        matrix(block + "attn_k.weight", HIDDEN * GROUPS // HEADS, HIDDEN)
        matrix(block + "attn_v.weight", HIDDEN * GROUPS // HEADS, HIDDEN)
        matrix(block + "attn_output.weight", HIDDEN, HIDDEN)
        gain(block + "ffn_norm.weight")
        mlp(block, layer)
    gain("output_norm.weight")
    matrix("output.weight", VOCABULARY, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# Of files whose matrices are all in the format (llama_ftype).
K_FILES = {"q4_k": "LLAMA_FTYPE_MOSTLY_Q4_K_S", "q6_k": "LLAMA_FTYPE_MOSTLY_Q6_K"}


class LlamaCpp:
    """Through the C interface: nothing of Python stands between the tokens but the loop itself."""

    name = "llama.cpp"

    def write_k_gguf(self, path, quantize):
        import gguf

        plain = path + ".bf16"
        write_gguf(plain)
        rules = self.api.llama_model_quantize_default_params()
        rules.ftype = getattr(self.api, K_FILES[quantize])
        rules.pure = True
        rules.output_tensor_type = gguf.GGMLQuantizationType.Q6_K
        rules.token_embedding_type = gguf.GGMLQuantizationType.BF16
        failed = self.api.llama_model_quantize(plain.encode(), path.encode(), rules)
        os.remove(plain)
        if failed:
            sys.exit(f"{path}: llama.cpp cannot quantize the model")

    def __init__(self, arguments):
        import ctypes

        import llama_cpp

        self.api = llama_cpp
        self.version = f"llama-cpp-python {llama_cpp.__version__}"
        silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        self.silent = silent  # the library keeps a pointer to it
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.version += "; " + llama_cpp.llama_print_system_info().decode().strip()
        with tempfile.TemporaryDirectory() as folder:
            path = arguments.gguf or str(pathlib.Path(folder) / "model.gguf")
            if not pathlib.Path(path).exists() and arguments.quantize in K_FILES:
                self.write_k_gguf(path, arguments.quantize)
            elif not pathlib.Path(path).exists():
                write_gguf(path, arguments.quantize)
            parameters = llama_cpp.llama_model_default_params()
            parameters.use_mmap = False
            self.model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        if not self.model:
            raise SystemExit(f"--gguf: llama.cpp cannot load {path}")
        self.contexts = {}
        self.threads = arguments.threads

    def context(self, samples, capacity):
        api = self.api
        places = -(-capacity // 256) * 256
        if (samples, places) not in self.contexts:
            parameters = api.llama_context_default_params()
            parameters.n_ctx = samples * places
            parameters.n_batch = parameters.n_ubatch = max(512, samples * 128)
            parameters.n_seq_max = samples
            parameters.n_threads = parameters.n_threads_batch = self.threads
            context = api.llama_init_from_model(self.model, parameters)
            if not context:
                raise SystemExit(f"llama.cpp gives no context for {samples} samples of {capacity} tokens")
            self.contexts[samples, places] = context
        return self.contexts[samples, places]

    def read(self, context, samples, begin, count):
        """The next `count` tokens of every sample; logits of the last one."""
        api = self.api
        batch = api.llama_batch_init(samples * count, 0, 1)
        batch.n_tokens = samples * count
        for row in range(samples * count):
            sample, position = divmod(row, count)
            batch.token[row] = token(row + begin)
            batch.pos[row] = begin + position
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = sample
            batch.logits[row] = position == count - 1
        start = time.perf_counter()
        code = api.llama_decode(context, batch)
        api.llama_synchronize(context)
        seconds = time.perf_counter() - start
        api.llama_batch_free(batch)
        if code != 0:
            raise SystemExit(f"llama_decode: {code}")
        return seconds

    def decode(self, samples, context_tokens, tokens):
        context = self.context(samples, context_tokens + tokens)
        memory = self.api.llama_get_memory(context)
        self.api.llama_memory_clear(memory, True)
        for begin in range(0, context_tokens, 64):
            self.read(context, samples, begin, min(64, context_tokens - begin))
        return sum(self.read(context, samples, context_tokens + i, 1) for i in range(tokens)) / tokens

    def prefill(self, tokens):
        context = self.context(1, tokens)
        self.api.llama_memory_clear(self.api.llama_get_memory(context), True)
        return self.read(context, 1, 0, tokens)


class Transformers:
    name = "transformers"

    def __init__(self, arguments):
        import torch
        import transformers

        self.torch = torch
        self.version = f"torch {torch.__version__}, transformers {transformers.__version__}"
        torch.set_num_threads(arguments.threads)
        torch.set_grad_enabled(False)
        config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FFN,
                                          num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                                          num_key_value_heads=GROUPS, max_position_embeddings=POSITIONS,
                                          tie_word_embeddings=False)
        torch.set_default_dtype(torch.bfloat16)
        self.model = transformers.LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)

    def read(self, samples, begin, count, cache):
        ids = self.torch.tensor([[token(begin + i + s) for i in range(count)] for s in range(samples)])
        start = time.perf_counter()
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - start, out.past_key_values

    def decode(self, samples, context_tokens, tokens):
        _, cache = self.read(samples, 0, context_tokens, None)
        total = 0
        for i in range(tokens):
            seconds, cache = self.read(samples, context_tokens + i, 1, cache)
            total += seconds
        return total / tokens

    def prefill(self, tokens):
        return self.read(1, 0, tokens, None)[0]


def piton_commands(arguments):
    def command(kind, *more):
        flags = ["--model", MODEL]
        if EXPERTS:
            flags = ["--model", "qwen3-30b-a3b"]
            for flag, size in (("num-layers", LAYERS), ("hidden-size", HIDDEN), ("num-attention-heads", HEADS), ("num-query-groups", GROUPS),
                               ("kv-channels", HIDDEN // HEADS), ("num-experts", EXPERTS), ("moe-router-topk", CHOICES),
                               ("moe-ffn-hidden-size", FFN), ("vocab-size", VOCABULARY), ("max-position-embeddings", POSITIONS)):
                flags += ["--" + flag, str(size)]
        return [arguments.piton, "bench", kind, *flags, "--bf16", "--threads", str(arguments.threads),
                "--rounds", "1", "--json", "--quiet",
                *(["--quantize", arguments.quantize] if arguments.quantize else []), *more]

    def decode(samples):
        return command("decode", "--context", str(arguments.context), "--tokens", str(arguments.tokens),
                       "--micro-batch-size", str(samples))

    return {"decode batch 1": decode(1), f"decode batch {arguments.batch}": decode(arguments.batch),
            "prefill": command("prefill", "--context", str(arguments.prompt))}


def measured(command):
    """The figures of a run, which is repeated if its limit was measured while the machine was busy."""
    for attempt in range(5):
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode == 0:
            return json.loads(run.stdout)
        print(run.stderr.strip(), file=sys.stderr)
    raise SystemExit(f"{' '.join(command)}: failed {attempt + 1} times")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=["llama.cpp", "transformers"], default=["llama.cpp"])
    parser.add_argument("--model", choices=[MODEL, MIXTURE], default=MODEL)
    parser.add_argument("--quantize", choices=["q8_0", "q4_0", "q4_k", "q6_k"], help="format of the matrices (default: bf16)")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--gguf", help="kept here, and not written where it is there; default: a temporary file")
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--output", help="default: bench/results/DATE-decode-llama-1.1b[-FORMAT].json; -: stdout")
    arguments = parser.parse_args()

    if arguments.model == MIXTURE:
        take_mixture()
        if "transformers" in arguments.peers:
            parser.error("--model: transformers has a class for LLaMA alone here")
    if arguments.quantize and "transformers" in arguments.peers:
        parser.error("--quantize: transformers has no such format")
    peers = [{"llama.cpp": LlamaCpp, "transformers": Transformers}[name](arguments) for name in arguments.peers]
    commands = piton_commands(arguments)
    rows = {"decode batch 1": 1, f"decode batch {arguments.batch}": arguments.batch, "prefill": arguments.prompt}

    def measure(peer, what):
        if what == "prefill":
            return peer.prefill(arguments.prompt)
        return peer.decode(rows[what], arguments.context, arguments.tokens)

    for peer in peers:
        for what in commands:
            measure(peer, what)
        print(f"warmed up {peer.name}", file=sys.stderr, flush=True)

    seconds = {what: {peer.name: [] for peer in peers} for what in commands}
    piton = {what: [] for what in commands}
    for turn in range(arguments.rounds):
        for what, command in commands.items():
            for peer in peers:
                seconds[what][peer.name].append(measure(peer, what))
            piton[what].append(measured(command))
        print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr, flush=True)

    figures = {}
    for what in commands:
        own = min(one["best_seconds"] for one in piton[what])
        figure = {"piton_tokens_per_second": rows[what] / own}
        for key in ("share_of_bandwidth", "share_of_peak"):
            shares = [one[key] for one in piton[what] if key in one]
            if shares:
                # Each round has its own limit beside it, which a busy moment may lower.
                figure[f"piton_{key}"] = statistics.median(shares)
        for name, times in seconds[what].items():
            figure[f"{name}_tokens_per_second"] = rows[what] / min(times)
            figure[f"times_{name}"] = min(times) / own
        figures[what] = figure

    result = {
        "what": f"decoding and prefill of {arguments.model} with random {arguments.quantize or 'bf16'} weights",
        "command": command_line(arguments).replace("train.py", "decode.py"),
        "piton_commands": {what: " ".join(["piton", *command[1:]]) for what, command in commands.items()},
        "commit": text_of("git", "rev-parse", "HEAD"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": arguments.threads},
        "peers": {peer.name: peer.version for peer in peers},
        "figures": figures,
        "raw": {"peer_seconds": seconds, "piton": piton},
    }
    path = write_result(result, arguments.output, "-".join(filter(None, ["decode", arguments.model, arguments.quantize])))
    if path is None:
        return
    for what, figure in figures.items():
        print(f"{path}: {what}: " + ", ".join(f"{key} {value:.2f}" for key, value in figure.items()))


if __name__ == "__main__":
    main()
