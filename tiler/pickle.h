/* pickle.h - a strict reader of the pickles that torch.save writes. No code is ever run: values
 * become nodes, and only the few classes and functions that such files need are known; every other
 * name or opcode is refused.
 *
 * Memory: one block of nodes and texts, bounded by the pickle's size. */
#ifndef OOC_TILER_PICKLE_H
#define OOC_TILER_PICKLE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    OOC_PKL_NONE,
    OOC_PKL_BOOL,
    OOC_PKL_INT,
    OOC_PKL_FLOAT,
    OOC_PKL_TEXT,
    OOC_PKL_TUPLE,  /* items */
    OOC_PKL_LIST,   /* items */
    OOC_PKL_DICT,   /* items: key, value, key, value, ... */
    OOC_PKL_GLOBAL, /* text: "module name" */
    OOC_PKL_CALL,   /* items[0]: the function (a GLOBAL), items[1]: its arguments (a TUPLE) */
    OOC_PKL_STORAGE /* items[0]: the tuple that names a storage */
} ooc_pkl_kind;

typedef struct {
    ooc_pkl_kind kind;
    int64_t number; /* BOOL, INT */
    const char *text;
    uint32_t first, n; /* of the items, in ooc_pickle.item */
} ooc_pkl_node;

typedef struct {
    ooc_pkl_node *node;
    uint32_t n_nodes, max_nodes;
    uint32_t *item; /* node numbers */
    uint32_t n_items, max_items;
    char *texts;
    size_t n_text, max_text;
    uint32_t root;
} ooc_pickle;

/* OOC_E_FORMAT: damaged; OOC_E_UNSUPPORTED: holds something that is not known. */
ooc_status ooc_pickle_parse(ooc_pickle *out, const uint8_t *bytes, size_t n, const char *name,
                            ooc_err *err);
void ooc_pickle_free(ooc_pickle *p);

static inline const ooc_pkl_node *ooc_pkl_item(const ooc_pickle *p, const ooc_pkl_node *of,
                                               uint32_t i)
{
    return i < of->n ? &p->node[p->item[of->first + i]] : NULL;
}

/* Is it a call of this function ("module name")? */
bool ooc_pkl_calls(const ooc_pickle *p, const ooc_pkl_node *node, const char *function);
/* The tuple (or list, or torch.Size) as whole numbers; false where it is something else or longer
 * than max. */
bool ooc_pkl_numbers(const ooc_pickle *p, const ooc_pkl_node *node, uint64_t *out, uint32_t max,
                     uint32_t *n);
#endif
