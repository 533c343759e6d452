"""Log-likelihoods of stories260K's golden texts with keys and values rounded to 8 bits, as --kv-cache-dtype int8 rounds
them, computed by Transformers: tests/golden/stories_cache_codes.txt.

    python tools/oracle/cache_codes.py FOLDER WEIGHTS/weights_golden_260K.json > tests/golden/stories_cache_codes.txt

FOLDER: the model in the form of Hugging Face (tests/support/stories_folder.h writes it)."""
import json
import sys

import torch
import transformers
import transformers.models.llama.modeling_llama as llama

plain_attention = llama.eager_attention_forward


def rounded(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.where(scale > 0, torch.round(x / scale).clamp(-127, 127) * scale, 0)


def attention(module, query, key, value, mask, **options):
    return plain_attention(module, query, rounded(key), rounded(value), mask, **options)


def log_likelihood(model, ids):
    with torch.no_grad():
        all_of = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    return float(sum(all_of[i, ids[i + 1]] for i in range(len(ids) - 1)))


def main():
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], attn_implementation="eager")
    with open(sys.argv[2]) as file:
        texts = [case["greedy_ids"] for case in json.load(file)["models"]["stories260K"]["cases"]]
    whole = [log_likelihood(model, ids) for ids in texts]
    llama.eager_attention_forward = attention
    print(f"# tools/oracle/cache_codes.py with Transformers {transformers.__version__}, PyTorch {torch.__version__}")
    print("# of each text: with keys and values as they are, and rounded to 8 bits")
    for ids, full in zip(texts, whole):
        print(f"{full:.6f} {log_likelihood(model, ids):.6f}")


if __name__ == "__main__":
    main()
