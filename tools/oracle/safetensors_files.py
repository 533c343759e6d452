"""Golden files for the safetensors reader and writer, made by the PyPI package `safetensors`.

    python tools/oracle/safetensors_files.py tests/golden/safetensors   writes mixed.safetensors and
                                                                        verdicts.txt there
    python tools/oracle/safetensors_files.py --read FILE...             reads files that Piton wrote

Needs: safetensors, numpy, ml_dtypes.
"""

import datetime
import json
import pathlib
import struct
import sys

import ml_dtypes
import numpy
import safetensors
import safetensors.numpy

DTYPES = {"F64": numpy.float64, "F32": numpy.float32, "F16": numpy.float16, "BF16": ml_dtypes.bfloat16,
          "I64": numpy.int64, "I32": numpy.int32, "U8": numpy.uint8}


def head():
    return (f"safetensors {safetensors.__version__}, numpy {numpy.__version__}: "
            f"python tools/oracle/safetensors_files.py DIR, {datetime.date.today()}")


def mixed(path):
    """One tensor of each type: elements are i / 8 - 1 (whole numbers: i)."""
    tensors = {}
    for name, shape in {"F64": (2, 3), "F32": (5,), "F16": (3, 1, 2), "BF16": (4, 2), "I64": (), "I32": (0, 7),
                        "U8": (1,)}.items():
        count = int(numpy.prod(shape, dtype=numpy.int64))
        ramp = numpy.arange(count)
        values = ramp if name[0] in "IU" else ramp / 8 - 1
        array = values.astype(DTYPES[name]).reshape(shape)
        tensors[f"{name} \u00e9\"x"] = array
    path.write_bytes(safetensors.numpy.save(tensors, {"format": "pt", "made by": head()}))


def file_of(header, data=b"", length=None):
    if not isinstance(header, bytes):
        header = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def cases():
    f32 = lambda begin, end, shape=(1,): {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    big = 1 << 62
    return {
        "one tensor": file_of({"a": f32(0, 4)}, bytes(4)),
        "two tensors in either order": file_of({"b": f32(4, 8), "a": f32(0, 4)}, bytes(8)),
        "spaces behind the header": file_of(text + "}   ", bytes(4)),
        "no tensors": file_of("{}"),
        "metadata alone": file_of({"__metadata__": {"k": "v"}}),
        "an empty tensor": file_of({"a": f32(0, 0, (0, 3))}),
        "a single number": file_of({"a": f32(0, 4, ())}, bytes(4)),
        "an empty tensor between two": file_of({"a": f32(0, 4), "b": f32(4, 4, (0,)), "c": f32(4, 8)}, bytes(8)),
        "an empty file": b"",
        "seven bytes": bytes(7),
        "a header of no bytes": file_of(b""),
        "a header longer than the file": file_of({"a": f32(0, 4)}, bytes(4), 1000),
        "a header of 2^63 bytes": file_of({"a": f32(0, 4)}, bytes(4), 1 << 63),
        "a header of 2^64 - 1 bytes": file_of({"a": f32(0, 4)}, bytes(4), (1 << 64) - 1),
        "a header of 100 MB and a byte": file_of({"a": f32(0, 4)}, bytes(4), 100_000_001),
        "a list": file_of("[]"),
        "spaces before the header": file_of(" " + text + "}", bytes(4)),
        "cut JSON": file_of(text, bytes(4)),
        "two objects": file_of(text + "}{}", bytes(4)),
        "invalid UTF-8": file_of(b'{"\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        "no data": file_of({"a": f32(0, 4)}),
        "a byte too few": file_of({"a": f32(0, 4)}, bytes(3)),
        "a byte too many": file_of({"a": f32(0, 4)}, bytes(5)),
        "a hole": file_of({"a": f32(0, 4), "b": f32(8, 12)}, bytes(12)),
        "a hole at the start": file_of({"a": f32(4, 8)}, bytes(8)),
        "an overlap": file_of({"a": f32(0, 8, (2,)), "b": f32(4, 12, (2,))}, bytes(12)),
        "the same bytes twice": file_of({"a": f32(0, 4), "b": f32(0, 4)}, bytes(4)),
        "offsets in reverse": file_of({"a": f32(4, 0)}, bytes(4)),
        "offsets beyond the file": file_of({"a": f32(0, 4), "b": f32(4, 4000)}, bytes(8)),
        "negative offsets": file_of({"a": f32(-4, 0)}, bytes(4)),
        "one offset": file_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}, bytes(4)),
        "three offsets": file_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]}}, bytes(4)),
        "a fractional offset": file_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4.5]}}, bytes(4)),
        "a negative size": file_of({"a": f32(0, 4, (-1,))}, bytes(4)),
        "a size that overflows": file_of({"a": f32(0, 4, (big, 8))}, bytes(4)),
        "sizes whose product wraps to the right one": file_of({"a": f32(0, 4, (1 << 32, 1 << 32, 1))}, bytes(4)),
        "a size above 64 bits": file_of('{"a":{"dtype":"F32","shape":[18446744073709551617],"data_offsets":[0,4]}}', bytes(4)),
        "another size than its shape": file_of({"a": f32(0, 4, (2,))}, bytes(4)),
        "an unknown type": file_of({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        "a type that is a number": file_of({"a": {"dtype": 32, "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        "no type": file_of({"a": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        "no shape": file_of({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)),
        "no offsets": file_of({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
        "a tensor that is a number": file_of({"a": 1}, bytes(4)),
        "a tensor that is null": file_of({"a": None}, bytes(4)),
        "metadata that is a number": file_of({"__metadata__": {"k": 1}}),
        "metadata that is an object": file_of({"__metadata__": {"k": {}}}),
        "metadata that is text": file_of({"__metadata__": "k"}),
        "a name twice": file_of(text + ',"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        "a name twice, in other places": file_of(text + ',"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8)),
        "a type twice": file_of('{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        "a metadata key twice": file_of('{"__metadata__":{"k":"v","k":"w"}}'),
        "an unknown field": file_of('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}', bytes(4)),
        "half a byte": file_of({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}}, bytes(1)),
        "two half bytes": file_of({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, bytes(1)),
        "deep nesting": file_of("{\"a\":" * 10000 + "1" + "}" * 10000),
    }


def verdict(data):
    try:
        safetensors.deserialize(data)
        return "accepts"
    except Exception:  # the package has one type for all of them, and Python adds its own
        return "refuses"


def main():
    if sys.argv[1] == "--read":
        for name in sys.argv[2:]:
            with safetensors.safe_open(name, framework="numpy") as file:
                print(name, file.metadata())
            for key, info in sorted(safetensors.deserialize(pathlib.Path(name).read_bytes())):
                print(" ", key, info["dtype"], info["shape"], len(info["data"]))
        return
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    mixed(folder / "mixed.safetensors")
    with open(folder / "verdicts.txt", "w") as out:
        print(f"# {head()}", file=out)
        print("# what the package says of a file, the file in hexadecimal, what is in it", file=out)
        for name, data in cases().items():
            # 100 000 bytes of nesting say no more than their first 200.
            shown = data.hex() if len(data) < 1000 else "nested"
            print(f"{verdict(data)} {shown or '-'} {name}", file=out)


main()
