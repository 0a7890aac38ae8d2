#include "accounting/quota.h"

#include "accounting/devices.h"
#include "agent_link/interrupts.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "accounting/pin_reasons.h"
#include "accounting/shortfall.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define SMALL_GRAIN 512u
#define LARGE_GRAIN (2 * MIB)
#define CHUNK (64 * MIB)          /* requested at once, so that most allocations need no request */
#define SPARE_BOUND (2 * CHUNK)   /* spare credit above this goes back, down to one chunk */

struct account { /* guarded by its mutex */
    pthread_mutex_t mutex;
    uint64_t lent;
    uint64_t spare; /* lent and not charged */
    uint64_t owed;  /* given up since the last HELLO, and not yet reported to the agent */
    uint64_t unlent; /* of host memory: counted as lent, and not known to the agent */
    uint64_t peak;
    uint64_t allocations;
    uint64_t refusals;
    struct shortfall shortfall;
};

static struct {
    pthread_once_t once;
    struct account accounts[DEVICES_MAX + 1]; /* the last one: QUOTA_HOST */
} state = {.once = PTHREAD_ONCE_INIT};

static void prepare(void)
{
    for (int i = 0; i <= QUOTA_HOST; i++)
        pthread_mutex_init(&state.accounts[i].mutex, NULL);
}

static struct account *lock_device(int device)
{
    pthread_once(&state.once, prepare);
    struct account *locked = &state.accounts[device];
    pthread_mutex_lock(&locked->mutex);
    return locked;
}

/* A driver cuts small allocations out of blocks in steps of 512 B, and maps large ones in pages
 * of 2 MiB: the quota counts the bytes that are gone from the device, not the requested ones. */
uint64_t quota_rounded(uint64_t bytes)
{
    uint64_t grain = bytes < MIB ? SMALL_GRAIN : LARGE_GRAIN;
    return bytes > UINT64_MAX - grain ? UINT64_MAX : (bytes + grain - 1) / grain * grain;
}

/* Return the index by which messages and pages name the device; -1: not granted, or no agent
 * yet. */
static int page_index(int device)
{
    return device == QUOTA_HOST ? (int)ALIQUOT_HOST_MEMORY : devices_page_index(device);
}

/* The limit in force, and the part of it that the kernel's other processes hold. */
static void read_limit(int index, uint64_t *quota, uint64_t *elsewhere)
{
    const struct aliquot_agent_page *page = page_agent();
    bool is_host = index == (int)ALIQUOT_HOST_MEMORY;
    *quota = page_read(is_host ? &page->host_quota_bytes : &page->devices[index].quota_bytes);
    *elsewhere = page_read(is_host ? &page->host_charged_elsewhere_bytes
                                   : &page->devices[index].charged_elsewhere_bytes);
}

/* While no agent has written the quota of host memory, this process lends itself that memory. */
static bool is_lent_by_agent(int device)
{
    return device != QUOTA_HOST || page_read(&page_agent()->host_quota_bytes) != 0;
}

static void publish_host(struct aliquot_hook_page *page, const struct account *locked)
{
    page_write(&page->host_charged_bytes, locked->lent - locked->spare);
    page_write(&page->host_peak_bytes, locked->peak);
    page_write(&page->host_refusals, locked->refusals);
}

static void publish_device(int device, struct aliquot_hook_device *words,
                           const struct account *locked)
{
    page_write(&words->charged_bytes, locked->lent - locked->spare);
    page_write(&words->peak_bytes, locked->peak);
    page_write(&words->credit_bytes, locked->spare);
    page_write(&words->allocations, locked->allocations);
    page_write(&words->refusals, locked->refusals);
    page_write(&words->swappable_bytes, pin_reasons_bytes(device, PIN_NONE));
    page_write(&words->swapped_bytes, pin_reasons_out(device));
}

/* Called with the device locked. */
static void publish(int device, const struct account *locked)
{
    int index = page_index(device);
    struct aliquot_hook_page *page = page_hook();
    if (index < 0 || !page)
        return;
    if (device == QUOTA_HOST)
        publish_host(page, locked);
    else
        publish_device(device, &page->devices[index], locked);
}

/* The same for a change by a call of the process. The agent's loans and recalls are no sign of
 * life. */
static void publish_call(int device, const struct account *locked)
{
    struct aliquot_hook_page *page = page_hook();
    publish(device, locked);
    if (!page || page_index(device) < 0)
        return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    page_write(&page->last_call_nanoseconds,
               (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
}

/* Called with the device locked, so that a HELLO never counts bytes on their way back. */
static void give_up_spare(int device, struct account *locked, uint64_t bytes, uint32_t sequence,
                          bool is_answer)
{
    locked->spare -= bytes;
    locked->lent -= bytes;
    uint64_t unlent = is_lent_by_agent(device) && locked->unlent < bytes ? locked->unlent : bytes;
    if (device != QUOTA_HOST)
        unlent = 0;
    locked->unlent -= unlent < locked->unlent ? unlent : locked->unlent;
    int index = page_index(device);
    uint64_t returned = bytes - unlent + locked->owed;
    if (index >= 0 && (returned || is_answer) &&
        session_send_credit((uint32_t)index, returned, sequence))
        locked->owed = 0;
    else
        locked->owed = returned;
}

/* Return how much to request: a whole chunk, unless the quota seems too short for it. */
static uint64_t asked_bytes(int index, const struct account *locked, uint64_t missing)
{
    uint64_t quota, elsewhere;
    read_limit(index, &quota, &elsewhere);
    uint64_t taken = elsewhere + locked->lent;
    uint64_t room = quota > taken ? quota - taken : 0;
    uint64_t wanted = room < CHUNK ? room : CHUNK;
    return wanted > missing ? wanted : missing;
}

/* Return whether the request exceeds the quota by the memory of this process alone. Then
 * recalling other processes' credit would be in vain. The device is locked. */
static bool exceeds_quota(int index, const struct account *locked, uint64_t bytes)
{
    uint64_t quota, elsewhere, charged = locked->lent - locked->spare;
    read_limit(index, &quota, &elsewhere);
    return bytes > quota || charged > quota - bytes;
}

/* Called with the device locked. */
static void take_spare(int device, struct account *locked, uint64_t bytes)
{
    locked->spare -= bytes;
    uint64_t charged = locked->lent - locked->spare;
    if (charged > locked->peak)
        locked->peak = charged;
    if (locked->shortfall.asked)
        shortfall_decide(&locked->shortfall, page_index(device), bytes);
    publish_call(device, locked);
}

/* Request once from the agent. True: request or look again. */
static bool borrow(int device, uint64_t missing, uint64_t asked)
{
    uint8_t uuid[16];
    uint64_t granted = 0;
    if (device != QUOTA_HOST && !devices_uuid(device, uuid))
        return false;
    /* spare credit is no reason to swap a kernel out */
    enum aliquot_request purpose =
        asked > missing ? ALIQUOT_REQUEST_SPARE : ALIQUOT_REQUEST_NEEDED;
    int failure = session_request(device == QUOTA_HOST ? SESSION_HOST_MEMORY : uuid, asked, purpose,
                                  &granted);
    if (failure) {
        LOG("event=no_credit device=%d asked=%llu reason=\"%s\"", device, (unsigned long long)asked,
            strerror(failure));
        return false;
    }
    return granted > 0 || asked > missing;
}

/* Called with the device locked. Takes the bytes that this process lends itself. */
static bool take_if_lent(int device, struct account *locked, uint64_t bytes)
{
    if (locked->spare < bytes && !is_lent_by_agent(device)) {
        uint64_t missing = bytes - locked->spare;
        locked->lent += missing;
        locked->spare += missing;
        locked->unlent += missing;
    }
    if (locked->spare < bytes)
        return false;
    take_spare(device, locked, bytes);
    return true;
}

bool quota_charge(int device, uint64_t bytes)
{
    if (device < 0 || device > QUOTA_HOST)
        return false;
    interrupts_forget();
    /* Before a request that can never fit, too: its refusal is counted in a page that is there
     * by then. */
    session_await();
    if (bytes > INT64_MAX)
        return false;
    bool is_first = true;
    for (;;) {
        struct account *locked = lock_device(device);
        int index = page_index(device);
        /* Also with credit in hand: the quota may have shrunk since the agent lent it. */
        bool never_fits =
            index >= 0 && is_lent_by_agent(device) && exceeds_quota(index, locked, bytes);
        if (!never_fits && take_if_lent(device, locked, bytes)) {
            pthread_mutex_unlock(&locked->mutex);
            return true;
        }
        uint64_t missing = bytes > locked->spare ? bytes - locked->spare : 0;
        uint64_t asked = is_first && index >= 0 ? asked_bytes(index, locked, missing) : missing;
        pthread_mutex_unlock(&locked->mutex);
        if (never_fits || (index < 0 && session_is_registered()) || !borrow(device, missing, asked))
            return false;
        is_first = false;
    }
}

void quota_refuse(int device, uint64_t bytes)
{
    if (device < 0 || device > QUOTA_HOST || interrupts_have_ended()) /* then no quota refused it */
        return;
    struct account *locked = lock_device(device);
    locked->refusals++;
    uint64_t charged = locked->lent - locked->spare;
    if (device != QUOTA_HOST)
        shortfall_refused(&locked->shortfall, page_index(device), charged, bytes);
    publish_call(device, locked);
    pthread_mutex_unlock(&locked->mutex);
    const char *reason = !session_is_registered()  ? "no agent"
                         : page_index(device) < 0 ? "the device is not granted to this kernel"
                                                  : "over quota";
    LOG("event=out_of_memory device=%d asked=%llu charged=%llu reason=\"%s\"", device,
        (unsigned long long)bytes, (unsigned long long)charged, reason);
}

void quota_refund(int device, uint64_t bytes)
{
    struct account *locked = lock_device(device);
    locked->spare += bytes;
    if (locked->spare > SPARE_BOUND)
        give_up_spare(device, locked, locked->spare - CHUNK, 0, false);
    publish_call(device, locked);
    pthread_mutex_unlock(&locked->mutex);
}

void quota_count(int device, int change)
{
    struct account *locked = lock_device(device);
    locked->allocations += (uint64_t)(int64_t)change;
    publish_call(device, locked);
    pthread_mutex_unlock(&locked->mutex);
}

bool quota_view(int device, struct quota_view *view)
{
    if (device < 0 || device >= DEVICES_MAX)
        return false;
    session_await();
    if (!session_is_registered())
        return false;
    int index = devices_page_index(device);
    if (index < 0) {
        *view = (struct quota_view){0, 0};
        return true;
    }
    const struct aliquot_agent_device *words = &page_agent()->devices[index];
    if (__atomic_load_n(&words->enforcer, __ATOMIC_RELAXED) == ALIQUOT_ENFORCER_DRIVER) {
        *view = (struct quota_view){UINT64_MAX, UINT64_MAX};
        return true;
    }
    uint64_t own = page_read(&page_hook()->devices[index].charged_bytes);
    uint64_t taken = page_read(&words->charged_elsewhere_bytes) + own;
    view->total_bytes = page_read(&words->quota_bytes);
    view->free_bytes = view->total_bytes > taken ? view->total_bytes - taken : 0;
    return true;
}

/* Called with the device locked. True when the entry has anything to report. */
static bool describe(struct account *locked, struct aliquot_hello_device *entry)
{
    locked->owed = 0;
    locked->unlent = 0;
    entry->charged_bytes = locked->lent - locked->spare;
    entry->credit_bytes = locked->spare;
    return locked->lent > 0;
}

uint32_t quota_describe(struct aliquot_hello_device devices[ALIQUOT_HELLO_ENTRIES])
{
    uint32_t count = 0;
    for (int i = 0; i < devices_count() && count < ALIQUOT_MAX_DEVICES; i++) {
        struct account *locked = lock_device(i);
        if (describe(locked, &devices[count]) && devices_uuid(i, devices[count].uuid))
            count++;
        pthread_mutex_unlock(&locked->mutex);
    }
    struct account *host = lock_device(QUOTA_HOST);
    memset(devices[count].uuid, 0, sizeof devices[count].uuid);
    if (describe(host, &devices[count]))
        count++;
    pthread_mutex_unlock(&host->mutex);
    return count;
}

static void tell(int device)
{
    struct account *locked = lock_device(device);
    if (locked->owed)
        give_up_spare(device, locked, 0, 0, false);
    if (locked->lent || locked->peak)
        publish(device, locked);
    if (device != QUOTA_HOST)
        shortfall_publish(&locked->shortfall, page_index(device));
    pthread_mutex_unlock(&locked->mutex);
}

void quota_registered(void)
{
    for (int i = 0; i < devices_count(); i++)
        tell(i);
    tell(QUOTA_HOST);
}

static int device_of_page_index(uint32_t page_index)
{
    if (page_index == ALIQUOT_HOST_MEMORY)
        return QUOTA_HOST;
    for (int i = 0; i < devices_count(); i++)
        if (devices_page_index(i) == (int)page_index)
            return i;
    return -1;
}

void quota_granted(uint32_t page_index, uint64_t bytes)
{
    int device = device_of_page_index(page_index);
    if (device < 0)
        return;
    struct account *locked = lock_device(device);
    locked->lent += bytes;
    locked->spare += bytes;
    publish(device, locked);
    pthread_mutex_unlock(&locked->mutex);
}

void quota_recalled(const struct aliquot_credit *recall)
{
    int device = device_of_page_index(recall->device);
    if (device < 0) {
        session_send_credit(recall->device, 0, recall->header.sequence);
        return;
    }
    struct account *locked = lock_device(device);
    uint64_t bytes = locked->spare < recall->bytes ? locked->spare : recall->bytes;
    give_up_spare(device, locked, bytes, recall->header.sequence, true);
    publish(device, locked);
    pthread_mutex_unlock(&locked->mutex);
}

void quota_return_spare(void)
{
    for (int device = 0; device < devices_count(); device++) {
        struct account *locked = lock_device(device);
        if (locked->spare) {
            give_up_spare(device, locked, locked->spare, 0, false);
            publish(device, locked);
        }
        pthread_mutex_unlock(&locked->mutex);
    }
}

void quota_reset(void)
{
    memset(state.accounts, 0, sizeof state.accounts);
    prepare();
}
