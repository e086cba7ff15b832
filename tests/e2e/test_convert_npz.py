"""tile-convert on SciPy's .npz and on folders of .npy, against SciPy."""

import io
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from convert_support import convert, random_matrix, refuse  # noqa: F401


def save(path, compressed=False, **arrays):
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return path


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("transpose", [False, True])
def test_formats(convert, kind, compressed, transpose):
    m = random_matrix(400, 230, 0.05)
    sp.save_npz("a.npz", m.asformat(kind), compressed=compressed)
    options = ["--transpose"] if transpose else []
    convert("a.npz", *options, expect=m.T if transpose else m)
    convert("a.npz", "--values", "f64", "--ram-budget", "16M", *options,
            expect=m.T if transpose else m, dtype=np.float64)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8",
                                   "?", ">f4", ">f8", ">i4"])
@pytest.mark.parametrize("index", ["i4", "i8", "u4", ">i4"])
def test_types(convert, dtype, index):
    rng = np.random.default_rng(0)
    n = 500
    row, col = rng.integers(0, 60, n), rng.integers(0, 50, n)
    place = np.unique(row * 50 + col)
    row, col = place // 50, place % 50
    val = rng.integers(1, 100, len(place)).astype(dtype)
    save("a.npz", row=row.astype(index), col=col.astype(index), data=val, shape=np.array([60, 50]),
         format=np.bytes_("coo"))
    convert("a.npz", expect=sp.coo_array((val.astype("f8"), (row, col)), (60, 50)))


def test_format_name_as_text(convert):
    m = random_matrix(9, 8, 0.5)
    save("a.npz", indptr=m.indptr, indices=m.indices, data=m.data, shape=m.shape, format="csr")
    convert("a.npz", expect=m)


def test_unsorted_rows_and_duplicates(convert):
    rng = np.random.default_rng(3)
    m = random_matrix(300, 400, 0.1).tocsr()
    for i in range(300):  # shuffle each row, and repeat some entries
        part = slice(m.indptr[i], m.indptr[i + 1])
        order = rng.permutation(m.indptr[i + 1] - m.indptr[i])
        m.indices[part], m.data[part] = m.indices[part][order], m.data[part][order]
    m.has_sorted_indices = False
    sp.save_npz("a.npz", m)
    convert("a.npz", "--values", "f64", expect=m, dtype=np.float64)
    twice = sp.csr_array((np.tile(m.data, 2), np.tile(m.indices, 2),
                          np.append(m.indptr, m.indptr[1:] + m.indptr[-1])), (600, 400))
    folded = sp.coo_array(twice)
    coo = sp.coo_array((folded.data, (folded.coords[0] % 300, folded.coords[1])), (300, 400))
    sp.save_npz("b.npz", coo)
    r = convert("b.npz", "--values", "f64", expect=2 * m, dtype=np.float64)
    assert r["duplicates"] == m.nnz


def test_csr_with_spare_room(convert):
    m = random_matrix(30, 40, 0.1)
    save("a.npz", indptr=m.indptr, indices=np.append(m.indices, [7, 7, 7]),
         data=np.append(m.data, [1, 2, 3]), shape=m.shape, format=np.bytes_("csr"))
    convert("a.npz", expect=m)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (5, 7), (70000, 3), (3, 200000)])
def test_shapes_without_and_with_entries(convert, shape):
    for kind in ("csr", "csc", "coo"):
        sp.save_npz("a.npz", sp.coo_array(shape).asformat(kind))
        convert("a.npz", expect=sp.csr_array(shape))
        m = random_matrix(*shape, min(1.0, 2000 / (shape[0] * shape[1])))
        sp.save_npz("a.npz", m.asformat(kind))
        convert("a.npz", expect=m)


def test_zip64(convert):
    m = random_matrix(30, 40, 0.3)
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_DEFLATED) as z:
        for name, value in dict(row=m.tocoo().coords[0], col=m.tocoo().coords[1], data=m.data,
                                shape=np.array(m.shape), format=np.bytes_("coo")).items():
            with z.open(name + ".npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, np.asarray(value))
    convert("a.npz", expect=m)


def test_zip_with_leading_extra_members_and_comment(convert):
    m = random_matrix(30, 40, 0.3)
    sp.save_npz("a.npz", m)
    with zipfile.ZipFile("a.npz", "a") as z:
        z.writestr("notes.txt", "hello")
        z.comment = b"PK\5\6 looks like an end record" * 20
    convert("a.npz", expect=m)


def test_found_by_content(convert):
    m = random_matrix(30, 40, 0.3)
    sp.save_npz("a.npz", m)
    convert(__import__("shutil").copy("a.npz", "matrix.bin"), expect=m)


def test_folder(convert, refuse, tmp_path):
    m = random_matrix(80, 90, 0.2).tocoo()
    (tmp_path / "dir").mkdir()
    order = np.random.default_rng(0).permutation(m.nnz)
    for name, value in dict(row=m.coords[0][order], col=m.coords[1][order], data=m.data[order],
                            shape=np.array(m.shape)).items():
        np.save(f"dir/{name}.npy", value)
    convert("dir", expect=m)
    convert("dir", "--transpose", expect=m.T)
    np.save("dir/data.npy", m.data[:-1])
    refuse("dir", says=["data.npy", "as many"])
    (tmp_path / "dir" / "data.npy").unlink()
    refuse("dir", says=["data.npy"])


def test_tiles_again(convert, refuse):
    m = random_matrix(3000, 2000, 0.02, dtype=np.float32)
    sp.save_npz("a.npz", m)
    convert("a.npz", "--tile-size", "64K", "--panel-columns", "300", out="a.tiles", expect=m)
    for options in (["--tile-size", "16K", "--codec", "raw"], ["--codec", "zstd:9"],
                    ["--panel-columns", "7"], ["--values", "f64"], ["--transpose"], []):
        convert("a.tiles", *options, expect=m.T if "--transpose" in options else m,
                dtype=np.float64)
    r = convert("a.tiles", "--values", "bf16")
    got = r["store"].val if "store" in r else None
    assert got is None
    m.data[:] = 2.5
    sp.save_npz("c.npz", m)
    convert("c.npz", out="c.tiles", expect=m)
    convert("c.tiles", "--tile-size", "8K", out="d.tiles", expect=m)
    bad = bytearray(open("a.tiles", "rb").read())
    bad[len(bad) // 2] ^= 0x55
    open("bad.tiles", "wb").write(bad)
    refuse("bad.tiles", says=["bad.tiles"])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_small_value_types(convert, kind):
    import torch

    rng = np.random.default_rng(5)
    m = random_matrix(200, 200, 0.2)
    m.data *= 2.0 ** rng.integers(-30, 12, m.nnz)
    m.data[:4] = [1 + 2**-11, 1 + 2**-11 + 2**-40, 2**-25, 2**-25 + 2**-50]  # halves, and above
    sp.save_npz("a.npz", m)
    if kind == "f16":
        want = m.data.astype(np.float16).astype(np.float64)
    else:  # NumPy has none: through f32 is right wherever f32 is no half between two bf16
        want = torch.tensor(m.data.astype(np.float32)).to(torch.bfloat16).double().numpy()
        double_rounded = (m.data.astype(np.float32) != m.data) & (
            m.data.astype(np.float32).view(np.uint32) & 0xFFFF == 0x8000)
        assert double_rounded.sum() <= 1
    convert("a.npz", "--values", kind, expect=sp.csr_array((want, m.indices, m.indptr), m.shape))


# --- what is damaged ---


def rewrite(change):
    """a.npz with one member changed."""
    m = random_matrix(40, 30, 0.2)
    arrays = dict(indptr=m.indptr, indices=m.indices, data=m.data, shape=np.array(m.shape),
                  format=np.bytes_("csr"))
    for name, value in change.items():
        if value is None:
            del arrays[name]
        else:
            arrays[name] = value(arrays[name])
    return save("a.npz", **arrays)


def at(i, v):
    def change(a):
        a = a.copy()
        a[i] = v
        return a

    return change


BAD = {
    "no-format": (dict(format=None), ["format.npy"]),
    "other-format": (dict(format=lambda a: np.bytes_("lil")), ["lil"]),
    "no-indptr": (dict(indptr=None), ["indptr.npy"]),
    "short-indptr": (dict(indptr=lambda a: a[:-1]), ["indptr.npy", "40", "rows"]),
    "long-indptr": (dict(indptr=lambda a: np.append(a, a[-1])), ["indptr.npy"]),
    "first-indptr": (dict(indptr=at(0, 1)), ["indptr.npy", "expected 0"]),
    "falling-indptr": (dict(indptr=at(7, 0)), ["indptr.npy", "below"]),
    "negative-indptr": (dict(indptr=at(7, -5)), ["indptr.npy", "negative"]),
    "far-indptr": (dict(indptr=at(-1, 10**6)), ["indptr.npy", "1000000"]),
    "negative-index": (dict(indices=at(11, -1)), ["indices.npy", "item 11", "negative"]),
    "far-index": (dict(indices=at(11, 30)), ["column 30", "40 x 30"]),
    "float-index": (dict(indices=lambda a: a.astype(float)), ["indices.npy", "whole"]),
    "short-data": (dict(data=lambda a: a[:-1]), ["data.npy", "as many"]),
    "text-data": (dict(data=lambda a: a.astype("U9")), ["data.npy"]),
    "nan": (dict(data=at(3, np.nan)), ["nan", "row"]),
    "three-shape": (dict(shape=lambda a: np.array([4, 5, 6])), ["shape.npy", "3"]),
    "negative-shape": (dict(shape=lambda a: np.array([-4, 5])), ["shape.npy", "negative"]),
    "float-shape": (dict(shape=lambda a: np.array([4.0, 5.0])), ["shape.npy"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_members(refuse, name):
    change, says = BAD[name]
    code = 2 if name == "other-format" else 1
    refuse(rewrite(change), code=code, says=["a.npz", *says])


def test_big_integers(convert, refuse):
    m = sp.coo_array((np.array([2**53 + 1, 1]), ([0, 1], [0, 1])), (2, 2))
    sp.save_npz("a.npz", m)
    refuse("a.npz", "--values", "f64", code=2, says=["data.npy", str(2**53 + 1)])
    m.data[0] = 2**60
    sp.save_npz("a.npz", m)
    convert("a.npz", expect=m)


@pytest.mark.parametrize("compressed", [False, True])
def test_every_cut_and_flipped_bytes(run, compressed, tmp_path):
    """Never a wrong result without a word: checksums cover all members."""
    m = random_matrix(30, 40, 0.1)
    sp.save_npz("a.npz", m, compressed=compressed)
    data = open("a.npz", "rb").read()
    run("tile-convert", "a.npz", "good.tiles", "--codec", "raw")
    good = open("good.tiles", "rb").read()
    rng = np.random.default_rng(0)
    cases = [data[: len(data) * p // 100] for p in range(100)]
    for _ in range(150):
        bad = bytearray(data)
        bad[rng.integers(len(data))] ^= 1 << rng.integers(8)
        cases.append(bytes(bad))
    for bad in cases:
        open("bad.npz", "wb").write(bad)
        (tmp_path / "out.tiles").unlink(missing_ok=True)
        import subprocess

        from conftest import command

        done = subprocess.run(command("tile-convert", "--codec", "raw", "bad.npz", "out.tiles"),
                              capture_output=True, text=True, timeout=60)
        if done.returncode == 0:
            assert open("out.tiles", "rb").read() == good
        else:
            assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done
            assert not (tmp_path / "out.tiles").exists()


def test_bombs_end_early(refuse):
    """A member that unpacks to more than it promises is given up at once."""
    buffer = io.BytesIO()
    m = random_matrix(30, 40, 0.1)
    sp.save_npz(buffer, m)
    raw = bytearray(buffer.getvalue())
    with zipfile.ZipFile(buffer) as z:
        info = z.getinfo("data.npy")
    # Halve the promised size in the directory.
    for i in range(len(raw) - 46):
        if raw[i:i + 4] == b"PK\1\2" and raw[i + 46:i + 54] == b"data.npy":
            raw[i + 24:i + 28] = (info.file_size // 2).to_bytes(4, "little")
    open("bomb.npz", "wb").write(raw)
    refuse("bomb.npz", says=["data.npy"])
