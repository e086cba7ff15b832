"""tile-convert on PETSc's binary layout, written here as its documentation describes it."""

import numpy as np
import pytest
import scipy.sparse as sp

from convert_support import convert, random_matrix, refuse  # noqa: F401


def petsc(m, path="a.petsc", index=">i4", scalar=">f8", tail=b""):
    m = sp.csr_array(m)
    with open(path, "wb") as f:
        np.array([1211216, *m.shape, m.nnz], index).tofile(f)
        np.diff(m.indptr).astype(index).tofile(f)
        m.indices.astype(index).tofile(f)
        m.data.astype(scalar).tofile(f)
        f.write(tail)
    return path


@pytest.mark.parametrize("index", [">i4", ">i8"])
@pytest.mark.parametrize("scalar", [">f8", ">f4"])
def test_widths(convert, index, scalar):
    for m in (random_matrix(70, 50, 0.1), random_matrix(1, 9, 0.5), sp.csr_array((5, 6)),
              random_matrix(2000, 3, 0.2)):
        exact = m.astype(scalar[1:]).astype(float)
        convert(petsc(m, index=index, scalar=scalar), "--values", "f64", expect=exact,
                dtype=np.float64)
        convert(petsc(m, index=index, scalar=scalar), "--transpose", expect=exact.T)


def test_complex(convert, refuse):
    m = random_matrix(30, 20, 0.2).astype(complex)
    m.data *= 1 + 2j
    petsc(m, scalar=">c16")
    refuse("a.petsc", code=2, says=["--part"])
    convert("a.petsc", "--part", "imag", expect=m.imag)
    convert(petsc(m, scalar=">c8"), "--key", "c64", "--part", "real",
            expect=m.astype(np.complex64).real)


def test_another_object_behind(convert):
    m = random_matrix(30, 20, 0.2)
    vector = np.array([1211214, 2], ">i4").tobytes() + np.zeros(2, ">f8").tobytes()
    convert(petsc(m, tail=vector), expect=m)


def test_damaged(refuse):
    m = random_matrix(30, 20, 0.2)
    data = open(petsc(m), "rb").read()
    for percent in range(100):
        open("cut.petsc", "wb").write(data[: len(data) * percent // 100])
        refuse("cut.petsc", "--from", "petsc", says=["cut.petsc"])
    bad = bytearray(data)
    bad[16:20] = (100).to_bytes(4, "big")
    open("bad.petsc", "wb").write(bad)
    refuse("bad.petsc", says=["bad.petsc"])
    open("tail.petsc", "wb").write(data + b"xx")
    refuse("tail.petsc", says=["does not fit"])
