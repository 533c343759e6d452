"""What `piton convert` writes, held against Transformers.

  python tools/oracle/convert.py build/piton [--work DIR] [NAME ...]     (torch 2.15, transformers 5.23, safetensors)

For each model of tools/oracle/huggingface.py, in fp32 and in bf16: folder -> checkpoint of Piton -> folder in shards, and
folder -> folder. config.json has the same keys, every tensor is equal byte by byte, the model loads in Transformers without a warning, a missing or an
unexpected key, and gives the same logits.
"""
import argparse
import io
import json
import logging
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from safetensors import safe_open

import huggingface

# Models that a checkpoint of Piton cannot describe yet.
NO_FLAGS = ("llama-biases",)


def convert(program, source, target, *options):
    done = subprocess.run([program, "convert", "--load", source, "--save", target, "--quiet", *options],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{source} -> {target} {options}: {done.returncode}: {done.stderr}")
    return done.stdout


def tensors_of(folder):
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                tensors[name] = file.get_tensor(name)
    return tensors


def same_tensors(a, b):
    if a.keys() != b.keys():
        return f"names differ: {sorted(a.keys() ^ b.keys())[:4]}"
    for name in a:
        if a[name].dtype != b[name].dtype or a[name].shape != b[name].shape:
            return f"{name}: {a[name].dtype} {tuple(a[name].shape)}, {b[name].dtype} {tuple(b[name].shape)}"
        if not torch.equal(a[name].view(torch.uint8), b[name].view(torch.uint8)):
            return f"{name}: other bytes"
    return ""


def loaded(folder):
    """The model as Transformers loads it, and everything that it complains of."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    root = logging.getLogger("transformers")
    root.addHandler(handler)
    transformers.logging.set_verbosity_warning()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    transformers.logging.set_verbosity_error()
    root.removeHandler(handler)
    complaints = [str(one.message) for one in caught] + said.getvalue().splitlines()
    complaints += [f"{key}: {value}" for key, value in info.items() if value]
    return model.eval(), complaints


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def activation_of(folder):
    config = config_of(folder)
    return next((config[key] for key in ("activation_function", "hidden_activation", "hidden_act") if key in config), None)


def check(program, name, model, work):
    source = work / name
    model.save_pretrained(source)
    wanted = tensors_of(source)
    # Some models are known to no Transformers; of those the tensors are compared.
    known = config_of(source)["model_type"] in transformers.CONFIG_MAPPING
    if known:
        model, _ = loaded(source)  # its angles are of fp32, whatever the weights are
    convert(program, source, work / (name + "-again"), "--to", "hf", "--max-shard-size", "40k")
    made, faults = [work / (name + "-again")], []
    if not name.startswith(NO_FLAGS):
        convert(program, source, work / (name + "-piton"))
        convert(program, work / (name + "-piton"), work / (name + "-hf"))
        made.append(work / (name + "-hf"))
    pickled = work / (name + "-bin")
    pickled.mkdir()
    (pickled / "config.json").write_text((source / "config.json").read_text())
    torch.save(wanted, pickled / "pytorch_model.bin", _use_new_zipfile_serialization="bf16" in name)
    convert(program, pickled, work / (name + "-unpickled"), "--to", "hf")
    made.append(work / (name + "-unpickled"))
    for folder in made:
        # A checkpoint of Piton remembers the folder that its weights come from.
        if config_of(folder) != config_of(source):
            faults.append(f"{folder.name}: another config.json")
        faults += differences(source, wanted, model if known else None, folder)
    print(f"{'BAD ' if faults else 'ok  '} {name:28} {len(wanted)} tensors, {next(iter(wanted.values())).dtype}", *faults, sep="\n     " if faults
          else " ", flush=True)
    return bool(faults)


def differences(source, wanted, model, folder):
    """What `folder` has otherwise than `source`, whose tensors and model (None: no Transformers knows it) are `wanted` and `model`."""
    # A folder of another type holds the same model in other pieces.
    same_type = config_of(folder)["model_type"] == config_of(source)["model_type"]
    fault = same_tensors(wanted, tensors_of(folder)) if same_type else ""
    faults = [f"{folder.name}: {fault}"] if fault else []
    if model is None or config_of(folder)["model_type"] not in transformers.CONFIG_MAPPING:
        return faults
    theirs, complaints = loaded(folder)
    faults += [f"{folder.name}: {one}" for one in complaints]
    if theirs.dtype != model.dtype:
        faults.append(f"{folder.name}: loads as {theirs.dtype}")
    tokens = torch.randint(0, model.config.vocab_size, (1, 20))
    with torch.no_grad():
        logits = model(tokens).logits
        difference = float((theirs(tokens).logits - logits).abs().max())
    # One activation has several names, under which Transformers computes it in other pieces.
    same_pieces = same_type and activation_of(folder) == activation_of(source)
    if difference > (0 if same_pieces else 2e-5 * float(logits.abs().max()) if theirs.dtype == torch.float32 else max(0.1, 0.03 * float(logits.abs().max()))):
        faults.append(f"{folder.name}: other logits: {difference}")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--work")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(options.work or folder)
        for name, make in {**huggingface.GOLDEN, **huggingface.MORE}.items():
            if options.names and name not in options.names:
                continue
            model = huggingface.build(make)
            model.config._attn_implementation = "sdpa"
            bad += check(options.program, name, model, work)
            bad += check(options.program, name + "-bf16", model.bfloat16(), work)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
