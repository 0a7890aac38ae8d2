/* A process of the hook, with an activity page and peers that a test drives: one command a line,
 * one answer a line. */
#include "agent_link/activity_page.h"
#include "compute/peers.h"
#include "compute/samples.h"
#include "base/times.h"

#include "interpose/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4

static int is_stopped;

/* The steps of the pacer and the program's threads, as fast as possible. */
static void *crowd(void *argument)
{
    uintptr_t number = (uintptr_t)argument, looks = 0;
    struct pace_state state = {0};
    for (; !__atomic_load_n(&is_stopped, __ATOMIC_RELAXED); looks++) {
        int device = (int)(looks % 2);
        peers_read(device, &state);
        activity_page_set_active(device, looks & 4);
        uint64_t now = times_now_nanoseconds();
        activity_page_add_interval(device, now - 1000, now);
        const void *function = (void *)(0x1000 + 16 * ((looks * 7 + number) % 3000));
        samples_should_sample(device, function, 3);
        struct sample sample = {.function = function, .grid_class = 3, .nanoseconds = 1 + looks % 5000};
        if (samples_expect(device, function, 3) % 2 == 0)
            samples_take(device, &sample, now);
    }
    return (void *)looks;
}

static void run_crowd(pthread_t threads[THREADS])
{
    is_stopped = 0;
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, crowd, (void *)i);
    printf("runs\n");
}

static void stop_crowd(pthread_t threads[THREADS])
{
    uintptr_t total = 0;
    __atomic_store_n(&is_stopped, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) {
        void *looks;
        pthread_join(threads[i], &looks);
        total += (uintptr_t)looks;
    }
    printf("%zu\n", (size_t)total);
}

static void work(int device, uint64_t start, uint64_t end)
{
    activity_page_set_active(device, true);
    activity_page_add_interval(device, start, end);
    activity_page_set_active(device, false);
}

/* The child's writes are visible to no other process, and it knows no peers. */
static void fork_and_work(int device)
{
    pid_t child = fork();
    if (child == 0) {
        struct pace_state state = {0};
        activity_page_set_active(device, true);
        activity_page_add_interval(device, 1, 1000000000);
        peers_read(device, &state);
        _exit((int)state.has_peers);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(void)
{
    pthread_t threads[THREADS];
    char line[200];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cuInit(0) != CUDA_SUCCESS)
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        int device = 0, flag;
        unsigned long long start, end;
        struct pace_state state = {0};
        if (sscanf(line, "work %d %llu %llu", &device, &start, &end) == 3)
            work(device, start, end), printf("done\n");
        else if (sscanf(line, "active %d %d", &device, &flag) == 2)
            activity_page_set_active(device, flag), printf("done\n");
        else if (sscanf(line, "look %d", &device) == 1)
            peers_read(device, &state), printf("%u %u %llu\n", state.has_peers, state.are_active,
                                                    (unsigned long long)state.idle_since);
        else if (sscanf(line, "fork %d", &device) == 1)
            fork_and_work(device);
        else if (strncmp(line, "run", 3) == 0)
            run_crowd(threads);
        else if (strncmp(line, "stop", 4) == 0)
            stop_crowd(threads);
    }
    return 0;
}
