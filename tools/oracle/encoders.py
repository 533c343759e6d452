"""Hugging Face folders of small random encoders, and of models of an encoder and a decoder, and what Transformers computes
of them in float64.

  python tools/oracle/encoders.py tests/golden/encoders [NAME ...]   (torch 2.15, transformers 5.23, safetensors)

Writes a folder for each case of CASES: config.json and model.safetensors as Transformers saves them, and

  expected.safetensors   `tokens`, `types`, `segments` (0, or -1 for padding), `labels` (-100 where nothing is predicted),
                         int32 [2, s]; `pair_labels` int32 [2] of models with a head for pairs; `logits` and `hidden` (the
                         last hidden states), 0 at padding; `loss` (words + pairs) and `words`; `first` and `mean` [2, h] of
                         the last hidden states if all types are 0, and `pooled`, of a model with a pooler
  gradients.safetensors  the gradient of the loss by every tensor, under the name that the tensor has in the files;
                         `losses` and `norms` of ten steps of torch.optim.AdamW (matrices decay, the rest does not;
                         gradients clipped to norm 1) on the same batch

Cases of PAIRS (T5) have in expected.safetensors `tokens` int32 [2, s] and `segments` of the encoder, `decoder` int32 [2,
r] and `labels` of the decoder, `logits` of all its rows, `hidden` (what its norm gives), `loss`; and texts that are
generated of each sample without its padding, 24 tokens at most, from the start token on, filled up with -1: `greedy` and
`beams` (four).
"""
import datetime
import importlib.metadata as metadata
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

LENGTH, STEPS = 17, 10


def sizes(**more):
    return {**dict(num_hidden_layers=2, hidden_size=24, num_attention_heads=4, intermediate_size=36, vocab_size=67,
                   max_position_embeddings=40), **more}


CASES = {
    "bert": lambda: transformers.BertForPreTraining(transformers.BertConfig(**sizes())),
    "bert-masked": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**sizes(hidden_act="gelu_new"))),
    "megatron-bert": lambda: transformers.MegatronBertForPreTraining(transformers.MegatronBertConfig(**sizes())),
    "roberta": lambda: transformers.RobertaForMaskedLM(transformers.RobertaConfig(**sizes(type_vocab_size=1))),
}
def t5_sizes(**more):
    return {**dict(num_layers=2, num_decoder_layers=3, d_model=24, d_kv=10, num_heads=4, d_ff=36, vocab_size=67,
                   n_positions=40, decoder_start_token_id=0, relative_attention_num_buckets=8,
                   relative_attention_max_distance=12), **more}


def untied(config):
    """As the folders of T5 v1.1 and FLAN-T5: the head has its own table, and its input is not scaled."""
    model = transformers.T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    return model


PAIRS = {
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**t5_sizes())),
    "t5-v1.1": lambda: untied(transformers.T5Config(**t5_sizes(feed_forward_proj="gated-gelu",
                                                               tie_word_embeddings=False))),
}
PAIR_LENGTH, GENERATED = 11, 24


# Without heads: tokens, segments and vectors alone.
VECTORS = {"bert-model": lambda: transformers.BertModel(transformers.BertConfig(**sizes()))}


def build(make):
    torch.manual_seed(7)
    model = make().float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            gain = parameter.ndim == 1 and "bias" not in name
            parameter.copy_(1 + 0.1 * noise if gain else 0.15 * noise)
        model.get_input_embeddings().weight.mul_(4)
    return model


def batch_of(model):
    config = model.config
    pad = config.pad_token_id
    tokens = torch.randint(2, config.vocab_size, (2, LENGTH))
    types = (torch.arange(LENGTH)[None] >= torch.tensor([[6], [8]])).long()
    if config.type_vocab_size == 1:
        types = torch.zeros_like(types)
    real = torch.arange(LENGTH)[None] < torch.tensor([[LENGTH], [LENGTH - 4]])
    tokens[~real], types[~real] = pad, 0
    labels = torch.where(torch.rand(tokens.shape) < 0.3, torch.randint(2, config.vocab_size, tokens.shape), -100)
    labels[~real] = -100
    return tokens, types, real, labels


def losses_of(model, output, labels, pairs):
    logits = output.prediction_logits if pairs is not None else output.logits
    words = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    if pairs is None:
        return words, words
    return words + torch.nn.functional.cross_entropy(output.seq_relationship_logits, pairs), words


def int32(tensor):
    return tensor.to(torch.int32).contiguous()


def vectors_of(model, tokens, real):
    output = model.base_model(input_ids=tokens, attention_mask=real.long())
    plain = output.last_hidden_state
    mean = (plain * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    vectors = {"first": plain[:, 0], "mean": mean}
    if getattr(output, "pooler_output", None) is not None:
        vectors["pooled"] = output.pooler_output
    return {key: value.detach().float().contiguous() for key, value in vectors.items()}


def origin():
    return f"tools/oracle/encoders.py, {datetime.date.today()}, torch {metadata.version('torch')}, " \
           f"transformers {metadata.version('transformers')}"


def golden_vectors(out, make):
    shutil.rmtree(out, ignore_errors=True)
    model = build(make)
    model.save_pretrained(out)
    model = model.double()
    tokens, _, real, _ = batch_of(model)
    save_file({"tokens": int32(tokens), "segments": int32(real.long() - 1)} | vectors_of(model, tokens, real),
              out / "expected.safetensors", metadata={"format": "pt", "origin": origin()})


def saved(out, make):
    """The model of a case in float64 without dropout, after its folder is written."""
    shutil.rmtree(out, ignore_errors=True)
    model = build(make)
    model.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.double()


def texts_of(model, tokens, real, **how):
    """[2, GENERATED + 1]: generated of each text without its padding."""
    rows = torch.full((len(tokens), GENERATED + 1), -1)
    for i in range(len(tokens)):
        # Its cache takes the layers of the encoder for those of the decoder.
        text = model.generate(input_ids=tokens[i][real[i]][None], max_new_tokens=GENERATED, do_sample=False,
                              use_cache=False, **how)[0]
        rows[i, :len(text)] = text
    return rows


def golden_pair(out, make):
    model = saved(out, make)
    model.generation_config.save_pretrained(out)
    vocabulary = model.config.vocab_size
    tokens = torch.randint(2, vocabulary, (2, LENGTH))
    real = torch.arange(LENGTH)[None] < torch.tensor([[LENGTH], [LENGTH - 4]])
    tokens[~real] = 0
    labels = torch.randint(2, vocabulary, (2, PAIR_LENGTH))
    labels[1, -3:] = -100
    decoder = torch.cat([torch.zeros(2, 1, dtype=torch.long), labels[:, :-1].clamp(min=0)], 1)

    def forward():
        return model(input_ids=tokens, attention_mask=real.long(), decoder_input_ids=decoder, labels=labels,
                     output_hidden_states=True)

    output = forward()
    output.loss.backward()
    expected = {"tokens": int32(tokens), "segments": int32(real.long() - 1), "decoder": int32(decoder),
                "labels": int32(labels), "logits": output.logits.detach().float().contiguous(),
                "hidden": output.decoder_hidden_states[-1].detach().float().contiguous(),
                "loss": output.loss.detach().reshape(1), "greedy": int32(texts_of(model, tokens, real)),
                "beams": int32(texts_of(model, tokens, real, num_beams=4))}
    save_file(expected, out / "expected.safetensors", metadata={"format": "pt", "origin": origin()})
    save_training(out, model, lambda: forward().loss)


def golden(out, make):
    model = saved(out, make)
    tokens, types, real, labels = batch_of(model)
    pairs = torch.tensor([1, 0]) if hasattr(model, "cls") and hasattr(model.cls, "seq_relationship") else None

    def forward():
        return model(input_ids=tokens, token_type_ids=types, attention_mask=real.long(), output_hidden_states=True)

    output = forward()
    loss, words = losses_of(model, output, labels, pairs)
    loss.backward()
    logits = output.prediction_logits if pairs is not None else output.logits
    hidden = output.hidden_states[-1]
    made = origin()
    expected = {"tokens": int32(tokens), "types": int32(types), "segments": int32(real.long() - 1),
                "labels": int32(labels), "logits": (logits * real[..., None]).detach().float().contiguous(),
                "hidden": (hidden * real[..., None]).detach().float().contiguous(),
                "loss": loss.detach().reshape(1), "words": words.detach().clone().reshape(1)}
    if pairs is not None:
        expected["pair_labels"] = int32(pairs)
    expected |= vectors_of(model, tokens, real)
    save_file(expected, out / "expected.safetensors", metadata={"format": "pt", "origin": made})
    save_training(out, model, lambda: losses_of(model, forward(), labels, pairs)[0])


def save_training(out, model, loss_of):
    """gradients.safetensors of a model whose gradients are those of loss_of()."""
    stored = load_file(out / "model.safetensors")
    named = dict(model.named_parameters(remove_duplicate=False))
    result = {}
    for key in stored:
        gradient = named[key].grad
        result[key] = torch.zeros_like(named[key]).float() if gradient is None else gradient.float().contiguous()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
                                   {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0}],
                                  lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
        losses.append(float(loss.detach()))
        optimizer.step()
    result["losses"], result["norms"] = torch.tensor(losses).double(), torch.tensor(norms).double()
    save_file(result, out / "gradients.safetensors", metadata={"format": "pt", "origin": origin()})


if __name__ == "__main__":
    for case, make in CASES.items():
        if len(sys.argv) == 2 or case in sys.argv[2:]:
            golden(pathlib.Path(sys.argv[1]) / case, make)
    for case, make in PAIRS.items():
        if len(sys.argv) == 2 or case in sys.argv[2:]:
            golden_pair(pathlib.Path(sys.argv[1]) / case, make)
    for case, make in VECTORS.items():
        if len(sys.argv) == 2 or case in sys.argv[2:]:
            golden_vectors(pathlib.Path(sys.argv[1]) / case, make)
