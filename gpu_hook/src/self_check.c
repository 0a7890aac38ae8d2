#include "self_check.h"

#include "settings.h"
#include "socket.h"
#include "version.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CUDA_VERSION_ASKED 12000 /* of a query that every driver from 12.4 on answers */

typedef int (*query)(const char *symbol, void **function, int version, uint64_t flags, void *status);

static void __attribute__((format(printf, 2, 3))) note(struct self_check *check, const char *format, ...)
{
    size_t length = strlen(check->text);
    if (length && length + 2 < sizeof check->text) {
        memcpy(check->text + length, "; ", 3);
        length += 2;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->text + length, sizeof check->text - length, format, arguments);
    va_end(arguments);
}

static const char *file_of(void *address)
{
    Dl_info found;
    return address && dladdr(address, &found) && found.dli_fname ? found.dli_fname : "nothing";
}

/* Returns the marker's address, or NULL after a note. */
static void *check_name(struct self_check *check, const char *name, const char *known_function, uint32_t bit)
{
    void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        note(check, "%s: %s", name, reason ? reason : "cannot be opened");
        return NULL;
    }
    void *marker = dlsym(handle, ALIQUOT_HOOK_MARKER);
    if (marker)
        check->passed |= bit;
    else
        note(check, "%s is %s, not the hook", name, file_of(dlsym(handle, known_function)));
    return marker;
}

static void check_query(struct self_check *check, void *marker)
{
    Dl_info ours, answered;
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    query ask = handle ? (query)dlsym(handle, "cuGetProcAddress_v2") : NULL;
    void *function = NULL;
    int result = ask ? ask("cuMemAlloc", &function, CUDA_VERSION_ASKED, 0, NULL) : -1;
    if (result != 0 || !function)
        note(check, "the driver does not resolve cuMemAlloc (error %d); ALIQUOT_REAL_CUDA=%s", result,
             settings()->real_cuda ? settings()->real_cuda : "");
    else if (!marker || !dladdr(marker, &ours) || !dladdr(function, &answered) ||
             ours.dli_fbase != answered.dli_fbase)
        note(check, "cuGetProcAddress answers with %s, not the hook", file_of(function));
    else
        check->passed |= ALIQUOT_CHECK_QUERY;
}

static bool is_same_file(const char *left, const char *right)
{
    char left_path[PATH_MAX], right_path[PATH_MAX];
    return left && right && realpath(left, left_path) && realpath(right, right_path) &&
           strcmp(left_path, right_path) == 0;
}

/* Two drivers in one process mean that some name leads past the hook. */
static void check_mappings(struct self_check *check, void *const markers[3])
{
    char line[PATH_MAX + 128];
    FILE *mappings = fopen("/proc/self/maps", "re");
    if (!mappings) {
        note(check, "/proc/self/maps: %s", strerror(errno));
        return;
    }
    bool is_alone = true;
    while (is_alone && fgets(line, sizeof line, mappings)) {
        line[strcspn(line, "\n")] = '\0';
        char *path = strchr(line, '/');
        const char *name = path ? strrchr(path, '/') + 1 : "";
        if (strncmp(name, "libcuda.so", 10) != 0 && strncmp(name, "libnvidia-ml.so", 15) != 0)
            continue;
        bool is_known = is_same_file(path, settings()->real_cuda) || is_same_file(path, settings()->real_nvml);
        char link_name[PATH_MAX] = "";
        for (int i = 0; i < 3 && !is_known; i++)
            is_known = markers[i] && is_same_file(path, file_of(markers[i]));
        if (!is_known && markers[0]) {
            /* The link name's library lies beside the shim and holds no code. */
            snprintf(link_name, sizeof link_name, "%s", file_of(markers[0]));
            char *slash = strrchr(link_name, '/');
            if (slash && (size_t)(slash - link_name) + sizeof "/libcuda.so" <= sizeof link_name)
                strcpy(slash, "/libcuda.so");
            is_known = is_same_file(path, link_name);
        }
        if (!is_known) {
            note(check, "%s is mapped beside the hook", path);
            is_alone = false;
        }
    }
    fclose(mappings);
    if (is_alone)
        check->passed |= ALIQUOT_CHECK_ONE_DRIVER;
}

void self_check_run(struct self_check *check)
{
    memset(check, 0, sizeof *check);
    void *markers[3] = {
        check_name(check, "libcuda.so.1", "cuInit", ALIQUOT_CHECK_CUDA_NAME),
        check_name(check, "libcuda.so", "cuInit", ALIQUOT_CHECK_CUDA_LINK_NAME),
        check_name(check, "libnvidia-ml.so.1", "nvmlInit_v2", ALIQUOT_CHECK_NVML_NAME),
    };
    if (markers[0] && markers[1] && markers[0] != markers[1]) {
        check->passed &= ~(uint32_t)ALIQUOT_CHECK_CUDA_LINK_NAME;
        note(check, "libcuda.so is a second hook, %s", file_of(markers[1]));
    }
    check_query(check, markers[0]);
    check_mappings(check, markers);
}

static void read_report(struct self_check *check, int descriptor, int timeout_milliseconds)
{
    memset(check, 0, sizeof *check);
    /* One write of less than PIPE_BUF bytes arrives whole. */
    ssize_t got = -1;
    int failure = socket_wait(descriptor, timeout_milliseconds);
    if (!failure)
        got = read(descriptor, check, sizeof *check);
    if (got != (ssize_t)sizeof *check) {
        memset(check, 0, sizeof *check);
        note(check, failure ? "the check did not end within %d ms" : "a library ended the process that opened it",
             timeout_milliseconds);
    }
    check->text[sizeof check->text - 1] = '\0';
}

void self_check_run_apart(struct self_check *check, int timeout_milliseconds)
{
    int ends[2];
    if (pipe(ends) != 0) {
        memset(check, 0, sizeof *check);
        note(check, "no pipe for the check: %s", strerror(errno));
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        self_check_run(check);
        _exit(write(ends[1], check, sizeof *check) == (ssize_t)sizeof *check ? 0 : 1);
    }
    close(ends[1]);
    if (child > 0) {
        read_report(check, ends[0], timeout_milliseconds);
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    } else {
        memset(check, 0, sizeof *check);
        note(check, "no process for the check: %s", strerror(errno));
    }
    close(ends[0]);
}
