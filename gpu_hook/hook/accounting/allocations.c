#include "accounting/allocations.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define STRIPES 64u /* power of two */
#define FIRST_SLOTS 64u

struct stripe { /* open addressing with linear probing; guarded by its mutex */
    pthread_mutex_t mutex;
    struct allocation *slots;
    uint32_t slot_count; /* 0 or a power of two */
    uint32_t used;
} __attribute__((aligned(64)));

static struct {
    pthread_once_t once;
    struct stripe stripes[STRIPES];
    uint32_t sweep; /* the present sweep's number, or the last one's; written by its thread alone */
} state = {.once = PTHREAD_ONCE_INIT};

static void prepare(void)
{
    for (unsigned i = 0; i < STRIPES; i++)
        pthread_mutex_init(&state.stripes[i].mutex, NULL);
}

static uint64_t hash(uint64_t key, enum allocation_space space)
{
    /* Device pointers differ in their middle bits only: mix them into all. */
    uint64_t mixed = (key ^ space * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    mixed ^= mixed >> 33;
    mixed *= 0xc4ceb9fe1a85ec53u;
    return mixed ^ mixed >> 29;
}

static struct stripe *lock_stripe(uint64_t hashed)
{
    pthread_once(&state.once, prepare);
    struct stripe *stripe = &state.stripes[hashed & (STRIPES - 1)];
    pthread_mutex_lock(&stripe->mutex);
    return stripe;
}

static uint32_t home_slot(const struct stripe *stripe, uint64_t hashed)
{
    return (uint32_t)(hashed / STRIPES) & (stripe->slot_count - 1);
}

static enum allocation_space space_of(const struct allocation *allocation)
{
    return allocation->kind == ALLOCATION_HANDLE  ? SPACE_HANDLE
           : allocation->kind == ALLOCATION_HOST  ? SPACE_HOST
           : allocation->kind == ALLOCATION_ARRAY ? SPACE_ARRAY
                                                  : SPACE_POINTER;
}

/* The slot that holds the key, or the free slot where it would go. Needs at least one free slot. */
static uint32_t find_slot(const struct stripe *stripe, uint64_t hashed, uint64_t key,
                          enum allocation_space space)
{
    uint32_t slot = home_slot(stripe, hashed);
    while (stripe->slots[slot].kind != ALLOCATION_NONE &&
           (stripe->slots[slot].key != key || space_of(&stripe->slots[slot]) != space))
        slot = (slot + 1) & (stripe->slot_count - 1);
    return slot;
}

static bool grow(struct stripe *stripe)
{
    struct stripe larger = {.slot_count =
                                stripe->slot_count ? stripe->slot_count * 2 : FIRST_SLOTS};
    larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (uint32_t i = 0; i < stripe->slot_count; i++) {
        const struct allocation *old = &stripe->slots[i];
        if (old->kind != ALLOCATION_NONE)
            larger
                .slots[find_slot(&larger, hash(old->key, space_of(old)), old->key, space_of(old))] =
                *old;
    }
    free(stripe->slots);
    stripe->slots = larger.slots;
    stripe->slot_count = larger.slot_count;
    return true;
}

/* Closes the gap, so that no search ends before its key and no tombstones gather. */
static void remove_slot(struct stripe *stripe, uint32_t gap)
{
    uint32_t mask = stripe->slot_count - 1;
    for (uint32_t next = (gap + 1) & mask; stripe->slots[next].kind != ALLOCATION_NONE;
         next = (next + 1) & mask) {
        const struct allocation *candidate = &stripe->slots[next];
        uint32_t home = home_slot(stripe, hash(candidate->key, space_of(candidate)));
        if (((next - home) & mask) >= ((next - gap) & mask)) {
            stripe->slots[gap] = *candidate;
            gap = next;
        }
    }
    stripe->slots[gap].kind = ALLOCATION_NONE;
    stripe->used--;
}

bool allocations_add(const struct allocation *allocation, struct allocation *replaced)
{
    uint64_t hashed = hash(allocation->key, space_of(allocation));
    struct stripe *stripe = lock_stripe(hashed);
    bool has_room = (stripe->used + 1) * 4 <= stripe->slot_count * 3 || grow(stripe);
    if (has_room) {
        struct allocation *slot =
            &stripe->slots[find_slot(stripe, hashed, allocation->key, space_of(allocation))];
        *replaced = *slot;
        if (slot->kind == ALLOCATION_NONE)
            stripe->used++;
        *slot = *allocation;
        slot->sweep = 0;
    }
    pthread_mutex_unlock(&stripe->mutex);
    return has_room;
}

bool allocations_take(uint64_t key, enum allocation_space space, struct allocation *taken)
{
    uint64_t hashed = hash(key, space);
    struct stripe *stripe = lock_stripe(hashed);
    bool is_known = false;
    if (stripe->slot_count) {
        uint32_t slot = find_slot(stripe, hashed, key, space);
        is_known = stripe->slots[slot].kind != ALLOCATION_NONE;
        if (is_known) {
            *taken = stripe->slots[slot];
            remove_slot(stripe, slot);
        }
    }
    pthread_mutex_unlock(&stripe->mutex);
    return is_known;
}

/* Copy a record that this sweep has not offered yet. False: there is none. `*slot`: where to look
 * first; a removal by another thread moves records to places before it, so the search goes round. */
static bool find_unoffered(struct stripe *stripe, uint32_t *slot, struct allocation *found)
{
    bool has_found = false;
    pthread_mutex_lock(&stripe->mutex);
    for (uint32_t i = 0; i < stripe->slot_count && !has_found; i++) {
        struct allocation *record = &stripe->slots[(*slot + i) & (stripe->slot_count - 1)];
        has_found = record->kind != ALLOCATION_NONE && record->sweep != state.sweep;
        if (has_found) {
            record->sweep = state.sweep;
            *found = *record;
            *slot += i;
        }
    }
    pthread_mutex_unlock(&stripe->mutex);
    return has_found;
}

/* Remove a record that this sweep has offered. False: another thread has removed it meanwhile; the
 * record that may have its key by now is another one. */
static bool take_offered(struct stripe *stripe, const struct allocation *offered)
{
    enum allocation_space space = space_of(offered);
    bool is_same = false;
    pthread_mutex_lock(&stripe->mutex);
    uint32_t slot = find_slot(stripe, hash(offered->key, space), offered->key, space);
    is_same = stripe->slots[slot].kind != ALLOCATION_NONE &&
              stripe->slots[slot].sweep == state.sweep;
    if (is_same)
        remove_slot(stripe, slot);
    pthread_mutex_unlock(&stripe->mutex);
    return is_same;
}

void allocations_sweep(bool (*is_gone)(const struct allocation *, const void *argument),
                       void (*taken)(const struct allocation *), const void *argument)
{
    struct allocation found;
    pthread_once(&state.once, prepare);
    if (++state.sweep == 0)
        state.sweep = 1;
    for (unsigned i = 0; i < STRIPES; i++) {
        struct stripe *stripe = &state.stripes[i];
        uint32_t slot = 0;
        while (find_unoffered(stripe, &slot, &found))
            if (is_gone(&found, argument) && take_offered(stripe, &found))
                taken(&found);
    }
}

void allocations_reset(void)
{
    prepare(); /* a thread of the parent may have held a mutex when it forked */
    for (unsigned i = 0; i < STRIPES; i++) {
        free(state.stripes[i].slots);
        state.stripes[i].slots = NULL;
        state.stripes[i].slot_count = state.stripes[i].used = 0;
    }
}
