"""BERT and T5 of megatron-core, on the CPU: checkpoints in golden files, and what `piton convert` makes of them.

  python tools/oracle/megatron_encoders.py golden tests/golden/megatron_encoders      (torch 2.15, megatron-core 0.16.1)
  python tools/oracle/megatron_encoders.py compare build/piton tests/golden/megatron_encoders

golden   writes a folder for each case of CASES: iter_0000005/mp_rank_00/model_optim_rng.pt with the state_dict() of a
         model of random weights and the arguments that Megatron-LM saves with it, and expected.safetensors: `tokens`,
         `types`, `segments` (0, or -1 for padding), `labels` (-100 where nothing is predicted), int32 [2, s]; of BERT
         `pair_labels` int32 [2]; of T5 `decoder` int32 [2, r], of whose rows the labels are; `logits` in float64, and
         `loss` (words + pairs) and `words`. Of the cases in DIST also dist/iter_0000005, the folder that its
         dist_checkpointing writes of the same model (torch_dist)
compare  piton convert writes each case in both module trees, for one tensor rank and for two. The files of one rank load
         into a fresh model (strict), and are the state_dict that was saved byte by byte; those of two ranks load into the
         models of two processes, which give the same logits; and back in one file the bytes are the same again. Of torch_dist
         Piton reads what dist_checkpointing has written, which loads what Piton writes, byte by byte, with nothing missing
"""
import argparse
import datetime
import importlib.metadata as metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import megatron_torch_dist
import torch
from safetensors.torch import load_file, save_file

SIZES = dict(layers=2, hidden=24, heads=4, ffn=40, channels=10, vocabulary=64, positions=20)
ROW, DECODER_ROW = 15, 9
CASES = {
    "bert": dict(pairs=True),
    "bert-fused-gelu": dict(pairs=True, fused=True),
    "bert-one-part": dict(pairs=False),
    "t5": dict(tied=True, encoder_layers=3),
    "t5-untied": dict(tied=False, encoder_layers=2, fused=True),
}
DIST = ("bert", "t5")  # with golden files


def prepare(rank=0, ranks=1):
    from megatron.core import parallel_state

    megatron_torch_dist.without_a_gpu()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29523")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)


def tanh_gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


def model_of(name):
    """The model of a case, of this rank, and the arguments of its run."""
    from megatron.core.models.bert.bert_layer_specs import bert_layer_local_spec
    from megatron.core.models.bert.bert_model import BertModel
    from megatron.core.models.T5 import t5_spec
    from megatron.core.models.T5.t5_model import T5Model
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
    from megatron.core.transformer.transformer_config import TransformerConfig
    from megatron.core import parallel_state

    case = CASES[name]
    s = argparse.Namespace(**SIZES)
    fused = case.get("fused", False)

    def config(layers):
        return TransformerConfig(
            num_layers=layers, hidden_size=s.hidden, num_attention_heads=s.heads, ffn_hidden_size=s.ffn, kv_channels=s.channels,
            hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True, bias_activation_fusion=False,
            masked_softmax_fusion=False, persist_layer_norm=False, layernorm_epsilon=1e-5, gradient_accumulation_fusion=False,
            activation_func=tanh_gelu if fused else torch.nn.functional.gelu,
            tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size())

    tied = case.get("tied", True)
    common = dict(vocab_size=s.vocabulary, max_sequence_length=s.positions, share_embeddings_and_output_weights=tied,
                  parallel_output=False)
    if name.startswith("bert"):
        model = BertModel(config(s.layers), num_tokentypes=2 if case["pairs"] else 0, transformer_layer_spec=bert_layer_local_spec,
                          add_binary_head=case["pairs"], **common)
    else:
        def block(layer, layers):
            return TransformerBlockSubmodules([layer] * layers, layer_norm=t5_spec.LNImpl)
        model = T5Model(config(s.layers), config(case["encoder_layers"]),
                        block(t5_spec.encoder_model_with_local_spec(), case["encoder_layers"]),
                        block(t5_spec.decoder_model_with_local_spec(), s.layers), **common)
    model = model.float().eval()
    arguments = argparse.Namespace(
        num_layers=s.layers, encoder_num_layers=case.get("encoder_layers", s.layers), decoder_num_layers=s.layers,
        hidden_size=s.hidden, num_attention_heads=s.heads, ffn_hidden_size=s.ffn, kv_channels=s.channels,
        group_query_attention=False, num_query_groups=1, max_position_embeddings=s.positions, padded_vocab_size=s.vocabulary,
        vocab_size=None, tensor_model_parallel_size=1, pipeline_model_parallel_size=1, swiglu=False, bias_gelu_fusion=fused,
        normalization="LayerNorm", norm_epsilon=1e-5, add_bias_linear=True, position_embedding_type="learned_absolute",
        bert_binary_head=case.get("pairs", True), untie_embeddings_and_output_weights=not tied, params_dtype=torch.float32,
        num_experts=None, hidden_dropout=0.0, attention_dropout=0.0)
    return model, arguments


def weights_of(model):
    return {key: value for key, value in model.state_dict().items() if "_extra_state" not in key}


def batch_of(name):
    torch.manual_seed(5)
    tokens = torch.randint(1, SIZES["vocabulary"], (2, ROW))
    real = torch.arange(ROW)[None] < torch.tensor([[ROW], [ROW - 4]])
    tokens[~real] = 0
    batch = {"tokens": tokens, "segments": real.long() - 1}
    rows, there = (ROW, real) if name.startswith("bert") else (DECODER_ROW, torch.ones(2, DECODER_ROW, dtype=torch.bool))
    labels = torch.randint(1, SIZES["vocabulary"], (2, rows))
    batch["labels"] = torch.where((torch.rand(labels.shape) < 0.5) & there, labels, -100)
    if name.startswith("t5"):
        batch["decoder"] = torch.randint(1, SIZES["vocabulary"], (2, DECODER_ROW))
        return batch
    pairs = CASES[name]["pairs"]
    batch["types"] = (torch.arange(ROW)[None] >= torch.tensor([[6], [7]])).long() * real * pairs
    if pairs:
        batch["pair_labels"] = torch.tensor([1, 0])
    return batch


def results_of(name, model, batch):
    """logits, and the labels' losses."""
    real = batch["segments"] == 0
    cross_entropy = torch.nn.functional.cross_entropy
    with torch.no_grad():
        if name.startswith("bert"):
            pairs = CASES[name]["pairs"]
            logits, order = model(batch["tokens"], real.long(), tokentype_ids=batch["types"] if pairs else None)
        else:
            hidden = ~(real[:, None, :] & real[:, :, None])[:, None]
            causal = torch.triu(torch.ones(DECODER_ROW, DECODER_ROW, dtype=torch.bool), 1).expand(2, 1, -1, -1)
            cross = (~real)[:, None, None, :].expand(2, 1, DECODER_ROW, ROW)
            logits = model(batch["tokens"], batch["decoder"], hidden, causal, cross)
            pairs = False
        words = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)
        loss = words + cross_entropy(order, batch["pair_labels"]) if pairs else words
    return {"logits": logits, "words": words, "loss": loss.clone()}


def saved(folder, state, arguments):
    path = folder / "iter_0000005" / "mp_rank_00"
    path.mkdir(parents=True)
    torch.save({"args": arguments, "checkpoint_version": 3.0, "iteration": 5, "model": state}, path / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("5")


def dist_state(model, arguments):
    return {"args": arguments, "checkpoint_version": 3.0, "iteration": 5, "model": model.sharded_state_dict()}


def save_dist(folder, model, arguments):
    from megatron.core import dist_checkpointing

    target = folder / "iter_0000005"
    target.mkdir(parents=True)
    dist_checkpointing.save(dist_state(model, arguments), str(target))
    (folder / "latest_checkpointed_iteration.txt").write_text("5")


def load_dist(name, folder):
    """The weights that Megatron-core's own loader gives a fresh model; it throws where one is missing."""
    from megatron.core import dist_checkpointing
    from megatron.core.safe_globals import register_safe_globals

    register_safe_globals()
    model, arguments = model_of(name)
    loaded = dist_checkpointing.load(dist_state(model, arguments), str(folder))
    model.load_state_dict(loaded["model"], strict=False)
    return weights_of(model)


def golden(root):
    prepare()
    for name in CASES:
        shutil.rmtree(root / name, ignore_errors=True)
        torch.manual_seed(11)
        model, arguments = model_of(name)
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape)
                gain = parameter.ndim == 1 and "bias" not in key
                parameter.copy_(1 + 0.1 * noise if gain else 0.2 * noise)
        saved(root / name, weights_of(model), arguments)
        if name in DIST:
            save_dist(root / name / "dist", model, arguments)
        batch = batch_of(name)
        results = results_of(name, model.double(), batch)
        origin = f"tools/oracle/megatron_encoders.py, {datetime.date.today()}, torch {metadata.version('torch')}, " \
                 f"megatron-core {metadata.version('megatron-core')}"
        save_file({key: value.to(torch.int32).contiguous() for key, value in batch.items()}
                  | {key: value.contiguous() for key, value in results.items()},
                  root / name / "expected.safetensors", metadata={"format": "pt", "origin": origin})
        print(name, {key: float(value) for key, value in results.items() if value.ndim == 0})


def convert(program, source, target, *options):
    done = subprocess.run([program, "convert", "--load", source, "--save", target, "--quiet", "--to", "mg",
                           "--make-vocab-size-divisible-by", "16", *options], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{source} -> {target} {options}: {done.returncode}: {done.stderr}")


def rank_file(folder, rank=0):
    return torch.load(next(folder.glob(f"*/mp_rank_{rank:02}/model_optim_rng.pt")), weights_only=False)["model"]


def rank_of_two(rank, name, folder, expected):
    prepare(rank, 2)
    model, _ = model_of(name)
    lost = model.load_state_dict(rank_file(pathlib.Path(folder), rank), strict=False)
    missing = [key for key in lost.missing_keys if "_extra_state" not in key] + lost.unexpected_keys
    results = results_of(name, model.double(), batch_of(name))
    worst = float((results["logits"] - load_file(expected)["logits"]).abs().max())
    if missing or worst > 1e-4:
        raise SystemExit(f"{name}: rank {rank} of 2: {missing}, logits {worst:.1e}")


def same(a, b):
    if a.keys() != b.keys():
        return f"names differ: {sorted(a.keys() ^ b.keys())[:4]}"
    for key in a:
        if a[key].shape != b[key].shape or not torch.equal(a[key], b[key]):
            return f"{key} differs"
    return ""


def one_rank_of_dist(_, program, case, work, name):
    """torch_dist in both directions."""
    prepare()
    original = rank_file(case)
    model, arguments = model_of(name)
    model.load_state_dict(original, strict=False)
    save_dist(work / "dist", model, arguments)
    convert(program, work / "dist", work / "read", "--use-mcore-models")
    convert(program, case, work / "written", "--ckpt-format", "torch_dist", "--target-tensor-parallel-size", "2")
    convert(program, work / "written", work / "reread", "--use-mcore-models")
    faults = [same(original, rank_file(work / "read")), same(original, load_dist(name, work / "written" / "release")),
              same(original, rank_file(work / "reread"))]
    if any(faults):
        raise SystemExit(f"{name}: torch_dist read, written, read again: {faults}")


def compare(program, root, work):
    bad = 0
    for name in CASES:
        original = rank_file(root / name)
        convert(program, root / name, work / name / "one", "--use-mcore-models")
        faults = [same(original, rank_file(work / name / "one"))]
        convert(program, root / name, work / name / "two", "--use-mcore-models", "--target-tensor-parallel-size", "2")
        torch.multiprocessing.spawn(rank_of_two, (name, str(work / name / "two"), str(root / name / "expected.safetensors")), 2)
        convert(program, work / name / "two", work / name / "again", "--use-mcore-models")
        faults.append(same(original, rank_file(work / name / "again")))
        convert(program, work / name / "two", work / name / "old", "--target-tensor-parallel-size", "2")
        old = rank_file(work / name / "old")
        wanted = {"language_model", "lm_head"} if name != "t5-untied" else {"language_model"}
        if CASES[name].get("pairs"):
            wanted.add("binary_head")
        if set(old) != wanted:
            faults.append(f"the older tree has {sorted(old)}")
        convert(program, work / name / "old", work / name / "back", "--use-mcore-models")
        faults.append(same(original, rank_file(work / name / "back")))
        torch.multiprocessing.spawn(one_rank_of_dist, (program, root / name, work / name, name), 1)
        faults = [fault for fault in faults if fault]
        bad += bool(faults)
        print("BAD " if faults else "ok  ", name, faults, flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["golden", "compare"])
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    if options.part == "golden":
        return golden(options.paths[0])
    with tempfile.TemporaryDirectory() as work:
        sys.exit(1 if compare(options.paths[0], options.paths[1], pathlib.Path(work)) else 0)


if __name__ == "__main__":
    main()
