/* An ordered map of address ranges, allocated and free. It is a treap by address that also knows
 * the largest free range of each subtree: finding room, inserting and looking up cost O(log n). It
 * has no lock of its own. */
#ifndef SOFTGPU_RANGES_H
#define SOFTGPU_RANGES_H

#include <stddef.h>
#include <stdint.h>

struct range {
    uint64_t start, bytes;
    void *owner; /* NULL: free */
    uint64_t largest_free;
    uint32_t priority;
    struct range *left, *right;
};

struct ranges {
    struct range *root;
    uint32_t seed;
};

/* The range that holds `address`, or NULL. */
struct range *ranges_find(const struct ranges *ranges, uint64_t address);
/* Adds a range that overlaps none; 0, or -1 without memory. */
int ranges_insert(struct ranges *ranges, uint64_t start, uint64_t bytes, void *owner);
void ranges_remove(struct ranges *ranges, uint64_t start);
/* First free range of at least `bytes`, cut to size and given to `owner`; its start, or 0. */
uint64_t ranges_take(struct ranges *ranges, uint64_t bytes, void *owner);
/* Exactly [start, start + bytes), if it lies in one free range; `start`, or 0. */
uint64_t ranges_take_at(struct ranges *ranges, uint64_t start, uint64_t bytes, void *owner);
/* As ranges_take, at a multiple of `alignment`, a power of two. */
uint64_t ranges_take_aligned(struct ranges *ranges, uint64_t bytes, uint64_t alignment, void *owner);
/* Gives a taken range back, joined with its free neighbours; says where the joined free range
 * lies. */
void ranges_give_back(struct ranges *ranges, uint64_t start, uint64_t *free_start, uint64_t *free_end);
/* Cuts an owned range at `start`: its first `bytes` go to `owner`, the rest stays with the former.
 * 0, or -1 without memory. */
int ranges_split(struct ranges *ranges, uint64_t start, uint64_t bytes, void *owner);
/* The first owned range at or after `address`, or NULL. */
struct range *ranges_next_owned(const struct ranges *ranges, uint64_t address);

#endif
