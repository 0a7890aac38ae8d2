#include "base/spans.h"

/* Split `tree`: the spans that start below `start` go to *left, the rest to *right. */
static void split(struct span *tree, uint64_t start, struct span **left, struct span **right)
{
    if (!tree) {
        *left = *right = NULL;
    } else if (tree->start < start) {
        split(tree->right, start, &tree->right, right);
        *left = tree;
    } else {
        split(tree->left, start, left, &tree->left);
        *right = tree;
    }
}

static struct span *join(struct span *left, struct span *right)
{
    if (!left || !right)
        return left ? left : right;
    if (left->priority > right->priority) {
        left->right = join(left->right, right);
        return left;
    }
    right->left = join(left, right->left);
    return right;
}

void spans_add(struct spans *spans, struct span *added)
{
    struct span *left, *right;
    spans->seed = spans->seed * 1664525u + 1013904223u;
    added->priority = spans->seed;
    added->left = added->right = NULL;
    split(spans->root, added->start, &left, &right);
    spans->root = join(join(left, added), right);
}

void spans_remove(struct spans *spans, const struct span *removed)
{
    struct span **link = &spans->root;
    while (*link != removed)
        link = removed->start < (*link)->start ? &(*link)->left : &(*link)->right;
    *link = join(removed->left, removed->right);
}

void *spans_from(const struct spans *spans, uint64_t address)
{
    struct span *best = NULL;
    for (struct span *span = spans->root; span;)
        if (span_end(span) > address) {
            best = span;
            span = span->left;
        } else {
            span = span->right;
        }
    return best;
}

void *spans_at(const struct spans *spans, uint64_t address)
{
    struct span *found = spans_from(spans, address);
    return found && found->start <= address ? found : NULL;
}
