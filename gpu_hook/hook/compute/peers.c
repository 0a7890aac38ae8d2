#include "compute/peers.h"

#include "agent_link/page.h"

#include <errno.h>
#include <sys/mman.h>

_Static_assert(ALIQUOT_MAX_PEERS <= 32, "the peers on a device are the bits of one word");

/* Written on the session's thread alone. */
static struct {
    char *activity_pages;  /* of all numbers; set once, with the first peer */
    size_t stride; /* from one to the next */
    uint32_t known[ALIQUOT_MAX_DEVICES]; /* bits: the numbers on that device */
    uint32_t page_devices[ALIQUOT_MAX_PEERS]; /* which of the activity page's devices it is */
} state;

static void *map_nothing(void *at, size_t bytes)
{
    return mmap(at, bytes, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
}

static struct aliquot_activity_page *page_of(uint32_t number)
{
    return (void *)(state.activity_pages + number * state.stride);
}

/* An activity page is empty until its owner has received it. */
static int check_page(int descriptor)
{
    int failure = page_check_descriptor(descriptor, ALIQUOT_ACTIVITY_PAGE_BYTES);
    if (failure)
        return failure;
    const struct aliquot_activity_page *activity =
        mmap(NULL, state.stride, PROT_READ, MAP_SHARED, descriptor, 0);
    if (activity == MAP_FAILED)
        return errno;
    uint32_t magic = __atomic_load_n(&activity->magic, __ATOMIC_ACQUIRE);
    bool is_one = magic == 0 ||
                  (magic == ALIQUOT_ACTIVITY_PAGE_MAGIC &&
                   activity->version == ALIQUOT_PROTOCOL_VERSION);
    munmap((void *)activity, state.stride);
    return is_one ? 0 : EPROTO;
}

static void hide(uint32_t number)
{
    for (int device = 0; device < (int)ALIQUOT_MAX_DEVICES; device++)
        __atomic_fetch_and(&state.known[device], ~(1u << number), __ATOMIC_ACQ_REL);
}

int peers_add(const struct aliquot_activity_page_notice *notice, int descriptor)
{
    if (notice->number >= ALIQUOT_MAX_PEERS || notice->device >= ALIQUOT_MAX_DEVICES ||
        notice->page_device >= ALIQUOT_MAX_DEVICES)
        return EINVAL;
    if (!state.activity_pages) {
        state.stride = page_mapped_bytes(ALIQUOT_ACTIVITY_PAGE_BYTES);
        char *activity_pages = map_nothing(NULL, ALIQUOT_MAX_PEERS * state.stride);
        if (activity_pages == MAP_FAILED)
            return errno;
        state.activity_pages = activity_pages;
    }
    peers_remove(notice->number);
    int failure = check_page(descriptor);
    if (failure)
        return failure;
    if (mmap(page_of(notice->number), state.stride, PROT_READ, MAP_SHARED | MAP_FIXED, descriptor,
             0) == MAP_FAILED)
        return errno;
    __atomic_store_n(&state.page_devices[notice->number], notice->page_device, __ATOMIC_RELAXED);
    __atomic_fetch_or(&state.known[notice->device], 1u << notice->number, __ATOMIC_RELEASE);
    return 0;
}

/* A reader sees the last values of the old activity page, or an idle one, once. */
void peers_remove(uint32_t number)
{
    if (!state.activity_pages || number >= ALIQUOT_MAX_PEERS)
        return;
    hide(number);
    map_nothing(page_of(number), state.stride);
}

void peers_forget(void)
{
    if (!state.activity_pages)
        return;
    for (int device = 0; device < (int)ALIQUOT_MAX_DEVICES; device++)
        __atomic_store_n(&state.known[device], 0, __ATOMIC_RELEASE);
    map_nothing(state.activity_pages, ALIQUOT_MAX_PEERS * state.stride);
}

/* An activity page with garbage: any is_active but 0 counts as work, and the rule bounds a
 * `since` in the future. */
void peers_read(int page_device, struct pace_state *found)
{
    uint32_t known = page_device < 0 || page_device >= (int)ALIQUOT_MAX_DEVICES
                         ? 0
                         : __atomic_load_n(&state.known[page_device], __ATOMIC_ACQUIRE);
    found->has_peers = known != 0;
    found->are_active = 0;
    found->idle_since = 0;
    for (; known; known &= known - 1) {
        uint32_t number = (uint32_t)__builtin_ctz(known);
        uint32_t page_device = __atomic_load_n(&state.page_devices[number], __ATOMIC_RELAXED);
        const struct aliquot_activity_device *device = &page_of(number)->devices[page_device];
        uint64_t since = 0;
        if (__atomic_load_n(&device->is_active, __ATOMIC_ACQUIRE))
            found->are_active = 1;
        else
            since = page_read(&device->since_nanoseconds);
        if (since > found->idle_since)
            found->idle_since = since;
    }
}
