/* One descriptor for all managed memory of the process, and one thread that answers its faults. */
#include "managed/host_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device/log.h"

#define PAGE 4096ull

static struct {
    pthread_once_t once;
    int descriptor; /* -1: faults are not told here; written once, before the thread starts */
    host_fault_answer answer; /* written at cuInit alone */
} faults = {.once = PTHREAD_ONCE_INIT, .descriptor = -1};

void host_faults_answer_with(host_fault_answer answer)
{
    faults.answer = answer;
}

void host_faults_arm(uint64_t start, uint64_t bytes)
{
    madvise((void *)start, bytes, MADV_DONTNEED); /* NOLINT(performance-no-int-to-ptr) */
}

#ifdef UFFD_FEATURE_MINOR_SHMEM
static void wait_until(uint64_t nanoseconds)
{
    struct timespec moment = {(time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) == EINTR)
        continue;
}

/* A page that another thread mapped meanwhile is passed over, and so is one that has no bytes. */
static void map_pages(uint64_t start, uint64_t bytes)
{
    for (uint64_t end = start + bytes; start < end;) {
        struct uffdio_continue pages = {.range = {start, end - start}, .mode = UFFDIO_CONTINUE_MODE_DONTWAKE};
        if (ioctl(faults.descriptor, UFFDIO_CONTINUE, &pages) == 0)
            break;
        if (pages.mapped <= 0 && errno != EEXIST && errno != EFAULT)
            break;
        start += pages.mapped > 0 ? (uint64_t)pages.mapped : PAGE;
    }
}

static void *serve(void *nothing)
{
    struct uffd_msg message;
    for (;;) {
        ssize_t got = read(faults.descriptor, &message, sizeof message);
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return nothing;
        if (got != sizeof message || message.event != UFFD_EVENT_PAGEFAULT)
            continue;
        struct host_fault fault;
        uint64_t address = message.arg.pagefault.address & ~(PAGE - 1);
        faults.answer(address, (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0, &fault);
        wait_until(fault.until);
        map_pages(fault.start, fault.bytes);
        struct uffdio_range woken = {fault.start, fault.bytes};
        ioctl(faults.descriptor, UFFDIO_WAKE, &woken);
    }
}

static int start_thread(void)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed)
        pthread_detach(thread);
    return failed;
}

static void open_faults(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MINOR_SHMEM};
    int descriptor = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (descriptor >= 0 && ioctl(descriptor, UFFDIO_API, &api) == 0) {
        faults.descriptor = descriptor;
        if (start_thread() == 0)
            return;
    }
    faults.descriptor = -1;
    if (descriptor >= 0)
        close(descriptor);
    log_line("event=host_faults_untold errno=%d", errno);
}

void host_faults_watch(void *start, uint64_t bytes)
{
    pthread_once(&faults.once, open_faults);
    struct uffdio_register range = {.range = {(uint64_t)start, bytes}, .mode = UFFDIO_REGISTER_MODE_MINOR};
    if (faults.descriptor >= 0)
        ioctl(faults.descriptor, UFFDIO_REGISTER, &range);
}
#else  /* headers of an earlier kernel */
void host_faults_watch(void *start, uint64_t bytes)
{
}
#endif
