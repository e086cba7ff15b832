"""What the tests of stream-train share: matrices, safetensors files, the modules of docs/model.md."""

import json
import pathlib
import re

import numpy as np
import scipy.sparse
import torch

TREE = pathlib.Path(__file__).resolve().parents[2]

# Barriers that spin cost whole time slices where tests share the processors with others.
ENV = {"OMP_WAIT_POLICY": "passive"}


def model_document():
    """The names that the Python parts of docs/model.md define."""
    text = (TREE / "docs" / "model.md").read_text(encoding="utf-8")
    names = {}
    for part in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(part, "docs/model.md", "exec"), names)  # noqa: S102 - our own document
    return names


def read_safetensors(path):
    """(tensors, metadata)"""
    raw = pathlib.Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    meta = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32"
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values = np.frombuffer(raw[begin:end], dtype="<f4").reshape(entry["shape"])
        tensors[name] = torch.from_numpy(values.copy())
    return tensors, meta


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.numpy().astype("<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def random_matrix(rows, cols, per_row, seed):
    """Non-negative, as measurements are."""
    rng = np.random.default_rng(seed)
    return scipy.sparse.random(
        rows, cols, density=per_row / cols, format="csr", dtype=np.float32, random_state=rng
    )


def steps_of(path):
    """The step objects of a JSONL log, and the summary."""
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    assert lines[-1].get("summary") is True
    return [line for line in lines if "step" in line], lines[-1]
