#include "tiler/pickle.h"

#include "base/alloc.h"

#include <string.h>

#define NO_NODE UINT32_MAX

/* What a pickle of tensors may name. */
static const char *const known_globals[] = {
    "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_sparse_tensor",
    "torch._utils _rebuild_sparse_csr_tensor",
    "torch._utils _rebuild_parameter",
    "torch.serialization _get_layout",
    "torch Size",
    "torch device",
    "collections OrderedDict",
    "torch.storage UntypedStorage",
    "torch.storage TypedStorage",
    "torch FloatStorage",
    "torch DoubleStorage",
    "torch HalfStorage",
    "torch BFloat16Storage",
    "torch LongStorage",
    "torch IntStorage",
    "torch ShortStorage",
    "torch CharStorage",
    "torch ByteStorage",
    "torch BoolStorage",
    "torch ComplexFloatStorage",
    "torch ComplexDoubleStorage",
    "torch uint16",
    "torch uint32",
    "torch uint64",
};

typedef struct {
    const uint8_t *start, *p, *end;
    const char *name;
    ooc_pickle *out;
    uint32_t *stack; /* node numbers, NO_NODE: a mark */
    uint32_t depth, max_depth;
    uint32_t *memo;
    uint32_t max_memo, n_memo;
    ooc_err *err;
} machine;

static ooc_status damaged(const machine *m)
{
    return ooc_fail(m->err, OOC_E_FORMAT, "%s: the pickle is damaged", m->name);
}

static ooc_status new_node(machine *m, ooc_pkl_kind kind, uint32_t *number)
{
    ooc_pickle *o = m->out;

    if (o->n_nodes == o->max_nodes)
        return damaged(m);
    *number = o->n_nodes++;
    o->node[*number] = (ooc_pkl_node){.kind = kind};
    return OOC_OK;
}

static ooc_status push(machine *m, uint32_t number)
{
    if (m->depth == m->max_depth)
        return damaged(m);
    m->stack[m->depth++] = number;
    return OOC_OK;
}

static ooc_status push_number(machine *m, ooc_pkl_kind kind, int64_t value)
{
    uint32_t n = 0;
    ooc_status st = new_node(m, kind, &n);

    if (st)
        return st;
    m->out->node[n].number = value;
    return push(m, n);
}

static const char *keep_text(machine *m, const uint8_t *bytes, size_t n)
{
    ooc_pickle *o = m->out;
    char *text = o->texts + o->n_text;

    if (n >= o->max_text - o->n_text)
        return NULL;
    memcpy(text, bytes, n);
    text[n] = 0;
    o->n_text += n + 1;
    return text;
}

static bool take(machine *m, size_t n, const uint8_t **bytes)
{
    if (n > (size_t)(m->end - m->p))
        return false;
    *bytes = m->p;
    m->p += n;
    return true;
}

/* A little-endian number of n <= 8 bytes. */
static bool take_number(machine *m, size_t n, uint64_t *value)
{
    const uint8_t *b;

    if (!take(m, n, &b))
        return false;
    *value = 0;
    while (n--)
        *value = *value << 8 | b[n];
    return true;
}

static ooc_status push_text(machine *m, size_t length_bytes)
{
    const uint8_t *b;
    uint64_t n = 0;
    uint32_t number = 0;
    ooc_status st;

    if (!take_number(m, length_bytes, &n) || !take(m, n, &b))
        return damaged(m);
    st = new_node(m, OOC_PKL_TEXT, &number);
    if (st)
        return st;
    m->out->node[number].text = keep_text(m, b, n);
    return m->out->node[number].text ? push(m, number) : damaged(m);
}

/* LONG1: two's complement of n bytes. */
static ooc_status push_long(machine *m)
{
    uint64_t n = 0, value = 0;

    if (!take_number(m, 1, &n) || n > 9)
        return damaged(m);
    if (n == 9) { /* 2^63 .. 2^64 - 1 with a zero byte in front: no size is as large */
        return ooc_fail(m->err, OOC_E_UNSUPPORTED, "%s: a number beyond 63 bits", m->name);
    }
    if (!take_number(m, n, &value))
        return damaged(m);
    if (n && n < 8 && value >> (8 * n - 1))
        value |= UINT64_MAX << (8 * n);
    return push_number(m, OOC_PKL_INT, (int64_t)value);
}

static ooc_status pop(machine *m, uint32_t *number)
{
    if (!m->depth || m->stack[m->depth - 1] == NO_NODE)
        return damaged(m);
    *number = m->stack[--m->depth];
    return OOC_OK;
}

/* The n topmost nodes become the items of a new node in their place. */
static ooc_status gather(machine *m, ooc_pkl_kind kind, uint32_t n, uint32_t *made)
{
    ooc_pickle *o = m->out;
    uint32_t number = 0;
    ooc_status st = new_node(m, kind, &number);

    if (st)
        return st;
    if (n > m->depth || n > o->max_items - o->n_items)
        return damaged(m);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t item = m->stack[m->depth - n + i];

        if (item == NO_NODE)
            return damaged(m);
        o->item[o->n_items + i] = item;
    }
    o->node[number].first = o->n_items;
    o->node[number].n = n;
    o->n_items += n;
    m->depth -= n;
    *made = number;
    return push(m, number);
}

/* How many nodes lie above the topmost mark. */
static ooc_status above_mark(machine *m, uint32_t *n)
{
    *n = 0;
    while (*n < m->depth && m->stack[m->depth - 1 - *n] != NO_NODE)
        ++*n;
    return *n < m->depth ? OOC_OK : damaged(m);
}

static ooc_status tuple_from_mark(machine *m, ooc_pkl_kind kind)
{
    uint32_t n = 0, made = 0;
    ooc_status st = above_mark(m, &n);

    if (!st)
        st = gather(m, kind, n, &made);
    if (st)
        return st;
    m->stack[m->depth - 2] = made; /* in place of the mark */
    m->depth--;
    return OOC_OK;
}

/* The n topmost nodes are added to the list or dict below them. */
static ooc_status extend(machine *m, uint32_t n, bool marked)
{
    ooc_pickle *o = m->out;
    uint32_t below = n + (marked ? 1 : 0), made = 0;
    ooc_pkl_node *to;
    ooc_status st;

    if (m->depth <= below || m->stack[m->depth - 1 - below] == NO_NODE)
        return damaged(m);
    to = &o->node[m->stack[m->depth - 1 - below]];
    if (to->kind != OOC_PKL_LIST && to->kind != OOC_PKL_DICT)
        return damaged(m);
    st = gather(m, to->kind, n, &made);
    if (st)
        return st;
    to = &o->node[m->stack[m->depth - (marked ? 3 : 2)]];
    m->depth -= marked ? 2 : 1;
    if (!to->n) {
        to->first = o->node[made].first;
        to->n = o->node[made].n;
        return OOC_OK;
    }
    if (to->n + n > o->max_items - o->n_items)
        return damaged(m);
    memcpy(o->item + o->n_items, o->item + to->first, to->n * sizeof *o->item);
    memcpy(o->item + o->n_items + to->n, o->item + o->node[made].first, n * sizeof *o->item);
    to->first = o->n_items;
    to->n += n;
    o->n_items += to->n;
    return OOC_OK;
}

static ooc_status extend_from_mark(machine *m)
{
    uint32_t n = 0;
    ooc_status st = above_mark(m, &n);

    return st ? st : extend(m, n, true);
}

static ooc_status push_global(machine *m, const char *module, size_t module_bytes, const char *name,
                              size_t name_bytes)
{
    char full[128];
    uint32_t number = 0;
    ooc_status st;

    if (module_bytes + name_bytes + 2 > sizeof full)
        return ooc_fail(m->err, OOC_E_UNSUPPORTED,
                        "%s: holds an object of a class that is not "
                        "read; save only the tensor",
                        m->name);
    memcpy(full, module, module_bytes);
    full[module_bytes] = ' ';
    memcpy(full + module_bytes + 1, name, name_bytes);
    full[module_bytes + 1 + name_bytes] = 0;
    for (size_t i = 0; i < sizeof known_globals / sizeof *known_globals; i++)
        if (strcmp(full, known_globals[i]) == 0) {
            st = new_node(m, OOC_PKL_GLOBAL, &number);
            if (st)
                return st;
            m->out->node[number].text = known_globals[i];
            return push(m, number);
        }
    for (char *c = full; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    full[module_bytes] = '.';
    return ooc_fail(m->err, OOC_E_UNSUPPORTED,
                    "%s: holds an object of %s, which is not read; save only the tensor, or a "
                    "dict of tensors",
                    m->name, full);
}

static ooc_status global_from_lines(machine *m)
{
    const uint8_t *module = m->p, *name;
    const uint8_t *module_end = memchr(module, '\n', (size_t)(m->end - module));
    const uint8_t *name_end;

    if (!module_end)
        return damaged(m);
    name = module_end + 1;
    name_end = memchr(name, '\n', (size_t)(m->end - name));
    if (!name_end)
        return damaged(m);
    m->p = name_end + 1;
    return push_global(m, (const char *)module, (size_t)(module_end - module), (const char *)name,
                       (size_t)(name_end - name));
}

static ooc_status global_from_stack(machine *m)
{
    uint32_t name = 0, module = 0;
    ooc_status st = pop(m, &name);
    const ooc_pkl_node *node = m->out->node;

    if (!st)
        st = pop(m, &module);
    if (st)
        return st;
    if (node[name].kind != OOC_PKL_TEXT || node[module].kind != OOC_PKL_TEXT)
        return damaged(m);
    return push_global(m, node[module].text, strlen(node[module].text), node[name].text,
                       strlen(node[name].text));
}

static ooc_status reduce(machine *m)
{
    const ooc_pkl_node *function, *args;
    uint32_t made = 0;
    ooc_status st = gather(m, OOC_PKL_CALL, 2, &made);

    if (st)
        return st;
    function = ooc_pkl_item(m->out, &m->out->node[made], 0);
    args = ooc_pkl_item(m->out, &m->out->node[made], 1);
    if (function->kind != OOC_PKL_GLOBAL || args->kind != OOC_PKL_TUPLE)
        return damaged(m);
    if (strcmp(function->text, "collections OrderedDict") == 0 && !args->n) {
        m->out->node[made].kind = OOC_PKL_DICT;
        m->out->node[made].n = 0;
    }
    return OOC_OK;
}

static ooc_status memo_put(machine *m, uint64_t place)
{
    if (!m->depth || m->stack[m->depth - 1] == NO_NODE || place >= m->max_memo)
        return damaged(m);
    m->memo[place] = m->stack[m->depth - 1];
    m->n_memo++;
    return OOC_OK;
}

static ooc_status memo_get(machine *m, uint64_t place)
{
    return place < m->max_memo && m->memo[place] != NO_NODE ? push(m, m->memo[place]) : damaged(m);
}

/* Opcodes with a number behind them; *done false: another kind. */
static ooc_status step_number(machine *m, uint8_t op, bool *done)
{
    static const struct {
        uint8_t op, bytes;
    } sizes[] = {{'J', 4}, {'K', 1}, {'M', 2}, {'q', 1},  {'r', 4},
                 {'h', 1}, {'j', 4}, {'G', 8}, {0x80, 1}, {0x95, 8}};
    uint64_t v = 0;
    size_t i = 0;

    while (i < sizeof sizes / sizeof *sizes && sizes[i].op != op)
        i++;
    *done = i < sizeof sizes / sizeof *sizes;
    if (!*done)
        return OOC_OK;
    if (!take_number(m, sizes[i].bytes, &v))
        return damaged(m);
    switch (op) {
    case 'J':
        return push_number(m, OOC_PKL_INT, (int32_t)(uint32_t)v);
    case 'K':
    case 'M':
        return push_number(m, OOC_PKL_INT, (int64_t)v);
    case 'q':
    case 'r':
        return memo_put(m, v);
    case 'h':
    case 'j':
        return memo_get(m, v);
    case 'G':
        return push_number(m, OOC_PKL_FLOAT, 0);
    case 0x80:
        return v >= 2 && v <= 5 ? OOC_OK : damaged(m);
    default: /* 0x95: a frame's length */
        return OOC_OK;
    }
}

static ooc_status step(machine *m, uint8_t op)
{
    uint32_t made = 0, number = 0;
    bool done;
    ooc_status st = step_number(m, op, &done);

    if (st || done)
        return st;
    switch (op) {
    case '(':
        return push(m, NO_NODE);
    case '}':
        return gather(m, OOC_PKL_DICT, 0, &made);
    case ']':
        return gather(m, OOC_PKL_LIST, 0, &made);
    case ')':
        return gather(m, OOC_PKL_TUPLE, 0, &made);
    case 't':
        return tuple_from_mark(m, OOC_PKL_TUPLE);
    case 0x85:
    case 0x86:
    case 0x87:
        return gather(m, OOC_PKL_TUPLE, op - 0x84u, &made);
    case 'N':
        return push_number(m, OOC_PKL_NONE, 0);
    case 0x88:
    case 0x89:
        return push_number(m, OOC_PKL_BOOL, op == 0x88);
    case 0x8a:
        return push_long(m);
    case 'X':
        return push_text(m, 4);
    case 0x8c:
        return push_text(m, 1);
    case 'c':
        return global_from_lines(m);
    case 0x93:
        return global_from_stack(m);
    case 'R':
        return reduce(m);
    case 'Q':
        return gather(m, OOC_PKL_STORAGE, 1, &made);
    case 'b': /* attributes of a tensor or dict: none is needed */
        st = pop(m, &number);
        return st || m->depth ? st : damaged(m);
    case 'a':
        return extend(m, 1, false);
    case 's':
        return extend(m, 2, false);
    case 'e':
    case 'u':
        return extend_from_mark(m);
    case 0x94:
        return memo_put(m, m->n_memo);
    default:
        return ooc_fail(m->err, OOC_E_UNSUPPORTED,
                        "%s: the pickle has opcode %u at byte %zu, which files of tensors do not "
                        "need; save only the tensor",
                        m->name, op, (size_t)(m->p - m->start) - 1);
    }
}

static ooc_status take_memory(machine *m, size_t n)
{
    ooc_pickle *o = m->out;

    /* Each byte makes at most one node and one text byte; lists may be copied as they grow. */
    o->max_nodes = (uint32_t)n + 1;
    o->max_items = 4 * (uint32_t)n + 16;
    o->max_text = 2 * n + 16;
    m->max_depth = m->max_memo = (uint32_t)n + 1;
    o->node = ooc_malloc(o->max_nodes * sizeof *o->node);
    o->item = ooc_malloc(o->max_items * sizeof *o->item);
    o->texts = ooc_malloc(o->max_text);
    m->stack = ooc_malloc(m->max_depth * sizeof *m->stack);
    m->memo = ooc_malloc(m->max_memo * sizeof *m->memo);
    if (!o->node || !o->item || !o->texts || !m->stack || !m->memo)
        return ooc_fail(m->err, OOC_E_NOMEM, "%s: no memory for its pickle", m->name);
    memset(m->memo, 0xff, m->max_memo * sizeof *m->memo);
    return OOC_OK;
}

ooc_status ooc_pickle_parse(ooc_pickle *out, const uint8_t *bytes, size_t n, const char *name,
                            ooc_err *err)
{
    machine m = {
        .start = bytes, .p = bytes, .end = bytes + n, .name = name, .out = out, .err = err};
    bool stop = false;
    ooc_status st;

    *out = (ooc_pickle){0};
    st = take_memory(&m, n);
    while (!st && !stop) {
        if (m.p == m.end)
            st = damaged(&m);
        else if (*m.p == '.')
            stop = true;
        else
            st = step(&m, *m.p++);
    }
    if (!st && (m.depth != 1 || m.stack[0] == NO_NODE))
        st = damaged(&m);
    if (!st)
        out->root = m.stack[0];
    ooc_free(m.stack);
    ooc_free(m.memo);
    if (st)
        ooc_pickle_free(out);
    return st;
}

void ooc_pickle_free(ooc_pickle *p)
{
    ooc_free(p->node);
    ooc_free(p->item);
    ooc_free(p->texts);
    *p = (ooc_pickle){0};
}

bool ooc_pkl_calls(const ooc_pickle *p, const ooc_pkl_node *node, const char *function)
{
    return node && node->kind == OOC_PKL_CALL &&
           strcmp(ooc_pkl_item(p, node, 0)->text, function) == 0;
}

bool ooc_pkl_numbers(const ooc_pickle *p, const ooc_pkl_node *node, uint64_t *out, uint32_t max,
                     uint32_t *n)
{
    if (ooc_pkl_calls(p, node, "torch Size"))
        node = ooc_pkl_item(p, ooc_pkl_item(p, node, 1), 0);
    if (!node || (node->kind != OOC_PKL_TUPLE && node->kind != OOC_PKL_LIST) || node->n > max)
        return false;
    for (uint32_t i = 0; i < node->n; i++) {
        const ooc_pkl_node *item = ooc_pkl_item(p, node, i);

        if (item->kind != OOC_PKL_INT || item->number < 0)
            return false;
        out[i] = (uint64_t)item->number;
    }
    *n = node->n;
    return true;
}
