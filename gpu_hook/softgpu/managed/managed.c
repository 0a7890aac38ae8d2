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

struct managed {
    struct managed_range range;
    uint64_t mapped_bytes;
    uint64_t block_count;
    struct block blocks[];
};

static struct {
    pthread_mutex_t mutex; /* guards all below */
    struct ranges map;     /* owners are struct managed */
    uint64_t next_id, passes;
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

/* Under the mutex: the visible number's bit of a device of the machine. */
static uint32_t access_bit(unsigned device)
{
    for (int i = 0; i < driver.device_count; i++)
        if (driver.physical[i] == device)
            return 1u << i;
    return 0;
}

/* Under the mutex: 1 when a device uses the block where it prefers to be, which is elsewhere. */
static int use_from_afar(struct block *block, unsigned device, uint64_t pass, struct managed_cost *cost)
{
    int type = (int)block->advice.preferred.type;
    if (type == 0)
        return block->mapped >> device & 1;
    if (type >= CU_MEM_LOCATION_TYPE_HOST)
        return 1;
    unsigned preferred = driver.physical[block->advice.preferred.id];
    return preferred != device && block_bring(block, preferred, pass, cost);
}

/* Under the mutex: a device uses the block. Advice maps it beforehand, so that no fault is taken;
 * then it comes only where there is room. */
static void use(struct block *block, unsigned device, int is_write, uint64_t pass, struct managed_cost *cost)
{
    int is_here = block_is_on(block, device);
    int is_mapped = (block->advice.accessed_by & access_bit(device)) != 0 || (block->mapped >> device & 1);
    int is_copied = block->advice.is_read_mostly && !is_write;
    cost->faults += !is_here && !is_mapped;
    int has_come = is_here;
    if (is_here)
        block->pass = pass;
    else if (!is_copied && use_from_afar(block, device, pass, cost))
        block->mapped |= 1u << device;
    else if (!is_copied && is_mapped)
        has_come = block_bring_into_room(block, device, pass, cost);
    else
        has_come = block_bring(block, device, pass, cost);
    if (has_come && !is_copied)
        block_note_write(block, device);
    block->is_touched = 1;
    if (!has_come)
        cost->remote += block->charge;
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

/* Under the mutex. */
static void settle(void)
{
    for (unsigned device = 0; device < driver.attachment.machine->device_count; device++)
        blocks_settle(device);
}

uint64_t managed_move(uint64_t address, uint64_t bytes, int device)
{
    struct managed_cost cost = {0};
    uint64_t sent = 0;
    if (!is_any() || bytes == 0)
        return 0;
    pthread_mutex_lock(&managed.mutex);
    settle();
    struct block *end, *block = find_blocks(address, bytes, &end);
    uint64_t pass = ++managed.passes;
    for (; block != end; block++) {
        if (device == MANAGED_HOST)
            sent += block_send_home(block);
        else
            block_bring(block, (unsigned)device, pass, &cost);
    }
    pthread_mutex_unlock(&managed.mutex);
    return sent + cost.arrived;
}

void managed_use(uint64_t address, uint64_t bytes, unsigned device, int is_write, struct managed_cost *cost)
{
    if (!is_any() || bytes == 0)
        return;
    pthread_mutex_lock(&managed.mutex);
    settle();
    struct block *end, *block = find_blocks(address, bytes, &end);
    uint64_t pass = ++managed.passes;
    for (; block != end; block++)
        use(block, device, is_write, pass, cost);
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

uint64_t managed_use_arguments(const void *arguments, uint64_t bytes, unsigned device, uint32_t written, uint64_t clock)
{
    struct managed_cost cost = {0};
    struct managed_range found;
    uint64_t word;
    if (!is_any())
        return clock;
    for (uint64_t at = 0; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, (const char *)arguments + at, sizeof word);
        if (managed_find(word, &found) == 0)
            managed_use(word, found.bytes - (word - found.start), device, at == written, &cost);
    }
    return pay(&cost, device, clock);
}

int managed_charge(unsigned device, uint64_t bytes)
{
    struct managed_cost cost = {0};
    int failed = slots_charge(&driver.attachment, device, bytes);
    if (failed != ENOMEM || bytes > driver.attachment.machine->memory_bytes)
        return failed;
    pthread_mutex_lock(&managed.mutex);
    settle();
    uint64_t pass = ++managed.passes;
    do
        failed = slots_charge(&driver.attachment, device, bytes);
    while (failed == ENOMEM && blocks_make_room(device, bytes, pass, &cost));
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
        block_init(&own->blocks[i], (uint64_t)memory + i * MANAGED_BLOCK, bytes - i * MANAGED_BLOCK);
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
            block_send_home(&own->blocks[i]);
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
