"""tile-convert on Matrix Market files, plain and awkward, against SciPy."""

import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from convert_support import convert, random_matrix, refuse  # noqa: F401


def mtx(text, path="a.mtx"):
    with open(path, "w", newline="") as f:
        f.write(text)
    return path


HEAD = "%%MatrixMarket matrix coordinate real general\n"


def test_written_by_scipy(convert):
    m = random_matrix(300, 170, 0.05)
    scipy.io.mmwrite("a.mtx", m, precision=17)
    convert("a.mtx", "--values", "f64", expect=m, dtype=np.float64)
    convert("a.mtx", expect=m)
    convert("a.mtx", "--transpose", expect=m.T)


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
def test_symmetry(convert, symmetry):
    m = random_matrix(90, 90, 0.05).toarray()
    m = m + m.T if symmetry == "symmetric" else m - m.T
    scipy.io.mmwrite("a.mtx", sp.coo_array(m), symmetry=symmetry, precision=17)
    convert("a.mtx", "--values", "f64", expect=sp.csr_array(scipy.io.mmread("a.mtx")),
            dtype=np.float64)


@pytest.mark.parametrize("field", ["real", "integer"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
def test_array_format(convert, field, symmetry):
    rng = np.random.default_rng(1)
    m = np.where(rng.random((9, 9)) < 0.5, rng.integers(-50, 50, (9, 9)), 0)
    m = m if field == "integer" else m * 0.37
    m = m + m.T if symmetry == "symmetric" else m - m.T if symmetry != "general" else m[:, :7]
    scipy.io.mmwrite("a.mtx", m, field=field, symmetry=symmetry, precision=17)
    assert "array" in open("a.mtx").readline()
    convert("a.mtx", "--values", "f64", expect=m, dtype=np.float64)
    convert("a.mtx", "--transpose", "--values", "f64", expect=m.T, dtype=np.float64)


def test_pattern(convert):
    m = random_matrix(40, 60, 0.1)
    m.data[:] = 1
    scipy.io.mmwrite("a.mtx", m, field="pattern")
    convert("a.mtx", expect=m)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_blank_lines_comments(convert, end):
    text = HEAD + "% a comment\n%\n\n  \n 3  4 5 \n% more\n1 1 1.5\n\n\t2\t2\t-2\t\n3 4 1e2\n" \
        "1 4 +.5\n%x\n3 1 7.\n\n"
    want = np.array([[1.5, 0, 0, 0.5], [0, -2, 0, 0], [7, 0, 0, 100]])
    convert(mtx(text.replace("\n", end)), expect=want)
    convert(mtx(text.replace("\n", end).rstrip()), expect=want)


def test_line_ends_over_block_boundaries(convert):
    m = random_matrix(2000, 2000, 0.02)
    scipy.io.mmwrite("lf.mtx", m, precision=17)
    text = open("lf.mtx").read()
    for end in ("\r\n", "\r"):
        convert(mtx(text.replace("\n", end)), "--values", "f64", "--ram-budget", "16M", expect=m,
                dtype=np.float64)


def test_gzip(convert, refuse):
    m = random_matrix(200, 100, 0.1)
    scipy.io.mmwrite("a.mtx", m, precision=17)
    text = open("a.mtx", "rb").read()
    half = text.index(b"\n", len(text) // 2) + 1
    # Several members, as concatenated files have, and zero padding behind.
    packed = gzip.compress(text[:half]) + gzip.compress(text[half:]) + b"\0" * 100
    for name in ("b.mtx.gz", "without-suffix"):
        open(name, "wb").write(packed)
        convert(name, "--values", "f64", expect=m, dtype=np.float64)
    open("cut.mtx.gz", "wb").write(gzip.compress(text)[:-500])
    refuse("cut.mtx.gz", says=["cut.mtx.gz", "cut off"])
    bad = bytearray(gzip.compress(text))
    bad[-6] ^= 1  # the checksum
    open("bad.mtx.gz", "wb").write(bad)
    refuse("bad.mtx.gz", says=["bad.mtx.gz", "damaged"])
    open("tail.mtx.gz", "wb").write(gzip.compress(text) + b"tail")
    refuse("tail.mtx.gz", says=["not gzip"])


def test_duplicates_are_added_in_double(convert):
    text = HEAD + "2 2 5\n1 1 16777216\n2 2 1\n1 1 1\n1 1 1\n2 2 -1\n"
    want = sp.csr_array((np.array([16777218.0, 0]), ([0, 1], [0, 1])), (2, 2))
    r = convert(mtx(text), expect=want)
    assert r["duplicates"] == 3


def test_explicit_zeros(convert):
    text = HEAD + "2 2 3\n1 1 0\n2 1 3\n2 2 -0.0\n"
    assert convert(mtx(text))["entries"] == 3
    r = convert(mtx(text), "--drop-zeros")
    assert (r["entries"], r["zeros_dropped"]) == (1, 2)


def test_no_entries_and_small_shapes(convert):
    for shape in ((5, 7), (1, 1), (70000, 3), (3, 100000)):
        convert(mtx(HEAD + f"{shape[0]} {shape[1]} 0\n"), expect=sp.csr_array(shape))
    convert(mtx(HEAD + "1 1 1\n1 1 2\n"), expect=np.array([[2.0]]))
    convert(mtx(HEAD + "200000 4294967295 1\n200000 4294967295 2\n"))
    convert(mtx(HEAD + "4294967296 3 1\n4294967296 2 2\n"), "--transpose", code=2)


def test_numbers(convert):
    values = ["1e-300", "4.9e-324", "1.7976931348623157e308", "-0.1", "9007199254740993",
              "123456789012345678901234567890", "1D2", "2.5d-3", "3.14159265358979323846264338327950"]
    lines = "".join(f"1 {i + 1} {v}\n" for i, v in enumerate(values))
    want = np.array([[float(v.lower().replace("d", "e")) for v in values]])
    convert(mtx(HEAD + f"1 {len(values)} {len(values)}\n" + lines), "--values", "f64", expect=want,
            dtype=np.float64)


def test_integers_are_exact_or_refused(convert, refuse):
    head = "%%MatrixMarket matrix coordinate integer general\n"
    convert(mtx(head + "1 2 2\n1 1 16777216\n1 2 -9007199254740992\n"), expect=np.array(
        [[16777216.0, -9007199254740992.0]]))
    refuse(mtx(head + "1 2 1\n1 2 16777217\n"), code=2,
           says=["f32", "16777217", "row 0, column 1", "--values f64"])
    convert(mtx(head + "1 2 1\n1 2 16777217\n"), "--values", "f64",
            expect=np.array([[0, 16777217.0]]), dtype=np.float64)
    refuse(mtx(head + "1 2 1\n1 2 9007199254740993\n"), "--values", "f64", says=["line 3"])
    refuse(mtx(head + "1 2 1\n1 2 1.5\n"), says=["line 3", "whole number"])
    refuse(mtx(head + "1 2 1\n1 2 inf\n"), says=["row 0, column 1", "inf", "--allow-nonfinite"])


def test_not_finite(convert, refuse):
    text = HEAD + "3 2 3\n1 1 1\n3 2 nan\n2 1 -inf\n"
    refuse(mtx(text), says=["row 2, column 1", "nan", "--allow-nonfinite"])
    refuse(mtx(text), "--transpose", says=["row 2, column 1"])
    store = convert(mtx(text), "--allow-nonfinite", expect=np.array(
        [[1, 0], [-np.inf, 0], [0, np.nan]]))["store"]
    assert np.isnan(store.val[2])
    refuse(mtx(HEAD + "1 1 1\n1 1 1e39\n"), says=["1e+39", "row 0, column 0", "f32", "f64"])
    refuse(mtx(HEAD + "1 1 1\n1 1 70000\n"), "--values", "f16", says=["70000", "f16"])
    refuse(mtx(HEAD + "1 1 2\n1 1 1e308\n1 1 1e308\n"), "--values", "f64", says=["inf"])


BAD = {
    "no-banner": ("1 1 1\n1 1 1\n", ["line 1"]),
    "field": ("%%MatrixMarket matrix coordinate quaternion general\n", ["line 1", "quaternion"]),
    "symmetry": ("%%MatrixMarket matrix coordinate real odd\n", ["line 1", "odd"]),
    "no-sizes": (HEAD + "% only\n", ["sizes"]),
    "two-sizes": (HEAD + "%\n3 3\n", ["line 3", "sizes"]),
    "four-sizes": (HEAD + "3 3 1 1\n1 1 1\n", ["line 2", "sizes"]),
    "negative-size": (HEAD + "-3 3 1\n1 1 1\n", ["line 2"]),
    "huge-size": (HEAD + "99999999999999999999999 3 1\n1 1 1\n", ["line 2"]),
    "too-few": (HEAD + "3 3 3\n1 1 1\n2 2 1\n", ["2 of the 3"]),
    "too-many": (HEAD + "3 3 1\n1 1 1\n2 2 1\n", ["more than the 1"]),
    "no-value": (HEAD + "3 3 2\n1 1 1\n2 2\n", ["line 4", "'2 2'"]),
    "word": (HEAD + "3 3 2\n1 1 1\n2 2 abc\n", ["line 4", "number", "2 2 abc"]),
    "glued": (HEAD + "3 3 1\n1 1 1.5.5\n", ["line 3"]),
    "extra": (HEAD + "3 3 1\n\n% c\n1 1 1 1\n", ["line 5", "more on the line"]),
    "zero-row": (HEAD + "3 3 1\n0 1 1\n", ["line 3", "from 1"]),
    "outside": (HEAD + "3 3 1\n1 4 1\n", ["line 3", "outside"]),
    "negative-row": (HEAD + "3 3 1\n-1 1 1\n", ["line 3"]),
    "float-row": (HEAD + "3 3 1\n1.0 1 1\n", ["line 3"]),
    "binary": (HEAD + "3 3 1\n\0\1\2\n", ["line 3"]),
    "triangles": (HEAD.replace("general", "symmetric") + "3 3 2\n2 1 1\n1 2 1\n",
                  ["line 4", "line 3", "general"]),
    "skew-diagonal": (HEAD.replace("general", "skew-symmetric") + "3 3 1\n2 2 1\n",
                      ["line 3", "diagonal"]),
    "not-square": (HEAD.replace("general", "symmetric") + "3 4 0\n", ["line 2"]),
    "array-pattern": ("%%MatrixMarket matrix array pattern general\n2 2\n1\n", ["line 1"]),
    "array-short": ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", ["3 of the 4"]),
    "array-long": ("%%MatrixMarket matrix array real general\n2 1\n1\n2\n3\n", ["line 5"]),
    "git-lfs": ("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", ["git lfs pull"]),
    "empty": ("", ["empty"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(refuse, name):
    text, says = BAD[name]
    refuse(mtx(text), says=["a.mtx", *says])


def test_line_numbers_in_large_files(refuse):
    m = random_matrix(1000, 1000, 0.1)
    scipy.io.mmwrite("a.mtx", m, precision=17)
    lines = open("a.mtx").read().split("\n")
    for at in (5, 777, 50001, len(lines) - 2):
        bad = lines.copy()
        bad[at - 1] = "1 oops 3"
        refuse(mtx("\n".join(bad), "bad.mtx"), says=[f"line {at}:", "oops"])
        refuse(mtx("\r\n".join(bad), "bad.mtx"), says=[f"line {at}:", "oops"])


def test_every_cut_is_noticed(refuse):
    m = random_matrix(50, 50, 0.1)
    scipy.io.mmwrite("a.mtx", m, precision=17)
    text = open("a.mtx").read()
    last_line = text.rstrip().rindex("\n")
    # Inside the last line's digits a cut cannot be seen: the format has no means to tell.
    for percent in range(100):
        cut = len(text) * percent // 100
        if cut <= last_line:
            refuse(mtx(text[:cut], "cut.mtx"), says=["cut.mtx"])


def test_complex_is_refused_without_part(refuse):
    scipy.io.mmwrite("a.mtx", sp.coo_array(np.array([[1j, 2]])))
    refuse("a.mtx", code=2, says=["complex", "--part"])
