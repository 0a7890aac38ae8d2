/* The frame of a conformance program: a family of the driver API, one TEST for each claim. The program runs one test a
 * process (a driver's state is the process's), on whichever driver the loader finds. `list` prints the names.
 *
 * A test ends at the first expectation that does not hold, with the file, line and both values. */
#ifndef ALIQUOT_CONFORMANCE_CHECK_H
#define ALIQUOT_CONFORMANCE_CHECK_H

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define EXIT_SKIPPED 77

struct check_test {
    const char *name;
    void (*run)(void);
    struct check_test *next;
};

static struct check_test *check_tests;

#define TEST(title)                                                                        \
    static void title(void);                                                               \
    static __attribute__((constructor)) void register_##title(void)                        \
    {                                                                                      \
        static struct check_test test = {#title, title, NULL};                             \
        test.next = check_tests;                                                           \
        check_tests = &test;                                                               \
    }                                                                                      \
    static void title(void)

/* Lets the test of a program act between its calls: reports the asking process, and waits for
 * the answer. */
static inline void check_step(void)
{
    static int connection = -1;
    static pid_t owner;
    const char *path = getenv("ALIQUOT_TEST_STEPS");
    char answer;
    if (!path)
        return;
    if (owner != getpid()) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
        owner = getpid();
        connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(connection, (struct sockaddr *)&address, sizeof address) != 0)
            connection = -1;
    }
    if (connection >= 0 && (write(connection, &owner, sizeof owner) != sizeof owner || read(connection, &answer, 1) != 1))
        connection = -1;
}

#define EXPECT_CODE(call, want_code)                                                                     \
    do {                                                                                                 \
        check_step();                                                                                    \
        CUresult found_code = (call), wanted_code = (want_code);                                         \
        if (found_code != wanted_code) {                                                                 \
            printf("%s:%d: %s answered %d, wanted %d (%s)\n", __FILE__, __LINE__, #call, found_code,      \
                   wanted_code, #want_code);                                                             \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

#define EXPECT_OK(call) EXPECT_CODE(call, CUDA_SUCCESS)

#define EXPECT_EQUAL(found, want)                                                                        \
    do {                                                                                                 \
        long long found_value = (long long)(found), want_value = (long long)(want);                      \
        if (found_value != want_value) {                                                                 \
            printf("%s:%d: %s is %lld, wanted %lld\n", __FILE__, __LINE__, #found, found_value, want_value); \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

#define EXPECT(claim)                                                       \
    do {                                                                    \
        if (!(claim)) {                                                     \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #claim);      \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

/* For features that this device or driver truly lacks; reports which. */
#define SKIP(...)            \
    do {                     \
        printf(__VA_ARGS__); \
        printf("\n");        \
        exit(EXIT_SKIPPED);  \
    } while (0)

/* One of two codes, where the documentation allows both. */
#define EXPECT_EITHER(call, one, other)                                                             \
    do {                                                                                            \
        check_step();                                                                               \
        CUresult found_code = (call);                                                               \
        if (found_code != (one) && found_code != (other)) {                                         \
            printf("%s:%d: %s answered %d, wanted " #one " or " #other "\n", __FILE__, __LINE__, #call, \
                   found_code);                                                                     \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

/* The software GPU says what it is, also through the hook. */
static inline int check_is_software(void)
{
    char name[64] = "";
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGetName(name, sizeof name, 0));
    return strcmp(name, "Aliquot Software GPU") == 0;
}

/* The claims below are more than CUDA promises: a driver may crash on a handle that is gone, or
 * answer otherwise. */
#define ONLY_ON_THE_SOFTWARE_GPU()                              \
    do {                                                        \
        if (!check_is_software())                               \
            SKIP("the rest is promised by no real driver");     \
    } while (0)

static inline size_t check_free_bytes(void)
{
    size_t free, total;
    EXPECT_OK(cuMemGetInfo(&free, &total));
    return free;
}

/* A real device has other users, and a driver keeps chunks and page tables: there, about `want` bytes. */
static inline void check_taken(const char *file, int line, size_t before, size_t want)
{
    size_t free = check_free_bytes(), slack = check_is_software() ? 0 : 32 * MIB;
    if (free + want <= before + slack && free + want + slack >= before)
        return;
    printf("%s:%d: %zd bytes of the device were taken, wanted %zu\n", file, line, (ssize_t)(before - free), want);
    exit(1);
}

/* Expect that the device has lost `want` bytes since `before` bytes were free. */
#define EXPECT_TAKEN(before, want) check_taken(__FILE__, __LINE__, before, want)

/* Device 0 with its primary context current. */
static inline CUcontext check_start(void)
{
    CUdevice device;
    CUcontext context;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDeviceGet(&device, 0));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&context, device));
    EXPECT_OK(cuCtxSetCurrent(context));
    return context;
}

/* A function of gpu_hook/builtins.ptx, which computes on the software GPU and on a real one. */
static inline CUfunction check_builtin(const char *name)
{
    static CUmodule module;
    CUfunction function;
    if (!module)
        EXPECT_OK(cuModuleLoad(&module, getenv("ALIQUOT_BUILTINS")));
    EXPECT_OK(cuModuleGetFunction(&function, module, name));
    return function;
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const struct check_test *test = check_tests; test; test = test->next) {
        if (count < 2) {
            puts(test->name);
        } else if (strcmp(test->name, arguments[1]) == 0) {
            test->run();
            return 0;
        }
    }
    return count < 2 ? 0 : (fprintf(stderr, "no test %s\n", arguments[1]), 2);
}

#endif
