#!/usr/bin/env python3
"""Conversations as Parquet files with lists and structs.

  pip install pyarrow
  python tools/oracle/instruct_parquet.py

Writes the records of tests/golden/instruct/NAME.jsonl as tests/golden/instruct/parquet/NAME.parquet, in two row groups. Keys that
a record lacks are nulls in its row.
"""

import json
import os

import pyarrow
import pyarrow.parquet

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/instruct")
NAMES = ["alpaca", "messages", "sharegpt", "pairs_alpaca", "pairs_sharegpt", "prompts"]


def main():
    os.makedirs(os.path.join(GOLDEN, "parquet"), exist_ok=True)
    for name in NAMES:
        rows = [json.loads(line) for line in open(os.path.join(GOLDEN, name + ".jsonl"))]
        rows = [row.get("record", row) for row in rows]
        # Columns in the order of their first occurrence, of all rows.
        keys = list(dict.fromkeys(key for row in rows for key in row))
        table = pyarrow.Table.from_pylist([{key: row.get(key) for key in keys} for row in rows])
        pyarrow.parquet.write_table(table, os.path.join(GOLDEN, "parquet", name + ".parquet"), compression="zstd",
                                    row_group_size=max(1, (len(rows) + 1) // 2))


if __name__ == "__main__":
    main()
