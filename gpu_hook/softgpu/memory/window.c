/* The address window and the table of what lies in it. The alias window is one private mapping
 * without reserved swap: pages exist when touched, return with madvise, and die with the process;
 * no descriptor and no mapping per allocation, so neither ulimit -n nor vm.max_map_count bounds
 * their number. Mapped handles lie over it (mappings.c). */
#include "memory/window.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/driver.h"
#include "device/log.h"
#include "managed/managed.h"
#include "device/ranges.h"
#include "device/slots.h"
#include "memory/window_state.h"

#ifndef WINDOW_BYTES /* the thread sanitizer leaves less room */
#define WINDOW_BYTES (2ull << 40)
#endif
#define SMALL_BYTES (64ull << 30) /* the part for allocations below LARGE_LEAST */
#define SMALL_UNIT 512ull
#define LARGE_LEAST (1ull << 20)
#define PAGE 4096ull

static struct {
    pthread_mutex_t mutex; /* guards the maps and every allocation record */
    uint64_t base;
    struct ranges small, large; /* owners are struct allocation */
    uint64_t next_id;
    window_release_listener release_listener; /* written at cuInit alone */
} window = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A child gets neither a copy of device memory nor its cost; core files hold none of it. */
static void *map_alias(uint64_t start, uint64_t bytes)
{
    void *alias = mmap((void *)(start + WINDOW_BYTES), bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (alias != MAP_FAILED) {
        madvise(alias, bytes, MADV_DONTFORK);
        madvise(alias, bytes, MADV_DONTDUMP);
    }
    return alias;
}

int window_open(void)
{
    if (window.base)
        return 0;
    void *base = mmap(NULL, 2 * WINDOW_BYTES + MACHINE_LARGE_UNIT, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        log_failure("%llu TiB of addresses cannot be reserved: %s; lift the address space limit (ulimit -v)",
                    (unsigned long long)(2 * WINDOW_BYTES >> 40), strerror(errno));
        return -1;
    }
    uint64_t start = ((uint64_t)base + MACHINE_LARGE_UNIT - 1) & ~(uint64_t)(MACHINE_LARGE_UNIT - 1);
    if (map_alias(start, WINDOW_BYTES) == MAP_FAILED || ranges_insert(&window.small, start, SMALL_BYTES, NULL) != 0 ||
        ranges_insert(&window.large, start + SMALL_BYTES, WINDOW_BYTES - SMALL_BYTES, NULL) != 0) {
        log_failure("the device's address window cannot be mapped: %s; allow overcommit (vm.overcommit_memory=0 or 1)",
                    strerror(errno));
        munmap(base, 2 * WINDOW_BYTES + MACHINE_LARGE_UNIT);
        return -1;
    }
    window.base = start;
    return 0;
}

uint64_t window_round(uint64_t bytes)
{
    uint64_t unit = bytes < LARGE_LEAST ? SMALL_UNIT : MACHINE_LARGE_UNIT;
    return (bytes + unit - 1) & ~(unit - 1);
}

void *window_bytes(uint64_t address)
{
    return (void *)(address + WINDOW_BYTES);
}

int window_is_device(uint64_t address)
{
    return window.base && address >= window.base && address - window.base < WINDOW_BYTES;
}

static struct ranges *map_of(uint64_t address)
{
    return address - window.base < SMALL_BYTES ? &window.small : &window.large;
}

/* Under the mutex: an allocation, or a pool's reservation. */
static struct allocation *look_up_whole(uint64_t address)
{
    struct range *range = window_is_device(address) ? ranges_find(map_of(address), address) : NULL;
    struct allocation *allocation = range ? range->owner : NULL;
    return allocation && address - allocation->start < allocation->bytes ? allocation : NULL;
}

/* Under the mutex. */
static struct allocation *look_up(uint64_t address)
{
    struct allocation *allocation = look_up_whole(address);
    if (allocation == NULL || allocation->parts == NULL)
        return allocation;
    struct range *range = ranges_find(allocation->parts, address);
    allocation = range ? range->owner : NULL;
    return allocation && !allocation->is_dying && address - allocation->start < allocation->bytes ? allocation : NULL;
}

/* Charges the device and takes addresses for it. */
static CUresult obtain(const struct allocation *wanted, uint64_t *address)
{
    uint64_t bytes = wanted->bytes, charged = window_round(bytes);
    struct allocation *allocation = bytes < WINDOW_BYTES ? calloc(1, sizeof *allocation) : NULL;
    if (allocation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int failed = managed_charge(wanted->device, charged);
    if (failed) {
        free(allocation);
        return failed == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_SYSTEM_NOT_READY;
    }
    *allocation = *wanted;
    allocation->charged = charged;
    pthread_mutex_lock(&window.mutex);
    allocation->start = ranges_take(bytes < LARGE_LEAST ? &window.small : &window.large, charged, allocation);
    allocation->id = ++window.next_id;
    *address = allocation->start;
    pthread_mutex_unlock(&window.mutex);
    if (*address)
        return CUDA_SUCCESS;
    slots_refund(&driver.attachment, wanted->device, charged);
    free(allocation);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult window_allocate(struct context *context, uint64_t bytes, uint64_t *address)
{
    return obtain(&(struct allocation){.bytes = bytes, .context = context, .device = context->physical}, address);
}

CUresult window_reserve(unsigned physical, uint64_t bytes, const struct ranges *parts, uint64_t *start)
{
    return obtain(&(struct allocation){.bytes = bytes, .device = physical, .parts = parts}, start);
}

void window_lock(void)
{
    pthread_mutex_lock(&window.mutex);
}

void window_unlock(void)
{
    pthread_mutex_unlock(&window.mutex);
}

struct allocation *window_look_up(uint64_t address)
{
    return look_up(address);
}

struct allocation *window_look_up_whole(uint64_t address)
{
    return look_up_whole(address);
}

void window_on_release(window_release_listener listener)
{
    window.release_listener = listener;
}

uint64_t window_new_id(void)
{
    return ++window.next_id;
}

/* Under the mutex. Host pages go back as soon as no live allocation lies on them. */
static void release(struct allocation *allocation)
{
    uint64_t free_start, free_end;
    ranges_give_back(map_of(allocation->start), allocation->start, &free_start, &free_end);
    uint64_t start = allocation->start & ~(PAGE - 1), end = (allocation->start + allocation->charged + PAGE - 1) & ~(PAGE - 1);
    if (start < free_start)
        start += PAGE;
    if (end > free_end)
        end -= PAGE;
    if (start >= end)
        return;
    madvise(window_bytes(start), end - start, MADV_DONTNEED);
    window.release_listener(start, end, free_start, free_end);
}

/* Gives back what starts at `address`: a reservation, or an allocation that lies in none. */
static int give_back(uint64_t address, int is_reservation)
{
    pthread_mutex_lock(&window.mutex);
    struct allocation *allocation = look_up_whole(address);
    if (allocation && (allocation->kind != ALLOCATION_PLAIN || allocation->start != address ||
                       (allocation->parts != NULL) != is_reservation))
        allocation = NULL;
    if (allocation)
        release(allocation);
    pthread_mutex_unlock(&window.mutex);
    if (allocation == NULL)
        return -1;
    slots_refund(&driver.attachment, allocation->device, allocation->charged);
    free(allocation);
    return 0;
}

int window_free(uint64_t address)
{
    return give_back(address, 0);
}

void window_release(uint64_t start)
{
    give_back(start, 1);
}

void window_free_context(struct context *context)
{
    struct ranges *maps[] = {&window.small, &window.large};
    for (int i = 0; i < 2; i++)
        for (uint64_t from = 0;;) {
            pthread_mutex_lock(&window.mutex);
            struct range *range = ranges_next_owned(maps[i], from);
            struct allocation *allocation = range ? range->owner : NULL;
            uint64_t start = range ? range->start : 0;
            int is_own = allocation && allocation->context == context;
            int is_imported = is_own && allocation->kind == ALLOCATION_IMPORTED;
            uint64_t address = is_own ? allocation->start : 0;
            pthread_mutex_unlock(&window.mutex);
            if (range == NULL)
                break;
            if (is_imported)
                window_give_import(address);
            else if (is_own)
                window_free(address);
            from = start + 1;
        }
}

int window_mark_dying(uint64_t address)
{
    pthread_mutex_lock(&window.mutex);
    struct allocation *allocation = look_up(address);
    int is_first = allocation && allocation->kind == ALLOCATION_PLAIN && allocation->start == address &&
                   !allocation->is_dying;
    if (is_first)
        allocation->is_dying = 1;
    pthread_mutex_unlock(&window.mutex);
    return is_first ? 0 : -1;
}

void window_clear(uint64_t start, uint64_t bytes)
{
    map_alias(start, bytes);
}

int window_is_small(uint64_t address)
{
    return map_of(address) == &window.small;
}

uint64_t window_small_bytes(void)
{
    return SMALL_BYTES;
}

uint64_t window_small_offset(uint64_t address)
{
    return address - window.base;
}

struct ranges *window_addresses(void)
{
    return &window.large;
}
