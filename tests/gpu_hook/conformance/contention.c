/* Two processes on one device: what a busy neighbour does to an interval between events, and that an idle one does nothing.
 * Holds for time slices and for processes side by side: the work fills the device. */
#include "processes.h"

#define THREADS 256
#define BLOCKS_AN_SM 16
#define INTERVAL_MS 60
#define TRY_ROUNDS 200000
#define TRIES 5
#define AHEAD 16 /* launches: a process that gets no processor for a while still keeps the device busy */

struct worker {
    CUfunction function;
    CUdeviceptr result;
    unsigned blocks;
    uint64_t rounds; /* of a launch that takes about INTERVAL_MS alone */
};

static void work(const struct worker *worker, uint64_t rounds)
{
    uint64_t asked = rounds;
    CUdeviceptr result = worker->result;
    void *arguments[] = {&asked, &result};
    EXPECT_OK(cuLaunchKernel(worker->function, worker->blocks, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL));
}

static float interval_ms(const struct worker *worker, uint64_t rounds)
{
    CUevent begin, end;
    float milliseconds;
    EXPECT_OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    EXPECT_OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    work(worker, rounds / 4); /* so that the host is ahead of what is measured */
    EXPECT_OK(cuEventRecord(begin, NULL));
    work(worker, rounds);
    EXPECT_OK(cuEventRecord(end, NULL));
    EXPECT_OK(cuEventSynchronize(end));
    EXPECT_OK(cuEventElapsedTime(&milliseconds, begin, end));
    EXPECT_OK(cuEventDestroy(begin));
    EXPECT_OK(cuEventDestroy(end));
    return milliseconds;
}

/* No other process may work now: this measures how long a round takes. */
static struct worker prepare(void)
{
    int multiprocessors = 0;
    struct worker worker = {0};
    check_start();
    EXPECT_OK(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    worker.blocks = (unsigned)multiprocessors * BLOCKS_AN_SM;
    worker.function = check_builtin("aliquot_work");
    EXPECT_OK(cuMemAlloc(&worker.result, 8));
    float least = interval_ms(&worker, TRY_ROUNDS);
    for (int i = 1; i < TRIES; i++) { /* clocks and caches warm up */
        float again = interval_ms(&worker, TRY_ROUNDS);
        least = again < least ? again : least;
    }
    worker.rounds = (uint64_t)(TRY_ROUNDS * (INTERVAL_MS / (double)least));
    return worker;
}

static void work_and_record(const struct worker *worker, CUevent done)
{
    work(worker, worker->rounds / 4);
    EXPECT_OK(cuEventRecord(done, NULL));
}

/* Says that it is ready, and at each word begins or stops to fill the device. */
static void neighbour(int socket)
{
    struct worker worker = prepare();
    CUevent done[AHEAD];
    char word;
    for (int i = 0; i < AHEAD; i++)
        EXPECT_OK(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
    peer_say(socket);
    peer_hear(socket);
    for (int i = 0; i < AHEAD; i++)
        work_and_record(&worker, done[i]);
    peer_say(socket);
    for (int next = 0; recv(socket, &word, 1, MSG_DONTWAIT) != 1; next = (next + 1) % AHEAD) {
        EXPECT_OK(cuEventSynchronize(done[next]));
        work_and_record(&worker, done[next]);
    }
    EXPECT_OK(cuCtxSynchronize());
    for (int i = 0; i < AHEAD; i++)
        EXPECT_OK(cuEventDestroy(done[i]));
    peer_say(socket);
    peer_hear(socket);
}

TEST(a_busy_neighbour_stretches_an_interval_and_an_idle_one_does_not)
{
    struct peer peer = peer_start(neighbour);
    peer_hear(peer.socket);
    struct worker worker = prepare();
    float alone = interval_ms(&worker, worker.rounds);
    peer_say(peer.socket);
    peer_hear(peer.socket);
    float beside = interval_ms(&worker, worker.rounds);
    peer_say(peer.socket);
    peer_hear(peer.socket);
    float after = interval_ms(&worker, worker.rounds);
    peer_say(peer.socket);
    peer_end(peer);
    if (!(beside > 1.5f * alone && beside < 3 * alone && after < 1.25f * alone)) {
        printf("alone %.2f ms, beside a busy neighbour %.2f ms, after it %.2f ms\n", alone, beside, after);
        exit(1);
    }
}
