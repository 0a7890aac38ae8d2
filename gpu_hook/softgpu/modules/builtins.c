/* The C twins of builtins.ptx: the same results for any grid. Memory is reached through the checks
 * of a copy. */
#include "modules/builtins.h"

#include <string.h>

#include "memory/host_memory.h"
#include "managed/managed.h"
#include "memory/window.h"

#define HASH_STEP 0x9E3779B97F4A7C15ull
#define HASH_FIRST 0xBF58476D1CE4E5B9ull
#define HASH_SECOND 0x94D049BB133111EBull
#define WORK_FACTOR 0x5851F42D4C957F2Dull
#define WORK_STEP 0x14057B7EF767814Full
#define WORK_ROUND_NANOSECONDS 10

struct fill {
    uint64_t pointer;
    uint32_t value;
    uint64_t words;
};

struct move {
    uint64_t to, from, words;
};

struct axpy {
    uint64_t y, x;
    float a;
    uint64_t count;
};

struct hash {
    uint64_t pointer, words, result;
};

struct spin {
    uint64_t nanoseconds;
};

struct labour {
    uint64_t rounds, result;
};

struct chase {
    uint64_t head, steps, result;
};

/* A view of `count` elements, or NULL: allocated device memory or page-locked host memory,
 * naturally aligned. */
static void *reach(uint64_t address, uint64_t count, uint64_t element_bytes, unsigned device, enum rights rights)
{
    uint64_t bytes;
    struct host_range host;
    if (__builtin_mul_overflow(count, element_bytes, &bytes) || address % element_bytes)
        return NULL;
    if (window_is_device(address))
        return window_backs(address, bytes ? bytes : 1, device, rights) ? window_bytes(address) : NULL;
    int is_inside = host_memory_find(address, &host) == 0 && bytes <= host.bytes - (address - host.start);
    return is_inside || managed_holds(address, bytes) ? managed_view(address) : NULL;
}

static const void *reads(uint64_t address, uint64_t count, uint64_t element_bytes, unsigned device)
{
    return reach(address, count, element_bytes, device, RIGHTS_READ);
}

static void *writes(uint64_t address, uint64_t count, uint64_t element_bytes, unsigned device)
{
    return reach(address, count, element_bytes, device, RIGHTS_WRITE);
}

static int check_fill(const void *arguments, unsigned device)
{
    const struct fill *own = arguments;
    return own->words == 0 || writes(own->pointer, own->words, 4, device) ? 0 : -1;
}

static int run_fill(const void *arguments, unsigned device)
{
    const struct fill *own = arguments;
    uint32_t *words = writes(own->pointer, own->words, 4, device);
    if (own->words && words == NULL)
        return -1;
    for (uint64_t i = 0; i < own->words; i++)
        words[i] = own->value;
    return 0;
}

static int check_copy(const void *arguments, unsigned device)
{
    const struct move *own = arguments;
    int is_fine = writes(own->to, own->words, 4, device) && reads(own->from, own->words, 4, device);
    return own->words == 0 || is_fine ? 0 : -1;
}

static int run_copy(const void *arguments, unsigned device)
{
    const struct move *own = arguments;
    void *to = writes(own->to, own->words, 4, device);
    const void *from = reads(own->from, own->words, 4, device);
    if (own->words && (to == NULL || from == NULL))
        return -1;
    if (own->words)
        memmove(to, from, own->words * 4);
    return 0;
}

static int check_axpy(const void *arguments, unsigned device)
{
    const struct axpy *own = arguments;
    int is_fine = writes(own->y, own->count, 4, device) && reads(own->x, own->count, 4, device);
    return own->count == 0 || is_fine ? 0 : -1;
}

static int run_axpy(const void *arguments, unsigned device)
{
    const struct axpy *own = arguments;
    float *y = writes(own->y, own->count, 4, device);
    const float *x = reads(own->x, own->count, 4, device);
    if (own->count && (y == NULL || x == NULL))
        return -1;
    for (uint64_t i = 0; i < own->count; i++)
        y[i] = __builtin_fmaf(own->a, x[i], y[i]); /* one rounding, as fma.rn in the PTX */
    return 0;
}

static int check_hash(const void *arguments, unsigned device)
{
    const struct hash *own = arguments;
    int is_fine = own->words == 0 || reads(own->pointer, own->words, 4, device);
    return is_fine && writes(own->result, 1, 8, device) ? 0 : -1;
}

/* The sum over all words of a mix of index and value: the order of threads does not matter. */
static int run_hash(const void *arguments, unsigned device)
{
    const struct hash *own = arguments;
    const uint32_t *words = reads(own->pointer, own->words, 4, device);
    uint64_t *result = writes(own->result, 1, 8, device), sum = 0;
    if (result == NULL || (own->words && words == NULL))
        return -1;
    for (uint64_t i = 0; i < own->words; i++) {
        uint64_t mix = (i + 1) * HASH_STEP + words[i];
        mix = (mix ^ mix >> 30) * HASH_FIRST;
        mix = (mix ^ mix >> 27) * HASH_SECOND;
        sum += mix ^ mix >> 31;
    }
    *result += sum;
    return 0;
}

static int check_nothing(const void *arguments, unsigned device)
{
    return 0;
}

static uint64_t spin_nanoseconds(const void *arguments)
{
    return ((const struct spin *)arguments)->nanoseconds;
}

static uint64_t work_nanoseconds(const void *arguments)
{
    return ((const struct labour *)arguments)->rounds * WORK_ROUND_NANOSECONDS;
}

static int check_work(const void *arguments, unsigned device)
{
    return writes(((const struct labour *)arguments)->result, 1, 8, device) ? 0 : -1;
}

/* All rounds at once: two of x * f + s are one of x * f² + (s * f + s). */
static int run_work(const void *arguments, unsigned device)
{
    const struct labour *own = arguments;
    uint64_t *result = writes(own->result, 1, 8, device), x = 1, factor = WORK_FACTOR, step = WORK_STEP;
    if (result == NULL)
        return -1;
    for (uint64_t rounds = own->rounds; rounds; rounds >>= 1) {
        if (rounds & 1)
            x = x * factor + step;
        step = step * factor + step;
        factor *= factor;
    }
    *result = x;
    return 0;
}

static int check_chase(const void *arguments, unsigned device)
{
    const struct chase *own = arguments;
    int is_fine = own->steps == 0 || reads(own->head, 1, 8, device);
    return is_fine && writes(own->result, 1, 8, device) ? 0 : -1;
}

/* Follows pointers that lie in device memory, and stores the last. */
static int run_chase(const void *arguments, unsigned device)
{
    const struct chase *own = arguments;
    uint64_t at = own->head, *result = writes(own->result, 1, 8, device);
    for (uint64_t i = 0; i < own->steps; i++) {
        const uint64_t *link = reads(at, 1, 8, device);
        if (link == NULL)
            return -1;
        at = *link;
    }
    if (result)
        *result = at;
    return result ? 0 : -1;
}

static uint64_t no_time(const void *arguments)
{
    return 0;
}

const struct builtin *builtin_find(const struct entry *entry)
{
    static const struct builtin builtins[] = {
        {"aliquot_fill", 3, {8, 4, 8}, 0, check_fill, run_fill, no_time},
        {"aliquot_copy", 3, {8, 8, 8}, 0, check_copy, run_copy, no_time},
        {"aliquot_axpy", 4, {8, 8, 4, 8}, 0, check_axpy, run_axpy, no_time},
        {"aliquot_hash", 3, {8, 8, 8}, 16, check_hash, run_hash, no_time},
        {"aliquot_spin", 1, {8}, BUILTIN_WRITES_NOTHING, check_nothing, check_nothing, spin_nanoseconds},
        {"aliquot_work", 2, {8, 8}, 8, check_work, run_work, work_nanoseconds},
        {"aliquot_chase", 3, {8, 8, 8}, 16, check_chase, run_chase, no_time},
    };
    for (unsigned i = 0; i < sizeof builtins / sizeof *builtins; i++) {
        const struct builtin *builtin = &builtins[i];
        int is_same = strcmp(builtin->name, entry->name) == 0 && builtin->parameter_count == entry->parameter_count;
        for (unsigned p = 0; is_same && p < builtin->parameter_count; p++)
            is_same = builtin->parameter_bytes[p] == entry->parameters[p].bytes;
        if (is_same)
            return builtin;
    }
    return NULL;
}
