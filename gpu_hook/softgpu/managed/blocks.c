/* The lists of resident blocks, one for each device. */
#include "managed/blocks.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/slots.h"
#include "driver/driver.h"
#include "managed/host_faults.h"

#define SMALL_CHARGE 65536ull /* the unit of a block at the end of an allocation */
#define MOST_PAGES 512        /* of a block */

/* Guarded by managed.c's mutex. */
static struct resident {
    struct block *oldest, *newest;
} resident[MACHINE_DEVICES];

void block_init(struct block *block, uint64_t start, uint64_t bytes)
{
    uint64_t charge = bytes >= MANAGED_BLOCK ? MANAGED_BLOCK : (bytes + SMALL_CHARGE - 1) & ~(SMALL_CHARGE - 1);
    *block = (struct block){.start = start, .charge = charge, .has_home = 1};
}

int block_is_on(const struct block *block, unsigned device)
{
    return block->devices >> device & 1;
}

static void unlink_block(struct block *block, unsigned device)
{
    struct block_link *link = &block->links[device];
    *(link->earlier ? &link->earlier->links[device].later : &resident[device].oldest) = link->later;
    *(link->later ? &link->later->links[device].earlier : &resident[device].newest) = link->earlier;
}

static void link_newest(struct block *block, unsigned device, uint64_t pass)
{
    struct resident *list = &resident[device];
    block->links[device] = (struct block_link){list->newest, NULL, machine_now(), pass};
    *(list->newest ? &list->newest->links[device].later : &list->oldest) = block;
    list->newest = block;
}

static void tell_oldest(unsigned device)
{
    const struct block *oldest = resident[device].oldest;
    slots_tell_oldest(&driver.attachment, device, oldest ? oldest->links[device].came : UINT64_MAX);
}

static void put_last(struct block *block, unsigned device, uint64_t pass)
{
    unlink_block(block, device);
    link_newest(block, device, pass);
    tell_oldest(device);
}

/* Returns the bytes that have to be copied home. */
static uint64_t leave(struct block *block, unsigned device)
{
    unlink_block(block, device);
    tell_oldest(device);
    slots_refund_managed(&driver.attachment, device, block->charge);
    block->devices &= ~(1u << device);
    block->mapped = 0;
    uint64_t copied = block->devices || block->has_home ? 0 : block->charge;
    block->has_home |= block->devices == 0;
    return copied;
}

uint64_t block_send_home(struct block *block)
{
    uint64_t copied = 0;
    for (unsigned device = 0; block->devices; device++)
        if (block_is_on(block, device))
            copied += leave(block, device);
    return copied;
}

uint64_t block_copy_home(struct block *block)
{
    uint64_t copied = block->has_home ? 0 : block->charge;
    block->has_home = 1;
    return copied;
}

void block_note_write(struct block *block, unsigned device)
{
    if (block->has_home)
        host_faults_arm(block->start, block->charge);
    block->has_home = 0;
    for (unsigned other = 0; block->devices & ~(1u << device) && other < MACHINE_DEVICES; other++)
        if (other != device && block_is_on(block, other))
            leave(block, other);
}

/* The driver fills memory that nothing has used where it is first used, and copies nothing. The
 * host's use shows by its pages. */
static int is_touched(const struct block *block)
{
    unsigned char pages[MOST_PAGES];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), count = (block->charge + page - 1) / page;
    if (block->is_touched || count > MOST_PAGES ||
        mincore((void *)block->start, block->charge, pages) != 0) /* NOLINT(performance-no-int-to-ptr) */
        return 1;
    while (count && !(pages[count - 1] & 1))
        count--;
    return count != 0;
}

static void arrive(struct block *block, unsigned device, uint64_t pass, struct managed_cost *cost)
{
    cost->arrived += is_touched(block) ? block->charge : 0;
    block->is_touched = 1;
    block->pass = pass;
    link_newest(block, device, pass);
    tell_oldest(device);
    block->devices |= 1u << device;
    block->mapped = 0;
    if (!block->advice.is_read_mostly)
        block_note_write(block, device);
}

/* The first that may leave; NULL: this pass uses all. */
static struct block *find_first(unsigned device, uint64_t pass)
{
    struct block *oldest = resident[device].oldest;
    while (oldest && oldest->pass == pass && oldest->links[device].placed != pass) {
        put_last(oldest, device, pass);
        oldest = resident[device].oldest;
    }
    return oldest && oldest->pass != pass ? oldest : NULL;
}

int blocks_make_room(unsigned device, uint64_t bytes, uint64_t pass, struct managed_cost *cost)
{
    struct block *first = find_first(device, pass);
    uint64_t before = first ? first->links[device].came : UINT64_MAX;
    uint64_t taken = slots_take_managed(&driver.attachment, device, bytes, before);
    cost->left += taken;
    if (taken == 0 && first)
        cost->left += leave(first, device);
    return taken || first;
}

int block_bring(struct block *block, unsigned device, uint64_t pass, struct managed_cost *cost)
{
    if (block_is_on(block, device)) {
        block->pass = pass;
        put_last(block, device, pass);
        return 1;
    }
    while (slots_charge_managed(&driver.attachment, device, block->charge) != 0)
        if (!blocks_make_room(device, block->charge, pass, cost))
            return 0;
    arrive(block, device, pass, cost);
    return 1;
}

int block_bring_into_room(struct block *block, unsigned device, uint64_t pass, struct managed_cost *cost)
{
    if (slots_charge_managed(&driver.attachment, device, block->charge) != 0)
        return 0;
    arrive(block, device, pass, cost);
    return 1;
}

void blocks_settle(unsigned device)
{
    while (slots_owed(&driver.attachment, device) && resident[device].oldest)
        leave(resident[device].oldest, device);
}
