"""Files of torch.save for the tests of src/pickle.

  python tools/oracle/pickles.py tests/golden/pickle          (torch 2.15)

archive.pt, stream.pt (the format before PyTorch 1.6), protocol4.pt: the same dict of tensors, views and arguments.
"""
import argparse
import collections
import pathlib
import sys

import torch


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(3)
    table = torch.arange(24, dtype=torch.float32).view(4, 6)
    arguments = argparse.Namespace(num_layers=2, lr=1e-3, name="tiny", bf16=True, seeds=[1, 2, 3], params_dtype=torch.bfloat16,
                                   large=2**40, negative=-5, nothing=None)
    value = {
        "args": arguments,
        "iteration": 7,
        "model": collections.OrderedDict(
            table=table, columns=table[:, 2:4], rows=table[1:3], turned=table.t(), parameter=torch.nn.Parameter(torch.ones(3)),
            half=torch.tensor([1.5, -2.0], dtype=torch.bfloat16), scalar=torch.tensor(4.0), empty=torch.empty(0, 5),
            count=torch.tensor([5], dtype=torch.int64)),
        "rng": {"python": (3, (1, 2), None), "state": torch.zeros(4, dtype=torch.uint8)},
    }
    torch.save(value, folder / "archive.pt")
    torch.save(value, folder / "protocol4.pt", pickle_protocol=4)
    torch.save(value, folder / "stream.pt", _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
