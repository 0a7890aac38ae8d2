/* Does one thing within a call that the shim forwards (the null driver's cuLaunchHostFunc runs its function on the
 * caller's thread), says how it went, and stays until its input ends. */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TIMES 3 /* the first call takes the slow way, the next ones the fast one */

static int answer;

static void read_line(void)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        exit(0);
}

static __attribute__((noinline)) void call_within(CUhostFn function, void *argument)
{
    answer += (int)cuLaunchHostFunc(NULL, function, argument);
    __asm__ volatile("" ::: "memory"); /* not the last call: this frame stays */
}

static void keep_arguments(void)
{
    CUipcMemHandle handle;
    for (unsigned i = 0; i < sizeof handle.reserved; i++)
        handle.reserved[i] = (char)i;
    for (int i = 0; i < TIMES; i++) {
        CUdeviceptr pointer = 0;
        answer += (int)cuMemcpyBatchAsync_v2((void *)1, (void *)2, (void *)3, 4, (void *)5, (void *)6, 7, (void *)8);
        answer += (int)cuIpcOpenMemHandle_v2(&pointer, handle, 41) + (pointer != 41);
    }
}

static void look_back(void *unused)
{
    void *frames[64];
    int count = backtrace(frames, 64);
    bool is_seen = false;
    for (int i = 0; i < count; i++)
        is_seen |= (char *)frames[i] > (char *)call_within && (char *)frames[i] < (char *)call_within + 256;
    answer += !is_seen;
}

static void be_cancelled(void *unused)
{
    pthread_cancel(pthread_self());
    pthread_testcancel();
    answer++; /* not reached */
}

static void end_thread(void *unused)
{
    syscall(SYS_exit, 0);
}

static void launch_in_handler(int number)
{
    answer += (int)cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    answer += (int)cuMemcpyDtoDAsync_v2(1, 2, 3, (CUstream)4);
}

static void take_signal(void *unused)
{
    raise(SIGUSR1);
}

/* Until it is told to go on; then it launches, whatever was stopped meanwhile. */
static void stay(void *unused)
{
    puts("inside");
    fflush(stdout);
    read_line();
    launch_in_handler(0);
}

static void *run(void *function)
{
    call_within((CUhostFn)function, NULL);
    return NULL;
}

static void run_in_thread(CUhostFn function)
{
    pthread_t thread;
    pthread_create(&thread, NULL, run, (void *)function);
    pthread_join(thread, NULL);
}

int main(int count, char **arguments)
{
    CUcontext context;
    const char *route = count > 1 ? arguments[1] : "";
    signal(SIGUSR1, launch_in_handler);
    answer = (int)cuInit(0) + (int)cuDevicePrimaryCtxRetain(&context, 0) + (int)cuCtxSetCurrent(context);
    if (strcmp(route, "arguments") == 0)
        keep_arguments();
    for (int i = 0; i < TIMES; i++) {
        if (strcmp(route, "unwound") == 0)
            call_within(look_back, NULL);
        if (strcmp(route, "cancelled") == 0)
            run_in_thread(be_cancelled);
        if (strcmp(route, "ended") == 0)
            run_in_thread(end_thread);
        if (strcmp(route, "signalled") == 0)
            call_within(take_signal, NULL);
    }
    if (strcmp(route, "inside") == 0)
        call_within(stay, NULL);
    printf("%d\n", answer);
    fflush(stdout);
    read_line();
    return 0;
}
