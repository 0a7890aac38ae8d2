/* Runs sequences on whichever driver the loader finds. For each it writes {number, count of records, calls so far,
 * bytes that stayed in use} and the records to standard output and waits for a byte, so that the test can look at the
 * books; a record is the hash of what an operation noted, with CUDA_ERROR_OUT_OF_MEMORY or the first code in its low
 * 16 bits.
 *
 *   fuzz FIRST SEQUENCES OPERATIONS [quota] [modest] [paced] [verbose] [only=FILE]
 *
 * `quota`: what shows a quota is not noted. `modest`: asks for no more than a hook has to ask its driver for, so that
 * injected faults fall on the same calls. `paced`: a hook makes events of its own, so a destroyed one's handle is not
 * offered. `verbose`: text, and no waiting. `only`: a list of operations to run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "frame.h"

#define MOST_OPERATIONS 65536

static const struct family *const families[] = {
    &context_family, &memory_family, &pointer_family, &copy_family,   &stream_family, &capture_family, &pool_family,
    &vmm_family,     &sharing_family, &array_family,  &module_family, &launch_family, &graph_family,   &node_family,
    &query_family};

static struct {
    uint64_t seed;
    unsigned operations;
    bool is_verbose;
    unsigned char only[MOST_OPERATIONS]; /* 1: to be run */
    uint64_t records[MOST_OPERATIONS + 1];
} run;

static const struct operation *choose(void)
{
    unsigned total = 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (size_t j = 0; j < families[i]->count; j++)
            total += families[i]->operations[j].weight;
    unsigned left = (unsigned)draw(total);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (size_t j = 0; j < families[i]->count; j++) {
            const struct operation *one = &families[i]->operations[j];
            if (left < one->weight)
                return one;
            left -= one->weight;
        }
    return NULL;
}

static void step(void *operation)
{
    if (current_context() == NULL && chance(60))
        frame_revive();
    ((const struct operation *)operation)->run();
}

static void sequence(uint64_t number)
{
    frame_begin_sequence(number);
    for (unsigned i = 0; i < run.operations; i++) {
        frame_draw_from(run.seed + number, i);
        const struct operation *one = choose();
        frame_begin_record(one->name, i);
        if (run.only[i])
            frame_run(step, (void *)(uintptr_t)one);
        run.records[i] = frame_end_record();
    }
    frame_draw_from(run.seed + number, run.operations);
    frame_begin_record("clean_up", run.operations);
    frame_end_sequence();
    run.records[run.operations] = frame_end_record();
}

static int write_all(const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t written = write(STDOUT_FILENO, (const char *)data + done, bytes - done);
        if (written <= 0)
            return -1;
        done += (size_t)written;
    }
    return 0;
}

static int read_only(const char *path)
{
    FILE *file = fopen(path, "r");
    unsigned number;
    if (!file)
        return -1;
    memset(run.only, 0, sizeof run.only);
    while (fscanf(file, "%u", &number) == 1)
        if (number < MOST_OPERATIONS)
            run.only[number] = 1;
    fclose(file);
    return 0;
}

int main(int count, char **arguments)
{
    if (count < 4)
        return fprintf(stderr, "usage: fuzz FIRST SEQUENCES OPERATIONS [quota] [modest] [paced] [verbose] [only=FILE]\n"), 2;
    uint64_t first = strtoull(arguments[1], NULL, 10), sequences = strtoull(arguments[2], NULL, 10);
    run.operations = (unsigned)strtoul(arguments[3], NULL, 10);
    memset(run.only, 1, sizeof run.only);
    bool has_quota = false, is_modest = false, is_paced = false;
    for (int i = 4; i < count; i++) {
        has_quota |= strcmp(arguments[i], "quota") == 0;
        is_modest |= strcmp(arguments[i], "modest") == 0;
        is_paced |= strcmp(arguments[i], "paced") == 0;
        run.is_verbose |= strcmp(arguments[i], "verbose") == 0;
        if (strncmp(arguments[i], "only=", 5) == 0 && read_only(arguments[i] + 5) != 0)
            return fprintf(stderr, "%s cannot be read\n", arguments[i] + 5), 2;
    }
    if (run.operations > MOST_OPERATIONS)
        return fprintf(stderr, "asked for %u operations; at most %d\n", run.operations, MOST_OPERATIONS), 2;
    if (frame_start(has_quota, is_modest, is_paced, run.is_verbose) != 0)
        return fprintf(stderr, "the driver cannot be started\n"), 3;
    for (uint64_t i = first; i < first + sequences; i++) {
        sequence(i);
        if (run.is_verbose)
            continue;
        uint64_t header[] = {i, run.operations + 1, frame_calls(), left_over};
        char go;
        if (write_all(header, sizeof header) || write_all(run.records, (run.operations + 1) * sizeof *run.records) ||
            read(STDIN_FILENO, &go, 1) != 1)
            return 4;
    }
    return 0;
}
