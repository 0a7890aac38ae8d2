/* Managed allocations, block by block. The bytes lie in pages of a file, which the program and the
 * devices map apart; only their residency is counted on devices. */
#include "managed/managed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "driver/driver.h"
#include "device/backing.h"
#include "device/engine.h"
#include "device/ranges.h"
#include "device/slots.h"
#include "managed/host_faults.h"

struct managed {
    struct managed_range range;
    struct backing backing;
    char *view; /* the devices' */
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

/* The host uses a page that is not mapped for it. A device's block goes home; one that is mostly
 * read stays, too, until it is written. */
static void answer_host(uint64_t address, int is_write, struct host_fault *fault)
{
    *fault = (struct host_fault){address, 1ull << 12, machine_now()};
    pthread_mutex_lock(&managed.mutex);
    settle();
    struct block *end, *block = find_blocks(address, 1, &end);
    if (block) {
        fault->start = block->start;
        fault->bytes = block->charge;
        block->is_touched = 1;
    }
    if (block && block->devices) {
        unsigned device = (unsigned)__builtin_ctz(block->devices);
        int is_kept = block->advice.is_read_mostly && !is_write;
        uint64_t copied = is_kept ? block_copy_home(block) : block_send_home(block);
        fault->until += managed.fault_nanoseconds;
        if (copied)
            fault->until = engine_copy(&driver.attachment, device, COPY_TO_HOST, fault->until, copied);
    }
    pthread_mutex_unlock(&managed.mutex);
}

void managed_set_fault(uint64_t nanoseconds)
{
    managed.fault_nanoseconds = nanoseconds;
    host_faults_answer_with(answer_host);
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

/* Addresses for an allocation that start at a block's edge. */
static char *reserve(uint64_t bytes)
{
    char *memory = mmap(NULL, bytes + MANAGED_BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    uint64_t before = -(uint64_t)memory % MANAGED_BLOCK;
    if (before)
        munmap(memory, before);
    if (before < MANAGED_BLOCK)
        munmap(memory + before + bytes, MANAGED_BLOCK - before);
    return memory + before;
}

static void unmap(struct managed *own)
{
    if (own->range.start)
        munmap((void *)own->range.start, own->backing.bytes);
    if (own->view)
        munmap(own->view, own->backing.bytes);
    if (own->backing.offset)
        backing_close(&own->backing);
    free(own);
}

/* Maps the program's view and the devices'; -1 without memory or addresses. */
static int map_blocks(struct managed *own, uint64_t bytes)
{
    if (backing_open(bytes, &own->backing) != 0)
        return -1;
    char *memory = reserve(bytes);
    own->range.start = (uint64_t)memory;
    own->view = memory ? reserve(bytes) : NULL;
    if (own->view == NULL || backing_map(&own->backing, memory, bytes, PROT_READ | PROT_WRITE) != 0 ||
        backing_map(&own->backing, own->view, bytes, PROT_READ | PROT_WRITE) != 0)
        return -1;
    host_faults_watch(memory, bytes);
    return 0;
}

/* Lists the allocation with its blocks; -1 without memory. */
static int enter(struct managed *own)
{
    for (uint64_t i = 0; i < own->block_count; i++)
        block_init(&own->blocks[i], own->range.start + i * MANAGED_BLOCK, own->range.bytes - i * MANAGED_BLOCK);
    pthread_mutex_lock(&managed.mutex);
    own->range.id = ++managed.next_id;
    int failed = ranges_insert(&managed.map, own->range.start, own->backing.bytes, own);
    managed.count += !failed;
    pthread_mutex_unlock(&managed.mutex);
    return failed ? -1 : 0;
}

CUresult managed_allocate(struct context *context, uint64_t bytes, unsigned flags, uint64_t *address)
{
    if (!fits_host(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t count = (bytes + MANAGED_BLOCK - 1) / MANAGED_BLOCK;
    struct managed *own = calloc(1, sizeof *own + count * sizeof *own->blocks);
    if (own == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    own->range = (struct managed_range){.bytes = bytes, .context = context, .attached = flags};
    own->block_count = count;
    if (map_blocks(own, count * MANAGED_BLOCK) != 0 || enter(own) != 0) {
        unmap(own);
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
        unmap(own);
    return own ? 0 : -1;
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

void *managed_view(uint64_t address)
{
    void *view = (void *)address;
    if (!is_any())
        return view;
    pthread_mutex_lock(&managed.mutex);
    const struct managed *own = look_up(address);
    if (own)
        view = own->view + (address - own->range.start);
    pthread_mutex_unlock(&managed.mutex);
    return view;
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
