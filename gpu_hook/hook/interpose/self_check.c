#include "interpose/self_check.h"

#include "base/settings.h"
#include "agent_link/socket.h"
#include "base/version.h"

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

typedef int (*query)(const char *symbol, void **function, int version, uint64_t flags,
                     void *status);

static void __attribute__((format(printf, 2, 3))) note(struct self_check *check, const char *format,
                                                       ...)
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

/* Return where the hook's library that holds the address is mapped; NULL: the address is in no
 * library of the hook. */
static void *find_hook(void *address)
{
    Dl_info found, marked;
    void *handle = address && dladdr(address, &found)
                       ? dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                       : NULL;
    void *marker = handle ? dlsym(handle, ALIQUOT_HOOK_MARKER) : NULL;
    return marker && dladdr(marker, &marked) && marked.dli_fbase == found.dli_fbase
               ? found.dli_fbase
               : NULL;
}

/* Look for each function in the library that the name opens. Returns where the hook is mapped,
 * or NULL after a note. */
static void *check_name(struct self_check *check, const char *name, const char *const functions[],
                        uint32_t bit)
{
    void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        note(check, "%s: %s", name, reason ? reason : "cannot be opened");
        return NULL;
    }
    void *hook = NULL;
    for (int i = 0; functions[i]; i++) {
        void *function = dlsym(handle, functions[i]);
        hook = find_hook(function);
        if (!hook) {
            note(check, "%s: %s is in %s, not in the hook", name, functions[i], file_of(function));
            return NULL;
        }
    }
    check->passed |= bit;
    return hook;
}

static void check_query(struct self_check *check, void *hook)
{
    static const char *const symbols[] = {"cuMemAlloc", "cuLaunchKernel", "cuMemcpyHtoD"};
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    query ask = handle ? (query)dlsym(handle, "cuGetProcAddress_v2") : NULL;
    for (unsigned i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *function = NULL;
        int result = ask ? ask(symbols[i], &function, CUDA_VERSION_ASKED, 0, NULL) : -1;
        if (result != 0 || !function) {
            note(check, "the driver does not resolve %s (error %d); ALIQUOT_REAL_CUDA=%s",
                 symbols[i], result, settings()->real_cuda ? settings()->real_cuda : "");
            return;
        }
        if (!hook || find_hook(function) != hook) {
            note(check, "cuGetProcAddress answers %s with %s, not the hook", symbols[i],
                 file_of(function));
            return;
        }
    }
    check->passed |= ALIQUOT_CHECK_QUERY;
}

static bool is_same_file(const char *left, const char *right)
{
    char left_path[PATH_MAX], right_path[PATH_MAX];
    return left && right && realpath(left, left_path) && realpath(right, right_path) &&
           strcmp(left_path, right_path) == 0;
}

/* The library's own file, or its link name's beside it, which holds no code. */
static bool is_library(const char *path, const char *library)
{
    char link_name[PATH_MAX];
    const char *slash = library ? strrchr(library, '/') : NULL;
    if (!slash)
        return false;
    int length =
        snprintf(link_name, sizeof link_name, "%.*s/libcuda.so", (int)(slash - library), library);
    return is_same_file(path, library) ||
           (length < (int)sizeof link_name && is_same_file(path, link_name));
}

/* Two drivers in one process mean that some name leads past the hook. */
static void check_mappings(struct self_check *check, void *const hooks[3])
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
        bool is_known =
            is_same_file(path, settings()->real_nvml) || is_library(path, settings()->real_cuda);
        for (int i = 0; i < 3 && !is_known; i++)
            is_known = hooks[i] && is_library(path, file_of(hooks[i]));
        if (!is_known) {
            note(check, "%s is mapped beside the hook", path);
            is_alone = false;
        }
    }
    fclose(mappings);
    if (is_alone)
        check->passed |= ALIQUOT_CHECK_ONE_DRIVER;
}

/* Check the paths where drivers are installed. A library there must be the hook, by a mount over it
 * or by the audit redirector; where none is (a software GPU), the real library's own path must give
 * the hook. This is the last of all checks, because it may map the driver a second time. */
static void check_absolute_path(struct self_check *check)
{
    static const char *const usual[] = {
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
        "/usr/lib64/libcuda.so.1",                "/usr/local/nvidia/lib64/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",          "/run/opengl-driver/lib/libcuda.so.1",
    };
    unsigned opened = 0, hooked = 0;
    for (unsigned i = 0; i <= sizeof usual / sizeof *usual; i++) {
        bool is_usual = i < sizeof usual / sizeof *usual;
        const char *path = is_usual ? usual[i] : settings()->real_cuda;
        if (!path || (is_usual ? access(path, R_OK) != 0 : opened > 0))
            continue;
        void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        opened++;
        hooked += handle && find_hook(dlsym(handle, "cuMemAlloc_v2"));
    }
    if (opened && hooked == opened)
        check->passed |= ALIQUOT_CHECK_ABSOLUTE_PATH;
}

void self_check_run(struct self_check *check)
{
    static const char *const cuda[] = {"cuInit", "cuMemAlloc_v2", "cuLaunchKernel",
                                       "cuMemcpyHtoD_v2", NULL};
    static const char *const nvml[] = {"nvmlInit_v2", "nvmlDeviceGetMemoryInfo", NULL};
    memset(check, 0, sizeof *check);
    void *hooks[3] = {
        check_name(check, "libcuda.so.1", cuda, ALIQUOT_CHECK_CUDA_NAME),
        check_name(check, "libcuda.so", cuda, ALIQUOT_CHECK_CUDA_LINK_NAME),
        check_name(check, "libnvidia-ml.so.1", nvml, ALIQUOT_CHECK_NVML_NAME),
    };
    if (hooks[0] && hooks[1] && hooks[0] != hooks[1]) {
        check->passed &= ~(uint32_t)ALIQUOT_CHECK_CUDA_LINK_NAME;
        note(check, "libcuda.so is a second hook, %s", file_of(hooks[1]));
    }
    check_query(check, hooks[0]);
    check_mappings(check, hooks);
    check_absolute_path(check);
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
        note(check,
             failure ? "the check did not end within %d ms"
                     : "a library ended the process that opened it",
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
