/* Managed allocations, block by block. The bytes lie in host pages; only their residency is counted
 * on devices. */
#include "managed/managed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "driver/driver.h"
#include "device/engine.h"
#include "device/ranges.h"
#include "device/slots.h"

#define SMALL_CHARGE 65536ull /* the unit of a block at the end of an allocation */

struct block {
    struct managed *owner;
    struct block *earlier, *later; /* of the same device, by their last use */
    int device;                    /* index in the machine, or MANAGED_HOST */
    struct managed_advice advice;
};

struct managed {
    struct managed_range range;
    uint64_t mapped_bytes;
    uint64_t block_count;
    struct block blocks[];
};

static struct {
    pthread_mutex_t mutex; /* guards all below */
    struct ranges map;     /* owners are struct managed */
    struct resident {
        struct block *oldest, *newest;
    } resident[MACHINE_DEVICES];
    uint64_t next_id;
    _Atomic uint64_t count; /* allocations: without any, nothing is looked up */
    uint64_t fault_nanoseconds; /* written once */
} managed = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int is_any(void)
{
    return atomic_load_explicit(&managed.count, memory_order_acquire) != 0;
}

/* Under the mutex. */
static struct managed *look_up(uint64_t address)
{
    struct range *range = ranges_find(&managed.map, address);
    struct managed *found = range ? range->owner : NULL;
    return found && address - found->range.start < found->range.bytes ? found : NULL;
}

static uint64_t charge_of(const struct block *block)
{
    uint64_t index = (uint64_t)(block - block->owner->blocks);
    uint64_t left = block->owner->range.bytes - index * MANAGED_BLOCK;
    return left >= MANAGED_BLOCK ? MANAGED_BLOCK : (left + SMALL_CHARGE - 1) & ~(SMALL_CHARGE - 1);
}

/* Under the mutex. */
static void unlink_block(struct block *block)
{
    struct resident *list = &managed.resident[block->device];
    *(block->earlier ? &block->earlier->later : &list->oldest) = block->later;
    *(block->later ? &block->later->earlier : &list->newest) = block->earlier;
}

/* Under the mutex. */
static void link_newest(struct block *block, int device)
{
    struct resident *list = &managed.resident[device];
    block->device = device;
    block->earlier = list->newest;
    block->later = NULL;
    *(list->newest ? &list->newest->later : &list->oldest) = block;
    list->newest = block;
}

/* Under the mutex; the block is on a device. */
static void move_to_host(struct block *block)
{
    unlink_block(block);
    slots_refund(&driver.attachment, (unsigned)block->device, charge_of(block));
    block->device = MANAGED_HOST;
}

/* Under the mutex: 1 when the block is on the device afterwards. Makes room by what was not used
 * since `first`, so that a range larger than the device does not drive its own beginning out. */
static int bring(struct block *block, unsigned device, const struct block *first, struct managed_cost *cost)
{
    if (block->device == (int)device) {
        unlink_block(block);
        link_newest(block, (int)device);
        return 1;
    }
    while (slots_charge(&driver.attachment, device, charge_of(block)) != 0) {
        struct block *oldest = managed.resident[device].oldest;
        if (oldest == NULL || oldest == first)
            return 0;
        cost->left += charge_of(oldest);
        move_to_host(oldest);
    }
    if (block->device != MANAGED_HOST)
        move_to_host(block);
    link_newest(block, (int)device);
    cost->arrived += charge_of(block);
    return 1;
}

/* Under the mutex: 1 when the block fits on the device without driving others out, and is there. */
static int bring_into_room(struct block *block, unsigned device, struct managed_cost *cost)
{
    if (slots_charge(&driver.attachment, device, charge_of(block)) != 0)
        return 0;
    if (block->device != MANAGED_HOST)
        move_to_host(block);
    link_newest(block, (int)device);
    cost->arrived += charge_of(block);
    return 1;
}

/* Under the mutex: the visible number's bit of a device of the machine. */
static uint32_t access_bit(unsigned device)
{
    for (int i = 0; i < driver.device_count; i++)
        if (driver.physical[i] == device)
            return 1u << i;
    return 0;
}

/* Under the mutex: a device uses the block. Advice maps it beforehand, so that no fault is taken;
 * then it comes only where there is room. */
static void use(struct block *block, unsigned device, const struct block **first, struct managed_cost *cost)
{
    int is_here = block->device == (int)device;
    int is_mapped = (block->advice.accessed_by & access_bit(device)) != 0;
    int stays_home = block->advice.preferred.type >= CU_MEM_LOCATION_TYPE_HOST;
    cost->faults += !is_here && !is_mapped;
    int has_come = stays_home                ? is_here
                   : is_mapped && !is_here   ? bring_into_room(block, device, cost)
                                             : bring(block, device, *first, cost);
    if (has_come && *first == NULL)
        *first = block;
    if (!has_come)
        cost->remote += charge_of(block);
}

/* Under the mutex: the blocks of a range within one allocation. */
static struct block *blocks_of(struct managed *own, uint64_t address, uint64_t bytes, struct block **end)
{
    uint64_t offset = address - own->range.start;
    *end = &own->blocks[(offset + bytes + MANAGED_BLOCK - 1) / MANAGED_BLOCK];
    return &own->blocks[offset / MANAGED_BLOCK];
}

/* Under the mutex: the blocks of a range, when it lies within one allocation. */
static struct block *find_blocks(uint64_t address, uint64_t bytes, struct block **end)
{
    struct managed *own = look_up(address);
    *end = NULL;
    if (own == NULL || bytes > own->range.bytes - (address - own->range.start))
        return NULL;
    return blocks_of(own, address, bytes, end);
}

uint64_t managed_move(uint64_t address, uint64_t bytes, int device)
{
    struct managed_cost cost = {0};
    uint64_t sent = 0;
    if (!is_any() || bytes == 0)
        return 0;
    pthread_mutex_lock(&managed.mutex);
    struct block *end, *first = NULL, *block = find_blocks(address, bytes, &end);
    for (; block != end; block++) {
        if (device == MANAGED_HOST && block->device != MANAGED_HOST) {
            sent += charge_of(block);
            move_to_host(block);
        } else if (device != MANAGED_HOST && bring(block, (unsigned)device, first, &cost) && first == NULL) {
            first = block;
        }
    }
    pthread_mutex_unlock(&managed.mutex);
    return sent + cost.arrived;
}

void managed_use(uint64_t address, uint64_t bytes, unsigned device, struct managed_cost *cost)
{
    if (!is_any() || bytes == 0)
        return;
    pthread_mutex_lock(&managed.mutex);
    const struct block *first = NULL;
    struct block *end, *block = find_blocks(address, bytes, &end);
    for (; block != end; block++)
        use(block, device, &first, cost);
    pthread_mutex_unlock(&managed.mutex);
}

void managed_set_fault(uint64_t nanoseconds)
{
    managed.fault_nanoseconds = nanoseconds;
}

/* Each direction of the link takes its own time; memory that is used from afar comes each time. */
static uint64_t pay(const struct managed_cost *cost, unsigned device, uint64_t clock)
{
    uint64_t to_device = cost->arrived + cost->remote;
    clock += cost->faults * managed.fault_nanoseconds;
    if (cost->left)
        clock = engine_copy(&driver.attachment, device, COPY_TO_HOST, clock, cost->left);
    return to_device ? engine_copy(&driver.attachment, device, COPY_TO_DEVICE, clock, to_device) : clock;
}

uint64_t managed_use_arguments(const void *arguments, uint64_t bytes, unsigned device, uint64_t clock)
{
    struct managed_cost cost = {0};
    struct managed_range found;
    uint64_t word;
    if (!is_any())
        return clock;
    for (uint64_t at = 0; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, (const char *)arguments + at, sizeof word);
        if (managed_find(word, &found) == 0)
            managed_use(word, found.bytes - (word - found.start), device, &cost);
    }
    return pay(&cost, device, clock);
}

int managed_charge(unsigned device, uint64_t bytes)
{
    int failed = slots_charge(&driver.attachment, device, bytes);
    if (failed != ENOMEM || !is_any() || bytes > driver.attachment.machine->memory_bytes)
        return failed;
    pthread_mutex_lock(&managed.mutex);
    while (failed == ENOMEM && managed.resident[device].oldest) {
        move_to_host(managed.resident[device].oldest);
        failed = slots_charge(&driver.attachment, device, bytes);
    }
    pthread_mutex_unlock(&managed.mutex);
    return failed;
}

/* No more than the machine's own memory: a promise of pages that cannot be kept would end the
 * process. */
static int fits_host(uint64_t bytes)
{
    struct sysinfo host;
    return sysinfo(&host) == 0 && bytes <= ((uint64_t)host.totalram + host.totalswap) * host.mem_unit;
}

/* Memory that starts at a block's edge. */
static void *map_blocks(uint64_t bytes)
{
    char *memory = mmap(NULL, bytes + MANAGED_BLOCK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    uint64_t before = -(uint64_t)memory % MANAGED_BLOCK;
    if (before)
        munmap(memory, before);
    if (before < MANAGED_BLOCK)
        munmap(memory + before + bytes, MANAGED_BLOCK - before);
    madvise(memory + before, bytes, MADV_DONTFORK); /* as the driver's own managed memory */
    return memory + before;
}

CUresult managed_allocate(struct context *context, uint64_t bytes, unsigned flags, uint64_t *address)
{
    if (!fits_host(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t count = (bytes + MANAGED_BLOCK - 1) / MANAGED_BLOCK;
    struct managed *own = calloc(1, sizeof *own + count * sizeof *own->blocks);
    void *memory = own ? map_blocks(count * MANAGED_BLOCK) : NULL;
    if (memory == NULL) {
        free(own);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    own->mapped_bytes = count * MANAGED_BLOCK;
    own->block_count = count;
    for (uint64_t i = 0; i < count; i++)
        own->blocks[i] = (struct block){.owner = own, .device = MANAGED_HOST};
    pthread_mutex_lock(&managed.mutex);
    own->range = (struct managed_range){(uint64_t)memory, bytes, ++managed.next_id, context, flags};
    int failed = ranges_insert(&managed.map, own->range.start, own->mapped_bytes, own);
    managed.count += !failed;
    pthread_mutex_unlock(&managed.mutex);
    if (failed) {
        munmap(memory, own->mapped_bytes);
        free(own);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = own->range.start;
    return CUDA_SUCCESS;
}

int managed_free(uint64_t address)
{
    pthread_mutex_lock(&managed.mutex);
    struct managed *own = look_up(address);
    if (own && own->range.start != address)
        own = NULL;
    if (own) {
        ranges_remove(&managed.map, address);
        managed.count--;
        for (uint64_t i = 0; i < own->block_count; i++)
            if (own->blocks[i].device != MANAGED_HOST)
                move_to_host(&own->blocks[i]);
    }
    pthread_mutex_unlock(&managed.mutex);
    if (own)
        munmap((void *)own->range.start, own->mapped_bytes);
    int failed = own == NULL ? -1 : 0;
    free(own);
    return failed;
}

void managed_free_context(struct context *context)
{
    for (uint64_t from = 0;;) {
        pthread_mutex_lock(&managed.mutex);
        struct range *range = ranges_next_owned(&managed.map, from);
        const struct managed *own = range ? range->owner : NULL;
        uint64_t start = range ? range->start : 0;
        int is_own = own && own->range.context == context;
        pthread_mutex_unlock(&managed.mutex);
        if (range == NULL)
            return;
        if (is_own)
            managed_free(start);
        from = start + 1;
    }
}

int managed_find(uint64_t address, struct managed_range *found)
{
    if (!is_any())
        return -1;
    pthread_mutex_lock(&managed.mutex);
    const struct managed *own = look_up(address);
    if (own)
        *found = own->range;
    pthread_mutex_unlock(&managed.mutex);
    return own ? 0 : -1;
}

int managed_holds(uint64_t address, uint64_t bytes)
{
    struct managed_range found;
    return managed_find(address, &found) == 0 && bytes <= found.bytes - (address - found.start);
}

void managed_attach(uint64_t address, unsigned flags)
{
    pthread_mutex_lock(&managed.mutex);
    struct managed *own = look_up(address);
    if (own)
        own->range.attached = flags;
    pthread_mutex_unlock(&managed.mutex);
}

int managed_visit(uint64_t address, uint64_t bytes, void (*visit)(struct managed_advice *, void *), void *argument)
{
    pthread_mutex_lock(&managed.mutex);
    struct managed *own = look_up(address);
    int is_within = own && bytes && bytes <= own->range.bytes - (address - own->range.start);
    if (is_within) {
        struct block *end, *block = blocks_of(own, address, bytes, &end);
        for (; block != end; block++)
            visit(&block->advice, argument);
    }
    pthread_mutex_unlock(&managed.mutex);
    return is_within ? 0 : -1;
}
