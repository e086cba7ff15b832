"""The products and the fused loss as custom operators of PyTorch.

A custom operator takes tensors and plain numbers, so a matrix is named by the number of its handle.
The operators work on 2-D tensors of float32 or float64; what leads to them (vectors, half
precision under autocast) is written in ordinary differentiable operations around them.
"""

import operator
from typing import Any, Optional

import torch
from torch import Tensor

from . import _arrays, _capi, _handle
from ._errors import ClosedError, RequestError
from ._matrix import Matrix, check_loss, from_left

_CODES = {torch.float32: _capi.F32, torch.float64: _capi.F64}
_REAL = {torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16,
         torch.int32, torch.int64}


# ---- tensors as the C library wants them ----


def _handle_of(matrix: int) -> _handle.Handle:
    handle = _handle.live.get(matrix)
    if handle is None:
        raise ClosedError(
            f"matrix number {matrix} does not exist any more; keep the Matrix as long as a "
            "compiled graph uses it"
        )
    return handle


def _operand(x: Tensor) -> tuple[Tensor, _arrays.Operand]:
    """``x`` (2-D, or the weights of rows) or a copy of it, and its description. Keep the first
    while using the second."""
    if x.is_contiguous():
        ld = x.shape[-1] or 1 if x.dim() == 2 else 1
    else:
        shape, strides = tuple(x.shape), tuple(x.stride())
        ld = _arrays.has_rows(strides, shape) if x.dim() == 2 else 0
        if not ld:
            x = x.contiguous()
            ld = shape[-1] if x.dim() == 2 else 1
    if x.is_cpu:
        return x, _arrays.Operand(x.data_ptr(), ld, _CODES[x.dtype], _capi.HOST, None)
    if not x.is_cuda:
        raise TypeError(f"a tensor on {x.device}; tensors on cpu and cuda are served")
    stream = torch.cuda.current_stream(x.device).cuda_stream or None
    return x, _arrays.Operand(x.data_ptr(), ld, _CODES[x.dtype], x.device.index, stream)


# ---- Y = A X and G = transpose(A) R ----


def _product_real(x: Tensor, matrix: int, adjoint: bool) -> Tensor:
    handle = _handle_of(matrix)
    rows, n = handle.sides(adjoint)
    # The C side trusts shapes, and the operator may be called by itself.
    B = _arrays.check_shape("X", x.shape, n)
    y = torch.empty((rows, B), dtype=x.dtype, device=x.device)
    if B:
        x, x_operand = _operand(x)
        y, y_operand = _operand(y)
        handle.product(adjoint, B, x_operand, y_operand)
    return y


_product = torch.library.custom_op(
    "streamtrain::product", _product_real, mutates_args=(),
    schema="(Tensor x, int matrix, bool adjoint) -> Tensor",
)


@_product.register_fake
def _product_fake(x: Tensor, matrix: int, adjoint: bool) -> Tensor:
    return x.new_empty((_handle_of(matrix).sides(adjoint)[0], x.shape[1]))


def _product_context(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.matrix, ctx.adjoint = inputs
    ctx.handle = _handle.live.get(ctx.matrix)  # keeps it alive until backward


def _product_backward(ctx: Any, grad: Tensor) -> Any:
    return _multiply(grad, ctx.matrix, not ctx.adjoint), None, None


_product.register_autograd(_product_backward, setup_context=_product_context)


# ---- the loss and its gradient in one sweep ----


def _loss_real(
    x: Tensor, target: Tensor, weights: Optional[Tensor], matrix: int, kind: str, want_grad: bool
) -> tuple[Tensor, Tensor]:
    handle = _handle_of(matrix)
    B = _arrays.check_shape("X", x.shape, handle.sides(False)[1])
    g = torch.empty(x.shape if want_grad else (0, 0), dtype=x.dtype, device=x.device)
    x, x_operand = _operand(x)
    target, t_operand = _operand(target)
    w_operand = g_operand = None
    if weights is not None:
        weights, w_operand = _operand(weights)
    if want_grad:
        g, g_operand = _operand(g)
    per_column = weights is not None and weights.dim() == 2
    loss = handle.step(kind, B, x_operand, t_operand, w_operand, per_column, None, g_operand)
    return torch.tensor(loss, dtype=x.dtype, device=x.device), g


_loss = torch.library.custom_op(
    "streamtrain::loss", _loss_real, mutates_args=(),
    schema="(Tensor x, Tensor target, Tensor? weights, int matrix, str kind, bool want_grad)"
    " -> (Tensor, Tensor)",
)


@_loss.register_fake
def _loss_fake(
    x: Tensor, target: Tensor, weights: Optional[Tensor], matrix: int, kind: str, want_grad: bool
) -> tuple[Tensor, Tensor]:
    return x.new_empty(()), x.new_empty(x.shape if want_grad else (0, 0))


def _loss_context(ctx: Any, inputs: Any, output: Any) -> None:
    x, target, weights, ctx.matrix, ctx.kind, ctx.want_grad = inputs
    ctx.handle = _handle.live.get(ctx.matrix)
    ctx.save_for_backward(x, target, weights, output[1])
    ctx.set_materialize_grads(False)


def _loss_backward(ctx: Any, grad: Optional[Tensor], grad_g: Optional[Tensor]) -> Any:
    x, target, weights, g = ctx.saved_tensors
    out = None
    if grad is not None:
        if not ctx.want_grad:
            raise RuntimeError("the loss was computed without a gradient")
        out = grad * g
    if grad_g is not None and ctx.want_grad:
        more = _curvature_product(ctx.matrix, ctx.kind, x, target, weights, grad_g)
        out = more if out is None else out + more
    return out, None, None, None, None, None


_loss.register_autograd(_loss_backward, setup_context=_loss_context)


def _curvature_product(
    matrix: int, kind: str, x: Tensor, target: Tensor, weights: Optional[Tensor], v: Tensor
) -> Tensor:
    """The Hessian of the loss times ``v``: transpose(A) (w l''(y, t) / sum(w)) A v."""
    Av = _multiply(v, matrix, False)
    w = _column_weights(weights, Av)
    y = _multiply(x, matrix, False)
    t = target
    if w is not None:
        y, t = _without_ignored(y, t, w)
    if kind == "mse":
        second = torch.full_like(Av, 2.0)
    elif kind == "l1":
        second = torch.zeros_like(Av)
    elif kind == "huber":
        second = ((y - t).abs() <= 1).to(Av.dtype)
    else:
        second = t / (y + 1e-8) ** 2
    scaled = second * Av / Av.numel() if w is None else second * Av * w / w.sum()
    return _multiply(scaled, matrix, True)


def _column_weights(weights: Optional[Tensor], like: Tensor) -> Optional[Tensor]:
    if weights is None:
        return None
    return (weights.unsqueeze(1) if weights.dim() == 1 else weights).expand_as(like)


def _without_ignored(y: Tensor, t: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Ones where the weight is 0: what stands there may be NaN, and 0 * NaN is NaN."""
    one = torch.ones((), dtype=y.dtype, device=y.device)
    return torch.where(w == 0, one, y), torch.where(w == 0, one, t)


def _loss_of_parts(y: Tensor, t: Tensor, weights: Optional[Tensor], kind: str) -> Tensor:
    """The loss in PyTorch's own operations: differentiable by target and weights too."""
    w = _column_weights(weights, y)
    if w is not None:
        y, t = _without_ignored(y, t, w)
    d = y - t
    if kind == "mse":
        each = d * d
    elif kind == "l1":
        each = d.abs()
    elif kind == "huber":
        each = torch.where(d.abs() <= 1, d * d / 2, d.abs() - 0.5)
    else:
        each = y - t * torch.log(y + 1e-8)
    return each.mean() if w is None else (w * each).sum() / w.sum()


_product_op = torch.ops.streamtrain.product.default
_loss_op = torch.ops.streamtrain.loss.default


# ---- torch.func ----

# An operator's registered derivative is not seen by the transforms of torch.func; that of an
# autograd.Function is. So these stand before the operators, where a transform is at work.


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, matrix: int, adjoint: bool) -> Tensor:
        return _product_op(x, matrix, adjoint)

    setup_context = staticmethod(_product_context)
    backward = staticmethod(_product_backward)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, matrix: int, adjoint: bool) -> Any:
        """A batch is more columns."""
        x = x.movedim(in_dims[0], 2)
        y = _multiply(x.flatten(1), matrix, adjoint)
        return y.unflatten(1, x.shape[1:]), 2


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, target: Tensor, weights: Optional[Tensor], matrix: int, kind: str, want_grad: bool
    ) -> tuple[Tensor, Tensor]:
        return _loss_op(x, target, weights, matrix, kind, want_grad)

    setup_context = staticmethod(_loss_context)
    backward = staticmethod(_loss_backward)


_transforms_active = torch._C._are_functorch_transforms_active


def _in_functorch() -> bool:
    return not torch.compiler.is_compiling() and _transforms_active()


def _multiply(x: Tensor, matrix: int, adjoint: bool) -> Tensor:
    if _in_functorch():
        return _Product.apply(x, matrix, adjoint)
    return _product_op(x, matrix, adjoint)


# ---- what Matrix calls ----


def _dense(what: str, x: Tensor, A: Matrix) -> Tensor:
    """``x`` in the type that it is computed in."""
    if x.dtype in _CODES and x.layout == torch.strided:
        return x
    if x.layout != torch.strided:
        raise TypeError(f"{what} is sparse; only dense operands are served: use {what}.to_dense()")
    if x.dtype not in _REAL:
        raise TypeError(f"{what} has type {x.dtype}; real types up to 64 bits are served")
    mine = torch.float64 if A._f64 else torch.float32
    return x.to(torch.promote_types(x.dtype, mine))


def product(A: Matrix, X: Tensor, adjoint: bool) -> Tensor:
    """A @ X or A.T @ X."""
    _arrays.check_shape("X", X.shape, A.shape[0 if adjoint else 1])
    if X.dtype not in _CODES or X.layout != torch.strided:
        X = _dense("X", X, A)
    if X.dim() == 1:
        return _multiply(X.unsqueeze(1), A._id, adjoint).squeeze(1)
    return _multiply(X, A._id, adjoint)


# How torch.compile writes ``A @ X``, with the operands exchanged although the name says otherwise.
# Nothing tells it from ``X @ A``, which Matrix.__rmatmul__ therefore refuses for tensors.
def _is_method(func: Any) -> bool:
    return func is Tensor.matmul or func is Tensor.__matmul__ or func is Tensor.__rmatmul__


def _is_function(func: Any) -> bool:
    return (
        func is torch.matmul
        or func is torch.mm
        or func is torch.mv
        or func is torch.sparse.mm
        or func is operator.matmul
    )


def torch_function(func: Any, args: Any, kwargs: Any) -> Any:
    """PyTorch's functions of two matrices, one of which is ours."""
    if len(args) != 2 or kwargs:
        return NotImplemented
    a, b = args
    if _is_method(func) and isinstance(a, Tensor):
        return b.__matmul__(a) if torch.compiler.is_compiling() else NotImplemented
    if not _is_function(func):
        return NotImplemented
    return from_left(b.T, a) if isinstance(a, Tensor) else a.__matmul__(b)


def _prepare(
    A: Matrix, X: Tensor, target: Any, kind: str, weights: Any
) -> tuple[Tensor, Tensor, Optional[Tensor]]:
    for what, t in (("target", target), ("weights", weights)):
        if t is not None and not isinstance(t, Tensor):
            raise TypeError(f"X is a tensor, but {what} is of type {type(t).__name__}")
        if t is not None and t.device != X.device:
            raise RequestError(f"X is on {X.device}, but {what} is on {t.device}")
    check_loss(A, kind, X, target, weights)
    X = _dense("X", X, A)
    target = _dense("target", target, A).to(X.dtype)
    if weights is not None:
        weights = _dense("weights", weights, A).to(X.dtype)
    if X.dim() == 1:
        X, target = X.unsqueeze(1), target.unsqueeze(1)
    return X, target, weights


def loss(A: Matrix, X: Tensor, target: Tensor, kind: str, weights: Optional[Tensor]) -> Tensor:
    """As Matrix.loss."""
    X, target, weights = _prepare(A, X, target, kind, weights)
    if torch.is_grad_enabled() and (
        target.requires_grad or (weights is not None and weights.requires_grad)
    ):
        Y = _multiply(X, A._id, False)
        return _loss_of_parts(Y, target, weights, kind)
    want_grad = torch.is_grad_enabled() and X.requires_grad
    if _in_functorch():
        return _Loss.apply(X, target, weights, A._id, kind, want_grad)[0]
    return _loss_op(X, target, weights, A._id, kind, want_grad)[0]


def loss_and_grad(
    A: Matrix, X: Tensor, target: Tensor, kind: str, weights: Optional[Tensor]
) -> tuple[Tensor, Tensor]:
    """As Matrix.loss_and_grad."""
    shape = X.shape
    with torch.no_grad():
        X, target, weights = _prepare(A, X, target, kind, weights)
        value, g = _loss_op(X, target, weights, A._id, kind, True)
        return value, g.reshape(shape)
