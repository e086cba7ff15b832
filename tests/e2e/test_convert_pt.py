"""tile-convert on what torch.save writes, and what it must refuse, against PyTorch."""

import pickle
import subprocess
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from conftest import command
from convert_support import convert, random_matrix, refuse  # noqa: F401


def coo_of(m, dtype=torch.float64, index=torch.int64):
    c = m.tocoo()
    i = torch.tensor(np.stack([c.coords[0], c.coords[1]])).to(index)
    return torch.sparse_coo_tensor(i, torch.tensor(c.data).to(dtype), m.shape,
                                   check_invariants=False)


LAYOUTS = {"coo": lambda t: t, "coalesced": lambda t: t.coalesce(),
           "csr": lambda t: t.to_sparse_csr(), "csc": lambda t: t.to_sparse_csc(),
           "dense": lambda t: t.to_dense(), "dense-columns": lambda t: t.to_dense().T.contiguous().T}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("transpose", [False, True])
def test_layouts(convert, layout, transpose):
    m = random_matrix(130, 90, 0.1)
    torch.save(LAYOUTS[layout](coo_of(m)), "a.pt")
    options = ["--transpose"] if transpose else []
    convert("a.pt", "--values", "f64", "--ram-budget", "16M", *options,
            expect=m.T if transpose else m, dtype=np.float64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "int32",
                                   "int16", "int8", "uint8", "bool"])
def test_types(convert, dtype):
    m = random_matrix(40, 60, 0.2)
    m.data = np.random.default_rng(1).integers(1, 100, m.nnz).astype(float)
    t = coo_of(m, getattr(torch, dtype))
    want = sp.coo_array((t._values().double().numpy(), tuple(t._indices().numpy())), m.shape)
    torch.save(t, "a.pt")
    convert("a.pt", expect=want)


def test_int32_indices(convert):
    m = random_matrix(40, 60, 0.2)
    t = torch.sparse_csr_tensor(torch.tensor(m.indptr.astype(np.int32)),
                                torch.tensor(m.indices.astype(np.int32)), torch.tensor(m.data),
                                m.shape)
    torch.save(t, "a.pt")
    convert("a.pt", expect=m)


def test_duplicates_not_coalesced(convert):
    i = torch.tensor([[0, 2, 0, 1], [1, 0, 1, 2]])
    t = torch.sparse_coo_tensor(i, torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 4))
    torch.save(t, "a.pt")
    convert("a.pt", expect=t.to_dense().numpy())


def test_views_with_strides_and_offsets(convert):
    rng = np.random.default_rng(2)
    pairs = torch.tensor(rng.integers(0, 30, (500, 2)))  # stride (1, 2) once turned
    values = torch.tensor(rng.integers(-99, 99, 3000) / 8.0)  # sums of duplicates are exact
    t = torch.sparse_coo_tensor(pairs.T, values[7:2507:5], (30, 30))
    torch.save(t, "a.pt")
    want = sp.coo_array((t._values().numpy(), tuple(t._indices().numpy())), (30, 30))
    convert("a.pt", "--values", "f64", expect=want, dtype=np.float64)
    dense = torch.tensor(rng.standard_normal((60, 50)))[10:40:3, 5:45:2]
    torch.save(dense, "a.pt")
    convert("a.pt", expect=dense.numpy())
    torch.save(torch.ones(1).expand(6, 4), "a.pt")
    convert("a.pt", expect=np.ones((6, 4)))
    wide = torch.tensor(rng.standard_normal((9, 30000)))[:, ::9999]
    torch.save(wide, "a.pt")
    convert("a.pt", expect=wide.numpy())


def test_dicts_and_keys(convert, refuse):
    a, b = random_matrix(20, 30, 0.2), random_matrix(11, 12, 0.3, seed=1)
    torch.save({"A": coo_of(a), "note": "x", "n": 3, "lr": 0.5, "l": [1, None, True],
                "x": torch.ones(3)}, "a.pt")
    convert("a.pt", expect=a)
    torch.save({"A": coo_of(a), "B": coo_of(b)}, "a.pt")
    convert("a.pt", "--key", "B", expect=b)
    refuse("a.pt", code=2, says=["A, B", "--key"])
    refuse("a.pt", "--key", "C", code=2, says=["A, B"])
    torch.save(torch.nn.Parameter(torch.eye(5)), "a.pt")
    convert("a.pt", expect=np.eye(5))
    torch.save(torch.nn.Linear(3, 4, bias=False).state_dict(), "a.pt")
    assert convert("a.pt")["entries"] == 12


def test_complex(convert, refuse):
    rng = np.random.default_rng(0)
    m = random_matrix(30, 20, 0.2).astype(complex)
    m.data = m.data + 1j * rng.standard_normal(m.nnz)
    for dtype in (torch.complex128, torch.complex64):
        t = coo_of(m, dtype)
        exact = sp.csr_array(m.astype(np.complex64) if dtype == torch.complex64 else m)
        torch.save(t, "a.pt")
        refuse("a.pt", code=2, says=["complex", "--part real|imag|abs|stack"])
        kinds = {"real": exact.real, "imag": exact.imag,
                 "stack": sp.block_array([[exact.real, -exact.imag], [exact.imag, exact.real]])}
        for part, want in kinds.items():
            convert("a.pt", "--values", "f64", "--part", part, expect=want, dtype=np.float64)
        r = convert("a.pt", "--values", "f64", "--part", "abs")
        assert r["entries"] == m.nnz
        convert("a.pt", "--values", "f64", "--part", "stack", "--transpose",
                expect=kinds["stack"].T, dtype=np.float64)
    torch.save(torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.tensor([1j, 1.0]),
                                       (2, 2)), "a.pt")
    refuse("a.pt", "--part", "abs", code=2, says=["row 0, column 1", "abs"])


def test_no_entries(convert):
    for t in (torch.sparse_coo_tensor(size=(5, 7)), torch.sparse_coo_tensor(size=(5, 7))
              .to_sparse_csr(), torch.zeros(5, 7)):
        torch.save(t, "a.pt")
        convert("a.pt", expect=sp.csr_array((5, 7)))


def test_refused(refuse):
    torch.save(coo_of(random_matrix(9, 8, 0.3)), "a.pt", _use_new_zipfile_serialization=False)
    refuse("a.pt", code=2, says=["torch.load", "save it again"])
    torch.save(torch.ones(3), "a.pt")
    refuse("a.pt", code=2, says=["two dimensions"])
    torch.save(torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.ones(1, 3), (2, 2, 3)),
               "a.pt")
    refuse("a.pt", code=2, says=["plain matrix"])
    torch.save(torch.ones(4, 4).to_sparse_bsr((2, 2)), "a.pt")
    refuse("a.pt", code=2, says=["sparse_bsr", "to_sparse_coo"])
    torch.save({"m": torch.nn.Linear(2, 2)}, "a.pt")
    refuse("a.pt", code=2, says=["torch.nn.modules.linear.Linear", "save only the tensor"])
    torch.save([1, 2], "a.pt")
    refuse("a.pt", code=2, says=["neither"])


class Evil:
    def __reduce__(self):
        return (open, ("pwned", "w"))


def test_no_code_is_run(refuse, tmp_path):
    torch.save(torch.eye(3), "a.pt")
    with zipfile.ZipFile("a.pt") as z, zipfile.ZipFile("b.pt", "w") as out:
        for n in z.namelist():
            out.writestr(n, pickle.dumps(Evil(), 2) if n.endswith("data.pkl") else z.read(n))
    refuse("b.pt", code=2, says=["open"])
    assert not (tmp_path / "pwned").exists()


def test_cuda_tag(convert):
    m = random_matrix(9, 8, 0.3)
    torch.save(coo_of(m), "a.pt")
    with zipfile.ZipFile("a.pt") as z, zipfile.ZipFile("b.pt", "w") as out:
        for n in z.namelist():
            data = z.read(n)
            if n.endswith("data.pkl"):
                assert b"X\x03\x00\x00\x00cpu" in data
                data = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            out.writestr(n, data)
    convert("b.pt", expect=m)


def test_every_cut_and_flipped_bytes(tmp_path):
    m = random_matrix(20, 30, 0.1)
    torch.save(coo_of(m), "a.pt")
    data = open("a.pt", "rb").read()
    subprocess.run(command("tile-convert", "--codec", "raw", "a.pt", "good.tiles"), check=True,
                   capture_output=True)
    good = open("good.tiles", "rb").read()
    rng = np.random.default_rng(0)
    cases = [data[: len(data) * p // 100] for p in range(100)]
    for _ in range(300):
        bad = bytearray(data)
        bad[rng.integers(len(data))] ^= 1 << rng.integers(8)
        cases.append(bytes(bad))
    for bad in cases:
        open("bad.pt", "wb").write(bad)
        (tmp_path / "out.tiles").unlink(missing_ok=True)
        done = subprocess.run(command("tile-convert", "--codec", "raw", "bad.pt", "out.tiles"),
                              capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            assert open("out.tiles", "rb").read() == good
        else:
            assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done
