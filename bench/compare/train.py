"""Training steps of PyTorch beside `piton bench train`, in turns, on the same machine.

    python bench/compare/train.py --model gpt2-124m --micro-batch-size 4 --seq-length 256 --dtype bf16

Wants PyTorch and transformers (pip install torch transformers) and a built piton. Each round takes the
steps of every PyTorch variant and of piton one after the other; the best step of each counts. Dropout 0,
random weights and tokens, gradient clipping at norm 1, AdamW with fused=True.

PyTorch's variants, of which the fastest counts:
  autocast   fp32 weights, torch.autocast to bf16         weights  bf16 weights, moments as AdamW keeps them
             (what most scripts do)                                (less work: no fp32 main copy is updated)
each as it stands ("eager") and through torch.compile. With fp32 there is one variant of weights. --peer-dtype fp32
compares steps of piton in bf16 with PyTorch's in fp32: without AVX-512 PyTorch takes minutes for a step in bf16.

With --lora-r R adapters of all linears are trained, in PyTorch by PEFT (pip install peft); the rest is frozen.

qwen3-moe-145m has 16 experts in each layer, 4 of them for a token; qwen3.5-116m has four layers of Qwen3.5-0.8B and
32000 ids.

mamba2-130m is computed by the plain PyTorch of Transformers; its faster kernels are for GPUs alone.

bert-110m predicts masked words, one in seven, and has no head for pairs; t5-220m reads --seq-length tokens and
writes --decoder-seq-length. Transformers computes BERT's logits of all rows, Piton those of masked ones.

Writes bench/results/DATE-train-MODEL-DTYPE-BxS.json with the command, the commit, the machine and all
times of both sides.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


# Hidden, expert width, layers, heads, groups, experts, choices: Qwen 3 MoE in small.
MIXTURES = {"qwen3-moe-145m": (512, 512, 8, 8, 4, 16, 4)}
# Hidden, MLP, layers, heads, groups, size of a head, heads of the gated delta rule: Qwen 3.5.
DELTAS = {"qwen3.5-116m": (1024, 3584, 4, 8, 2, 256, 16)}
LLAMAS = {"llama-134m": (768, 2048, 12, 12, 12), "llama-1.1b": (2048, 5632, 22, 32, 4)}


def make_model(name, sequence):
    import transformers

    if name == "gpt2-124m":
        # Piton pads the vocabulary to a multiple of 128; PyTorch gets the same, which suits its kernels.
        config = transformers.GPT2Config(vocab_size=50304, n_positions=max(1024, sequence), resid_pdrop=0,
                                         embd_pdrop=0, attn_pdrop=0, use_cache=False)
        return transformers.GPT2LMHeadModel(config), config.vocab_size
    if name in LLAMAS:
        hidden, intermediate, layers, heads, groups = LLAMAS[name]
        config = transformers.LlamaConfig(vocab_size=32000, hidden_size=hidden, intermediate_size=intermediate,
                                          num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups,
                                          max_position_embeddings=max(2048, sequence),
                                          tie_word_embeddings=False, use_cache=False)
        return transformers.LlamaForCausalLM(config), config.vocab_size
    if name in MIXTURES:
        hidden, intermediate, layers, heads, groups, experts, choices = MIXTURES[name]
        config = transformers.Qwen3MoeConfig(vocab_size=32000, hidden_size=hidden, moe_intermediate_size=intermediate, intermediate_size=intermediate,
                                             num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups,
                                             head_dim=hidden // heads, num_experts=experts, num_experts_per_tok=choices, norm_topk_prob=True,
                                             max_position_embeddings=max(2048, sequence), tie_word_embeddings=False, use_cache=False)
        return transformers.Qwen3MoeForCausalLM(config), config.vocab_size
    if name in DELTAS:
        hidden, intermediate, layers, heads, groups, size, delta_heads = DELTAS[name]
        config = transformers.Qwen3_5TextConfig(vocab_size=32000, hidden_size=hidden, intermediate_size=intermediate,
                                                num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups,
                                                head_dim=size, linear_num_key_heads=delta_heads, linear_num_value_heads=delta_heads,
                                                max_position_embeddings=max(2048, sequence), tie_word_embeddings=True,
                                                use_cache=False)
        return transformers.Qwen3_5ForCausalLM(config), config.vocab_size
    if name == "mamba2-130m":
        config = transformers.Mamba2Config(vocab_size=50304, hidden_size=768, num_hidden_layers=24, num_heads=24, head_dim=64, state_size=128,
                                           n_groups=1, tie_word_embeddings=True, use_cache=False)
        return transformers.Mamba2ForCausalLM(config), config.vocab_size
    if name == "lfm2-350m":
        kinds = ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)]
        config = transformers.Lfm2Config(vocab_size=65536, hidden_size=1024, intermediate_size=4608, block_auto_adjust_ff_dim=False,
                                         num_hidden_layers=16, layer_types=kinds, num_attention_heads=16, num_key_value_heads=8,
                                         tie_word_embeddings=True, use_cache=False)
        return transformers.Lfm2ForCausalLM(config), config.vocab_size
    if name == "bert-110m":
        config = transformers.BertConfig(vocab_size=30592, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                                         max_position_embeddings=max(512, sequence))
        return transformers.BertForMaskedLM(config), config.vocab_size
    if name == "t5-220m":
        config = transformers.T5Config(vocab_size=32128, d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12,
                                       dropout_rate=0, use_cache=False, decoder_start_token_id=0, pad_token_id=0)
        return transformers.T5ForConditionalGeneration(config), config.vocab_size
    raise SystemExit(f"--model: got {name}, wanted gpt2-124m, mamba2-130m, lfm2-350m, bert-110m, t5-220m, {', '.join([*LLAMAS, *MIXTURES, *DELTAS])}")


def make_labels(name, ids, decoder_length):
    """What the model is asked for: its own tokens, masked ones, or another text."""
    import torch

    if name == "t5-220m":
        return torch.randint(0, 32000, (ids.shape[0], decoder_length))
    if name == "bert-110m":
        masked = torch.arange(ids.numel()).reshape(ids.shape) % 7 == 0
        return torch.where(masked, ids, -100)
    return ids


class Variant:
    """One way to train in PyTorch."""

    def __init__(self, arguments, weights, compiled):
        import torch

        self.torch = torch
        self.name = f"{weights} {'compile' if compiled else 'eager'}"
        torch.manual_seed(1)
        self.model, vocabulary = make_model(arguments.model, arguments.seq_length)
        if weights == "weights" and arguments.peer_dtype == "bf16":
            self.model = self.model.to(torch.bfloat16)
        if arguments.lora_r:
            import peft

            self.model = peft.get_peft_model(self.model, peft.LoraConfig(
                r=arguments.lora_r, lora_alpha=2 * arguments.lora_r, target_modules="all-linear"))
        self.autocast = weights == "autocast"
        self.model.train()
        self.parameters = [one for one in self.model.parameters() if one.requires_grad]
        self.call = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True)
        self.ids = torch.randint(0, vocabulary, (arguments.micro_batch_size, arguments.seq_length))
        self.labels = make_labels(arguments.model, self.ids, arguments.decoder_seq_length)
        self.seconds = []

    def step(self, keep=True):
        torch = self.torch
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.call(input_ids=self.ids, labels=self.labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if keep:
            self.seconds.append(time.perf_counter() - start)


def piton_model(name):
    """The flags of a model."""
    if name in DELTAS:
        hidden, intermediate, layers, heads, groups, size, delta_heads = (str(one) for one in DELTAS[name])
        return ["--model-family", "qwen3_5", "--hidden-size", hidden, "--ffn-hidden-size", intermediate, "--num-layers", layers,
                "--num-attention-heads", heads, "--num-query-groups", groups, "--kv-channels", size, "--linear-num-key-heads",
                delta_heads, "--linear-num-value-heads", delta_heads, "--tie-embeddings-and-output-weights",
                "--vocab-size", "32000", "--max-position-embeddings", "2048"]
    if name not in MIXTURES:
        return ["--model", name]
    hidden, intermediate, layers, heads, groups, experts, choices = (str(one) for one in MIXTURES[name])
    return ["--model-family", "qwen3_moe", "--hidden-size", hidden, "--moe-ffn-hidden-size", intermediate, "--num-layers", layers,
            "--num-attention-heads", heads, "--num-query-groups", groups, "--num-experts", experts, "--moe-router-topk", choices,
            "--vocab-size", "32000", "--max-position-embeddings", "2048"]


def piton_command(arguments, rounds):
    command = [arguments.piton, "bench", "train", *piton_model(arguments.model), "--micro-batch-size",
               str(arguments.micro_batch_size), "--seq-length", str(arguments.seq_length), "--threads",
               str(arguments.threads), "--rounds", str(rounds), "--no-floor", "--json", "--quiet"]
    if arguments.lora_r:
        command += ["--lora-target-modules", "all-linear", "--lora-r", str(arguments.lora_r), "--lora-alpha",
                    str(2 * arguments.lora_r)]
    if arguments.model == "bert-110m":
        command += ["--bert-no-binary-head"]
    if arguments.model == "t5-220m":
        command += ["--decoder-seq-length", str(arguments.decoder_seq_length)]
    return command + (["--bf16"] if arguments.dtype == "bf16" else [])


def command_line(arguments):
    """What was run, without the paths of one machine."""
    words = ["python bench/compare/train.py"]
    for name, value in vars(arguments).items():
        if not value or name in ("piton", "output", "gguf", "llama_server", "tokenizer"):
            continue
        words.append(f"--{name.replace('_', '-')} {' '.join(value) if isinstance(value, list) else value}")
    return " ".join(words)


def write_result(result, output, name):
    """The file that was written: bench/results/DATE-NAME.json unless `output` names one. None: "-", printed alone."""
    text = json.dumps(result, indent=1) + "\n"
    if output == "-":
        print(text, end="")
        return None
    path = pathlib.Path(output) if output else ROOT / "bench" / "results" / f"{result['date'][:10]}-{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def text_of(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def cpu_model():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--micro-batch-size", type=int, default=4)
    parser.add_argument("--seq-length", type=int, default=256)
    parser.add_argument("--decoder-seq-length", type=int, default=0, help="of t5-220m (default there: 128)")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--peer-dtype", choices=["bf16", "fp32"], help="of PyTorch (default: --dtype)")
    parser.add_argument("--lora-r", type=int, default=0, help="train adapters of this rank (0: all weights)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1, help="of each side in a round")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--variants", nargs="+", help="of PyTorch: autocast, weights; with -compile behind, compiled")
    parser.add_argument("--piton", default=str(ROOT / "build" / "piton"))
    parser.add_argument("--note", help="about the machine: 'shared' if others use it meanwhile")
    parser.add_argument("--output", help="default: bench/results/DATE-train-...json; - for stdout alone")
    arguments = parser.parse_args()

    arguments.peer_dtype = arguments.peer_dtype or arguments.dtype
    if arguments.model == "t5-220m":
        arguments.decoder_seq_length = arguments.decoder_seq_length or 128

    import torch
    import transformers

    torch.set_num_threads(arguments.threads)
    default = ["weights", "weights-compile"] if arguments.peer_dtype == "fp32" else [
        "autocast", "autocast-compile", "weights", "weights-compile"]
    variants = []
    for name in arguments.variants or default:
        weights, _, compiled = name.partition("-")
        variants.append(Variant(arguments, weights, compiled == "compile"))
    for variant in variants:
        for _ in range(2):
            variant.step(keep=False)
        print(f"warmed up {variant.name}", file=sys.stderr, flush=True)

    piton = []
    for turn in range(arguments.rounds):
        for variant in variants:
            for _ in range(arguments.steps):
                variant.step()
        run = subprocess.run(piton_command(arguments, arguments.steps), capture_output=True, text=True, check=True)
        piton.append(json.loads(run.stdout))
        best = {variant.name: round(min(variant.seconds), 4) for variant in variants}
        print(f"round {turn + 1}: {best}, piton {min(one['best_seconds'] for one in piton):.4f}", file=sys.stderr, flush=True)

    tokens = arguments.micro_batch_size * arguments.seq_length
    fastest = min(variants, key=lambda variant: min(variant.seconds))
    peer = min(fastest.seconds)
    own = min(one["best_seconds"] for one in piton)
    peak = max(one.get("peak_gflops", 0) for one in piton)
    result = {
        "what": "training step: forward, backward, clipping, AdamW" + (", of adapters" if arguments.lora_r else ""),
        "command": command_line(arguments),
        "piton_command": " ".join(["piton", *piton_command(arguments, arguments.steps)[1:]]),
        "commit": text_of("git", "rev-parse", "HEAD"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": arguments.threads, "system": platform.system(),
                    **({"note": arguments.note} if arguments.note else {})},
        "peer": {"torch": torch.__version__, "transformers": transformers.__version__, "fastest": fastest.name},
        "tokens_per_step": tokens,
        "piton_tokens_per_second": tokens / own,
        "peer_tokens_per_second": tokens / peer,
        "times_peer": peer / own,
        "piton_share_of_peak": max(one.get("share_of_peak", 0) for one in piton),
        "peak_gflops": peak,
        "piton_peak_memory_bytes": piton[0]["peak_memory_bytes"],
        "piton_peak_resident_bytes": piton[0]["peak_resident_bytes"],
        "raw": {"peer_seconds": {variant.name: variant.seconds for variant in variants}, "piton": piton},
    }
    if len(variants) == 1:  # of several, the process holds all
        result["peer_peak_resident_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    kind = "lora" if arguments.lora_r else "train"
    dtypes = arguments.dtype + (f"-against-{arguments.peer_dtype}" if arguments.peer_dtype != arguments.dtype else "")
    name = f"{kind}-{arguments.model}-{dtypes}-{arguments.micro_batch_size}x{arguments.seq_length}"
    path = write_result(result, arguments.output, name)
    if path is None:
        return
    print(f"{path}: piton {tokens / own:.0f} tokens/s, PyTorch ({fastest.name}) {tokens / peer:.0f}, ratio {peer / own:.2f}")


if __name__ == "__main__":
    main()
