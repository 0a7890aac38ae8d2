/* The slow half of enter(): initialisation, call log, fault injection. */
#include "driver/enter.h"

#include <cuda.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device/log.h"
#include "device/settings.h"

#define FAULTS_MAX 64
#define THREAD_NAME 16 /* of the kernel's */
#define HOLD INT_MIN   /* in place of a code: the call waits */

struct fault {
    int point;
    unsigned long nth; /* 0: every call */
    int code;
    char thread[THREAD_NAME]; /* "": any; else only calls by threads whose name begins so count */
    _Atomic unsigned long calls; /* by such threads */
};

static struct {
    pthread_once_t once;
    struct fault faults[FAULTS_MAX]; /* written before WATCH_FAULTS is set */
    int fault_count;
    const char *hold; /* a file: calls with the fault HOLD wait while it exists */
    CUresult (*after_teardown)(const char *function); /* written before WATCH_TORN_DOWN is set */
} entry = {.once = PTHREAD_ONCE_INIT};

static _Atomic uint32_t runs; /* stays 0: no other process can pause this one */

atomic_int enter_watch = WATCH_BEFORE_INIT;
_Atomic uint32_t *_Atomic enter_pause = &runs;
__thread int enter_per_thread __attribute__((tls_model("initial-exec")));

static int find_point(const char *name, size_t length)
{
    for (int i = 0; i < enter_point_count; i++)
        if (strncmp(enter_points[i].name, name, length) == 0 && enter_points[i].name[length] == '\0')
            return i;
    return -1;
}

/* function:nth=code, or function=code for every call; `hold` for a code: the call waits; function@thread for calls by threads of
 * that name only. */
static int parse_fault(const char *text, const char **end, struct fault *fault)
{
    size_t name = strcspn(text, "@:=,");
    char *rest = (char *)text + name;
    fault->point = find_point(text, name);
    fault->thread[0] = '\0';
    atomic_store(&fault->calls, 0);
    if (*rest == '@') {
        size_t length = strcspn(++rest, ":=,");
        if (length == 0 || length >= sizeof fault->thread)
            return -1;
        memcpy(fault->thread, rest, length);
        fault->thread[length] = '\0';
        rest += length;
    }
    fault->nth = *rest == ':' ? strtoul(rest + 1, &rest, 10) : 0;
    if (fault->point < 0 || *rest != '=')
        return -1;
    char *code = rest + 1;
    int is_hold = strncmp(code, "hold", 4) == 0;
    fault->code = is_hold ? HOLD : (int)strtol(code, &rest, 10);
    rest = is_hold ? code + 4 : rest;
    *end = rest;
    return rest == code || (*rest && *rest != ',') ? -1 : 0;
}

int enter_set_faults(const char *list)
{
    int count = 0;
    while (list && *list) {
        if (count == FAULTS_MAX || parse_fault(list, &list, &entry.faults[count]) != 0)
            return -1;
        count++;
        list += *list == ',';
    }
    for (int i = 0; i < enter_point_count; i++)
        atomic_store(&enter_points[i].calls, 0);
    entry.fault_count = count;
    if (count)
        atomic_fetch_or(&enter_watch, WATCH_FAULTS);
    else
        atomic_fetch_and(&enter_watch, ~WATCH_FAULTS);
    return 0;
}

static void read_environment(void)
{
    struct settings settings;
    char problem[256];
    memset(&settings, 0, sizeof settings);
    if (settings_read(&settings, problem, sizeof problem))
        return; /* cuInit reads again, and says it */
    log_open(settings.log);
    if (log_is_on())
        atomic_fetch_or(&enter_watch, WATCH_LOG);
    entry.hold = settings.hold;
    if (enter_set_faults(settings.faults) != 0)
        log_failure("ALIQUOT_SOFTGPU_FAULTS=%s: expected function:nth=code, comma separated", settings.faults);
}

void enter_read_environment(void)
{
    pthread_once(&entry.once, read_environment);
}

void enter_initialised(void)
{
    atomic_fetch_and(&enter_watch, ~WATCH_BEFORE_INIT);
}

void enter_pause_on(_Atomic uint32_t *word)
{
    atomic_store(&enter_pause, word);
}

/* Waits while another process has locked or checkpointed this one. Looks again from time to time,
 * for that process may die without waking this thread. */
static void wait_while_paused(void)
{
    const struct timespec look = {0, 100000000};
    _Atomic uint32_t *word = atomic_load(&enter_pause);
    for (uint32_t state = atomic_load(word); state; state = atomic_load(word))
        syscall(SYS_futex, word, FUTEX_WAIT, state, &look, NULL, 0);
}

void enter_forked(void)
{
    atomic_store(&enter_pause, &runs); /* the machine is not mapped in the child */
    atomic_fetch_or(&enter_watch, WATCH_FORKED);
}

void enter_torn_down(CUresult (*answer)(const char *function))
{
    entry.after_teardown = answer;
    atomic_fetch_or(&enter_watch, WATCH_TORN_DOWN);
}

/* Answers before cuInit, and in a forked child. */
static int is_always_open(const char *name)
{
    static const char *const open[] = {"cuInit", "cuDriverGetVersion", "cuGetProcAddress", "cuGetProcAddress_v2",
                                       "cuGetExportTable", "cuGetErrorName", "cuGetErrorString"};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (strcmp(open[i], name) == 0)
            return 1;
    return 0;
}

static int is_thread(const char *begin)
{
    char name[THREAD_NAME] = "";
    prctl(PR_GET_NAME, name);
    return strncmp(name, begin, strlen(begin)) == 0;
}

static int injected(int index, int watch)
{
    if (!(watch & WATCH_FAULTS))
        return 0;
    unsigned long calls = 1 + atomic_fetch_add(&enter_points[index].calls, 1);
    int code = 0;
    for (int i = 0; i < entry.fault_count; i++) { /* to the end: each counts its own calls */
        struct fault *fault = &entry.faults[i];
        unsigned long call = calls;
        if (fault->point != index || (fault->thread[0] && !is_thread(fault->thread)))
            continue;
        if (fault->thread[0])
            call = 1 + atomic_fetch_add(&fault->calls, 1);
        if (code == 0 && (fault->nth == 0 || fault->nth == call)) {
            code = fault->code;
            log_line("event=fault function=%s call=%lu code=%d", enter_points[index].name, call, code);
        }
    }
    return code;
}

static void wait_while_held(void)
{
    const struct timespec pause = {0, 1000000};
    while (entry.hold && access(entry.hold, F_OK) == 0)
        nanosleep(&pause, NULL);
}

CUresult enter_slow(int index)
{
    enter_read_environment();
    int watch = atomic_load_explicit(&enter_watch, memory_order_acquire);
    if (watch & WATCH_LOG)
        log_line("event=call function=%s", enter_points[index].name);
    if (watch & WATCH_TORN_DOWN)
        return entry.after_teardown(enter_points[index].name);
    int fault = injected(index, watch);
    if (fault == HOLD)
        wait_while_held();
    else if (fault)
        return (CUresult)fault;
    if ((watch & (WATCH_BEFORE_INIT | WATCH_FORKED)) && !is_always_open(enter_points[index].name))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!is_always_open(enter_points[index].name))
        wait_while_paused();
    return CUDA_SUCCESS;
}

CUresult enter_unsupported(int index)
{
    log_line("event=unsupported function=%s", enter_points[index].name);
    return CUDA_ERROR_NOT_SUPPORTED;
}
