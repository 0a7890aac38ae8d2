/* The table of launches at an engine, and the launches announced to it. Does not decide their
 * order. */
#include "device/requests.h"

#include <string.h>

int requests_from(const struct engine *engine, int index)
{
    for (int word = index / 64; word < MACHINE_REQUESTS / 64; word++, index = word * 64) {
        uint64_t bits = engine->queued[word] >> (index % 64);
        if (bits)
            return index + __builtin_ctzll(bits);
    }
    return -1;
}

static int has_queued(const struct engine *engine, uint32_t slot)
{
    for EACH_QUEUED (engine, i)
        if (engine->requests[i].slot == slot)
            return 1;
    return 0;
}

uint32_t requests_expected(const struct engine *engine, uint32_t slot)
{
    return slot == REQUESTS_NOBODY ? 0 : atomic_load_explicit(&engine->expected[slot], memory_order_acquire);
}

int requests_is_awaited(const struct engine *engine, uint32_t slot)
{
    return slot != REQUESTS_NOBODY && !engine->is_absent[slot] && requests_expected(engine, slot) && !has_queued(engine, slot);
}

void requests_finish(struct engine *engine, int index)
{
    int is_given_up = atomic_load_explicit(&engine->requests[index].is_given_up, memory_order_relaxed) != 0;
    engine->requests[index].state = is_given_up ? REQUEST_FREE : REQUEST_DONE;
    engine->requests[index].end = engine->clock;
    engine->queued[index / 64] &= ~(1ull << (index % 64));
}

uint64_t requests_first_ready(const struct engine *engine)
{
    uint64_t first = UINT64_MAX;
    for EACH_QUEUED (engine, i)
        first = engine->requests[i].ready < first ? engine->requests[i].ready : first;
    return first;
}

int requests_post(struct engine *engine, const struct request *request)
{
    for (int word = 0; word < MACHINE_REQUESTS / 64; word++)
        for (uint64_t rest = ~engine->queued[word]; rest; rest &= rest - 1) {
            int index = word * 64 + __builtin_ctzll(rest);
            const struct request *found = &engine->requests[index];
            if (found->state != REQUEST_FREE && !(found->state == REQUEST_DONE && found->is_given_up))
                continue;
            engine->requests[index] = *request;
            engine->requests[index].state = REQUEST_QUEUED;
            engine->queued[word] |= 1ull << (index % 64);
            engine->is_absent[request->slot] = 0;
            return index;
        }
    return -1;
}

void requests_collect(struct engine *engine, int index)
{
    engine->requests[index].state = REQUEST_FREE;
}

void requests_forget(struct engine *engine, uint32_t slot)
{
    for (int i = 0; i < MACHINE_REQUESTS; i++)
        if (engine->requests[i].state != REQUEST_FREE && engine->requests[i].slot == slot) {
            engine->requests[i].state = REQUEST_FREE;
            engine->queued[i / 64] &= ~(1ull << (i % 64));
        }
    uint32_t expected = atomic_exchange_explicit(&engine->expected[slot], 0, memory_order_relaxed);
    atomic_fetch_sub_explicit(&engine->expecting, expected, memory_order_relaxed);
    engine->is_absent[slot] = 0;
}

void requests_repair(struct engine *engine)
{
    uint32_t expecting = 0;
    memset(engine->queued, 0, sizeof engine->queued);
    for (int i = 0; i < MACHINE_REQUESTS; i++)
        if (engine->requests[i].state == REQUEST_QUEUED)
            engine->queued[i / 64] |= 1ull << (i % 64);
    for (uint32_t s = 0; s < MACHINE_SLOTS; s++)
        expecting += requests_expected(engine, s);
    atomic_store_explicit(&engine->expecting, expecting, memory_order_relaxed);
}

void requests_reset(struct engine *engine)
{
    memset(engine, 0, sizeof *engine);
    engine->turn = engine->ran = REQUESTS_NOBODY;
}
