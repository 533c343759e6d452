#!/usr/bin/env python3
"""Questions of evaluation tasks as Parquet files.

  pip install pyarrow
  python tools/oracle/evaluation_parquet.py

Writes the records of tests/golden/evaluation/data as tests/golden/evaluation/parquet/TASK/SPLIT-00000-of-00001.parquet.
"""

import json
import os

import pyarrow
import pyarrow.parquet

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/evaluation")
FILES = {"boolq": "validation", "hellaswag": "validation", "arc_easy": "test", "piqa": "validation",
         "winogrande": "validation", "gsm8k": "test"}


def main():
    for task, split in FILES.items():
        rows = [json.loads(line) for line in open(os.path.join(GOLDEN, "data", task, split + ".jsonl"))]
        folder = os.path.join(GOLDEN, "parquet", task)
        os.makedirs(folder, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows),
                                    os.path.join(folder, split + "-00000-of-00001.parquet"), compression="snappy")


if __name__ == "__main__":
    main()
