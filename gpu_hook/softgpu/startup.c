/* Joins the parts of the driver at cuInit: gives lower parts the functions of higher ones. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture/capture.h"
#include "contexts/context_lives.h"
#include "device/log.h"
#include "device/machine.h"
#include "device/slots.h"
#include "device/visible.h"
#include "driver/checkpoint.h"
#include "driver/driver.h"
#include "driver/enter.h"
#include "driver/resources.h"
#include "driver/strict.h"
#include "implemented.h"
#include "managed/managed.h"
#include "memory/physical.h"
#include "memory/shares.h"
#include "memory/window_state.h"
#include "pools/pools.h"
#include "queue/streams.h"

static struct {
    pthread_mutex_t mutex; /* guards the first cuInit */
    int is_ready;          /* in this process or, after a fork, in its parent */
    int watches_forks;
} start = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static CUresult translate(enum machine_failure failure)
{
    switch (failure) {
    case MACHINE_OK:
        return CUDA_SUCCESS;
    case MACHINE_NO_SPACE:
        return CUDA_ERROR_OPERATING_SYSTEM;
    case MACHINE_OTHER_VERSION:
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case MACHINE_NO_ACCESS:
        return CUDA_ERROR_OPERATING_SYSTEM;
    case MACHINE_BAD_SETTINGS:
    case MACHINE_NO_SLOT:
    case MACHINE_STUCK:
        break;
    }
    return CUDA_ERROR_SYSTEM_NOT_READY;
}

/* An OFD lock belongs to the open file, which a forked child shares, by descriptor and by
 * mapping (see attach): kept there, it would keep a killed parent's memory charged until the
 * child ended. */
static void detach_in_child(void)
{
    close(driver.attachment.descriptor);
    driver.attachment.descriptor = -1;
    physical_forget();
    shares_forget();
    pools_forget();
    window_unlock(); /* taken before the fork, so that all of this is whole */
    enter_forked();
}

static CUresult attach(void)
{
    struct settings settings;
    char problem[256];
    if (settings_read(&settings, problem, sizeof problem) != 0) {
        log_failure("%s", problem);
        return translate(MACHINE_BAD_SETTINGS);
    }
    enum machine_failure failure = machine_open(&driver.attachment, &settings);
    if (failure != MACHINE_OK)
        return translate(failure);
    madvise(driver.attachment.machine, sizeof *driver.attachment.machine, MADV_DONTFORK);
    if (slots_join(&driver.attachment) != 0) {
        machine_close(&driver.attachment);
        return translate(MACHINE_NO_SLOT);
    }
    if (window_open() != 0) {
        machine_close(&driver.attachment);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    checkpoint_attend();
    captures_answer_with(&capture_answers);
    streams_on_wait(pools_synchronised);
    physical_on_full_device(pools_make_room);
    window_on_release(shares_release);
    pools_set_chunk(settings.pool_chunk_bytes);
    contexts_set_footprint(settings.context_bytes);
    resources_set_bytes(settings.resource_bytes);
    streams_set_queue(settings.queue_items);
    managed_set_fault(settings.fault_nanoseconds);
    driver.stale = settings.stale;
    if (settings.is_strict)
        strict_begin();
    return CUDA_SUCCESS;
}

CUresult impl_cuInit(unsigned int Flags)
{
    enter_read_environment();
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&enter_watch) & WATCH_FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&start.mutex);
    CUresult result = CUDA_SUCCESS;
    if (!start.is_ready) {
        result = attach();
        if (result == CUDA_SUCCESS) {
            driver.device_count =
                visible_parse(driver.attachment.machine, getenv("CUDA_VISIBLE_DEVICES"), driver.physical);
            if (!start.watches_forks)
                pthread_atfork(window_lock, window_unlock, detach_in_child);
            start.watches_forks = start.is_ready = 1;
            if (driver.device_count)
                enter_initialised();
            log_line("event=init devices=%d slot=%d", driver.device_count, driver.attachment.slot);
        }
    }
    if (result == CUDA_SUCCESS && driver.device_count == 0)
        result = CUDA_ERROR_NO_DEVICE;
    pthread_mutex_unlock(&start.mutex);
    return result;
}
