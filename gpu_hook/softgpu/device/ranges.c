/* The treap behind ranges.h. */
#include "device/ranges.h"

#include <stdlib.h>

static void refresh(struct range *node)
{
    uint64_t largest = node->owner ? 0 : node->bytes;
    if (node->left && node->left->largest_free > largest)
        largest = node->left->largest_free;
    if (node->right && node->right->largest_free > largest)
        largest = node->right->largest_free;
    node->largest_free = largest;
}

/* All of `tree` below `key` to *left, the rest to *right. */
static void split(struct range *tree, uint64_t key, struct range **left, struct range **right)
{
    if (tree == NULL) {
        *left = *right = NULL;
    } else if (tree->start < key) {
        split(tree->right, key, &tree->right, right);
        *left = tree;
        refresh(tree);
    } else {
        split(tree->left, key, left, &tree->left);
        *right = tree;
        refresh(tree);
    }
}

static struct range *join(struct range *left, struct range *right)
{
    if (left == NULL || right == NULL)
        return left ? left : right;
    if (left->priority > right->priority) {
        left->right = join(left->right, right);
        refresh(left);
        return left;
    }
    right->left = join(left, right->left);
    refresh(right);
    return right;
}

struct range *ranges_find(const struct ranges *ranges, uint64_t address)
{
    struct range *node = ranges->root;
    while (node) {
        if (address < node->start)
            node = node->left;
        else if (address - node->start < node->bytes)
            return node;
        else
            node = node->right;
    }
    return NULL;
}

struct range *ranges_next_owned(const struct ranges *ranges, uint64_t address)
{
    for (;;) {
        struct range *best = NULL, *node = ranges->root;
        while (node)
            if (node->start >= address) {
                best = node;
                node = node->left;
            } else {
                node = node->right;
            }
        if (best == NULL || best->owner)
            return best;
        address = best->start + best->bytes;
    }
}

static void put(struct ranges *ranges, struct range *node)
{
    struct range *left, *right;
    node->left = node->right = NULL;
    refresh(node);
    split(ranges->root, node->start, &left, &right);
    ranges->root = join(join(left, node), right);
}

static struct range *pull(struct ranges *ranges, uint64_t start)
{
    struct range *left, *middle, *right;
    split(ranges->root, start, &left, &right);
    split(right, start + 1, &middle, &right);
    ranges->root = join(left, right);
    return middle;
}

int ranges_insert(struct ranges *ranges, uint64_t start, uint64_t bytes, void *owner)
{
    struct range *node = calloc(1, sizeof *node);
    if (node == NULL)
        return -1;
    ranges->seed = ranges->seed * 1664525u + 1013904223u;
    node->start = start;
    node->bytes = bytes;
    node->owner = owner;
    node->priority = ranges->seed;
    put(ranges, node);
    return 0;
}

void ranges_remove(struct ranges *ranges, uint64_t start)
{
    free(pull(ranges, start));
}

uint64_t ranges_take(struct ranges *ranges, uint64_t bytes, void *owner)
{
    struct range *node = ranges->root;
    if (node == NULL || node->largest_free < bytes)
        return 0;
    for (;;) {
        if (node->left && node->left->largest_free >= bytes)
            node = node->left;
        else if (node->owner == NULL && node->bytes >= bytes)
            break;
        else
            node = node->right;
    }
    node = pull(ranges, node->start);
    if (node->bytes > bytes && ranges_insert(ranges, node->start + bytes, node->bytes - bytes, NULL) != 0) {
        put(ranges, node);
        return 0;
    }
    node->bytes = bytes;
    node->owner = owner;
    put(ranges, node);
    return node->start;
}

/* Cuts [start, start + bytes) out of a free node, which is in no tree: its ends become free ranges
 * of their own. */
static int cut(struct ranges *ranges, struct range *node, uint64_t start, uint64_t bytes)
{
    uint64_t before = start - node->start, after = node->bytes - before - bytes;
    if (before && ranges_insert(ranges, node->start, before, NULL) != 0)
        return -1;
    if (after && ranges_insert(ranges, start + bytes, after, NULL) != 0) {
        if (before)
            ranges_remove(ranges, node->start);
        return -1;
    }
    node->start = start;
    node->bytes = bytes;
    return 0;
}

uint64_t ranges_take_at(struct ranges *ranges, uint64_t start, uint64_t bytes, void *owner)
{
    struct range *node = ranges_find(ranges, start);
    if (node == NULL || node->owner || bytes > node->bytes - (start - node->start))
        return 0;
    node = pull(ranges, node->start);
    int failed = cut(ranges, node, start, bytes);
    node->owner = failed ? NULL : owner;
    put(ranges, node);
    return failed ? 0 : start;
}

uint64_t ranges_take_aligned(struct ranges *ranges, uint64_t bytes, uint64_t alignment, void *owner)
{
    uint64_t padded, free_start, free_end;
    if (__builtin_add_overflow(bytes, alignment - 1, &padded))
        return 0;
    uint64_t start = ranges_take(ranges, padded, owner);
    if (start == 0)
        return 0;
    ranges_give_back(ranges, start, &free_start, &free_end);
    return ranges_take_at(ranges, (start + alignment - 1) & ~(alignment - 1), bytes, owner);
}

void ranges_give_back(struct ranges *ranges, uint64_t start, uint64_t *free_start, uint64_t *free_end)
{
    struct range *node = pull(ranges, start);
    struct range *after = ranges_find(ranges, node->start + node->bytes);
    struct range *before = node->start ? ranges_find(ranges, node->start - 1) : NULL;
    node->owner = NULL;
    if (after && after->owner == NULL) {
        node->bytes += after->bytes;
        ranges_remove(ranges, after->start);
    }
    if (before && before->owner == NULL) {
        node->bytes += before->bytes;
        node->start = before->start;
        ranges_remove(ranges, before->start);
    }
    put(ranges, node);
    *free_start = node->start;
    *free_end = node->start + node->bytes;
}

int ranges_split(struct ranges *ranges, uint64_t start, uint64_t bytes, void *owner)
{
    struct range *node = pull(ranges, start);
    int failed =
        node->bytes > bytes && ranges_insert(ranges, start + bytes, node->bytes - bytes, node->owner) != 0;
    if (!failed) {
        node->bytes = bytes;
        node->owner = owner;
    }
    put(ranges, node);
    return failed ? -1 : 0;
}
