"""Time and memory of `piton convert`, compared with a plain copy of the same bytes.

  python bench/convert.py build/piton [--gigabytes 7] [--work DIR] [--repeat 3] [--json]

Makes a Hugging Face folder of LLaMA's shapes in bf16 (random bytes, shards of 2 GB), then measures, from a cold page cache where
the system lets a file be dropped from it (posix_fadvise), and with the result on the disk (fsync):

  copy      every shard is read and written once, in blocks of 8 MB: the speed of the disk
  convert   hf -> piton, hf -> mg of 2 x 2 ranks, mg -> hf; --no-verify

The bars: the copy's time is 85 % of the conversion's or more; resident memory stays below 2 GB and the largest tensor. Needs three
times the bytes on the disk, and removes all that it made. Copies and conversions alternate, and the best of each counts.
"""
import argparse
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

BLOCK = 8 << 20
SHARD = 2_000_000_000
BAR = 0.85
MEMORY_BAR = 2e9


def shapes(gigabytes):
    """hidden, ffn, heads, groups, vocabulary and as many layers as make up the bytes."""
    hidden, ffn, heads, vocabulary = (4096, 11008, 32, 32000) if gigabytes >= 3 else (512, 1408, 8, 8000)
    layer = 2 * (4 * hidden * hidden + 3 * ffn * hidden + 2 * hidden)
    layers = max(1, round((gigabytes * 1e9 - 4 * vocabulary * hidden) / layer))
    return {"hidden": hidden, "ffn": ffn, "heads": heads, "vocabulary": vocabulary, "layers": layers}


def tensors_of(size):
    h, f = size["hidden"], size["ffn"]
    yield "model.embed_tokens.weight", (size["vocabulary"], h)
    for i in range(size["layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (h,)
        for name in "qkvo":
            yield f"{at}self_attn.{name}_proj.weight", (h, h)
        yield at + "post_attention_layernorm.weight", (h,)
        yield at + "mlp.gate_proj.weight", (f, h)
        yield at + "mlp.up_proj.weight", (f, h)
        yield at + "mlp.down_proj.weight", (h, f)
    yield "model.norm.weight", (h,)
    yield "lm_head.weight", (size["vocabulary"], h)


def bytes_of(shape):
    count = 2
    for one in shape:
        count *= one
    return count


def write_shard(path, tensors, noise):
    header, at = {}, 0
    for name, shape in tensors:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes_of(shape)]}
        at += bytes_of(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        left, phase = at, 0
        while left:
            count = min(left, len(noise) - phase)
            file.write(noise[phase:phase + count])
            left -= count
            phase = (phase + count + 4098) % len(noise)  # so that tensors differ; even, so that bf16 stays whole
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder, size):
    folder.mkdir()
    noise = os.urandom(64 << 20)
    shards, total = [[]], 0
    for name, shape in tensors_of(size):
        if total + bytes_of(shape) > SHARD and shards[-1]:
            shards.append([])
            total = 0
        shards[-1].append((name, shape))
        total += bytes_of(shape)
    places = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_shard(folder / name, tensors, noise)
        places.update({tensor: name for tensor, _ in tensors})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": size["hidden"],
        "intermediate_size": size["ffn"], "num_hidden_layers": size["layers"], "num_attention_heads": size["heads"],
        "num_key_value_heads": size["heads"], "vocab_size": size["vocabulary"], "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False, "dtype": "bfloat16"}))


def files_of(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def drop_from_cache(folder):
    os.sync()
    for path in files_of(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def copy(source, target):
    drop_from_cache(source)
    start = time.monotonic()
    target.mkdir()
    block = bytearray(BLOCK)
    for path in files_of(source):
        with open(path, "rb", buffering=0) as reader, open(target / path.name, "wb", buffering=0) as writer:
            while count := reader.readinto(block):
                writer.write(memoryview(block)[:count])
            os.fsync(writer.fileno())
    seconds = time.monotonic() - start
    shutil.rmtree(target)
    return seconds


def resident_at_most(process):
    """Of the process so far. (What wait4() tells begins with what this program had when it forked.)"""
    try:
        for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def convert(program, source, target, flags):
    """Seconds and bytes of resident memory at most."""
    drop_from_cache(source)
    start = time.monotonic()
    process = subprocess.Popen([program, "convert", "--load", source, "--save", target, "--quiet", "--no-verify", *flags],
                               stdout=subprocess.DEVNULL)
    memory = 0
    while process.poll() is None:
        memory = max(memory, resident_at_most(process.pid))
        time.sleep(0.005)
    os.sync()
    if process.returncode != 0:
        raise SystemExit(f"{source} -> {target}: exit {process.returncode}")
    return time.monotonic() - start, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--gigabytes", type=float, default=7)
    parser.add_argument("--work")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    size = shapes(options.gigabytes)
    total = sum(bytes_of(shape) for _, shape in tensors_of(size))
    largest = max(bytes_of(shape) for _, shape in tensors_of(size))
    results, bad = {}, False
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        work = pathlib.Path(work)
        if shutil.disk_usage(work).free < 3.2 * total:
            raise SystemExit(f"{work}: needs {3.2e-9 * total:.1f} GB free; --work names another folder")
        make_folder(work / "hf", size)
        ranks = ["--to", "mg", "--target-tensor-parallel-size", "2"]
        if size["layers"] % 2 == 0:
            ranks += ["--target-pipeline-parallel-size", "2"]
        copies, runs = [], {"hf to piton": [], "hf to mg": [], "mg to hf": []}
        for _ in range(options.repeat):
            copies.append(copy(work / "hf", work / "copy"))
            runs["hf to piton"].append(convert(options.program, work / "hf", work / "piton", ["--to", "piton"]))
            shutil.rmtree(work / "piton")
            runs["hf to mg"].append(convert(options.program, work / "hf", work / "mg", ranks))
            runs["mg to hf"].append(convert(options.program, work / "mg", work / "back", ["--to", "hf"]))
            shutil.rmtree(work / "mg")
            shutil.rmtree(work / "back")
        best = min(copies)
        for name, measured in runs.items():
            seconds, memory = min(measured)[0], max(memory for _, memory in measured)
            good = best / seconds >= BAR and memory < MEMORY_BAR + largest
            bad = bad or not good
            results[name] = {"seconds": round(seconds, 2), "share_of_copy": round(best / seconds, 3), "resident_bytes": memory}
            if not options.json:
                print(f"{'ok  ' if good else 'BAD '} {name:12} {seconds:7.2f} s, {best / seconds:6.1%} of a copy's speed, "
                      f"{memory * 1e-6:.0f} MB resident", flush=True)
    facts = {"bytes": total, "layers": size["layers"], "largest_tensor": largest, "copy_seconds": round(best, 2),
             "copy_gb_per_second": round(2e-9 * total / best, 3)}
    if options.json:
        print(json.dumps({**facts, **results}))
    else:
        print(f"copy of {total * 1e-9:.2f} GB: {best:.2f} s, {2e-9 * total / best:.2f} GB/s read and written")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
