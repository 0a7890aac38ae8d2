/* The device under time slices: contexts take turns, and one without work is passed over. The
 * end of a slice cuts a long launch, as compute pre-emption does, and a change of context costs
 * a switch. */
#include "plant.h"

void engine_used(struct process *process, uint64_t from, uint64_t time)
{
    process->own += time;
    while (time) {
        uint64_t bin = from / BIN_NANOSECONDS, room = (bin + 1) * BIN_NANOSECONDS - from;
        uint64_t part = time < room ? time : room;
        process->bins[bin] += part;
        from += part;
        time -= part;
    }
}

/* Returns when the first item ends if it runs from here on. Between its launches the device
 * waits for the host. */
uint64_t head_end(const struct process *process, uint64_t from)
{
    const struct item *item = &process->items[process->item_head % RING];
    return from + item->left > item->host_until ? from + item->left : item->host_until;
}

static bool has_items(const struct process *process)
{
    return process->item_head != process->item_tail;
}

static void account(struct plant *plant)
{
    if (plant->current < 0 || plant->now <= plant->run_from)
        return;
    struct process *process = plant->processes[plant->current];
    struct item *item = &process->items[process->item_head % RING];
    uint64_t end = head_end(process, plant->run_from), elapsed = plant->now - plant->run_from;
    if (plant->now >= end)
        item->left = 0;
    else
        item->left -= (uint64_t)((unsigned __int128)item->left * elapsed / (end - plant->run_from));
    engine_used(process, plant->run_from, elapsed);
    plant->run_from = plant->now;
}

/* Adds the time that ran so far, at the end of a run. */
void engine_settle(struct plant *plant) { account(plant); }

static void choose(struct plant *plant)
{
    if (plant->current >= 0 || !plant->runlist_count)
        return;
    plant->current = (int)plant->runlist[0];
    plant->runlist_count--;
    for (uint32_t place = 0; place < plant->runlist_count; place++)
        plant->runlist[place] = plant->runlist[place + 1];
    uint64_t cost = plant->last < 0 || plant->last == plant->current ? 0 : plant->settings.switch_cost;
    plant->switched += cost;
    plant->last = plant->current;
    plant->run_from = plant->now + cost;
    plant->slice_end = plant->run_from + plant->settings.slice;
}

static void plan(struct plant *plant)
{
    plant->version++;
    choose(plant);
    if (plant->current < 0)
        return;
    struct process *process = plant->processes[plant->current];
    hook_started(process, plant->run_from);
    uint64_t at = head_end(process, plant->run_from);
    if (plant->runlist_count && plant->slice_end < at)
        at = plant->slice_end;
    event_add(plant, at, EV_DEVICE, 0, plant->version);
}

void engine_submit(struct plant *plant, uint32_t number)
{
    struct process *process = plant->processes[number];
    if (process->item_tail - process->item_head > 1)
        return; /* behind its own items, which wait or run */
    account(plant);
    if (plant->current >= 0 && !plant->runlist_count)
        while (plant->slice_end <= plant->now) /* alone, its slices followed each other */
            plant->slice_end += plant->settings.slice;
    plant->runlist[plant->runlist_count++] = number;
    plan(plant);
}

void engine_event(struct plant *plant, uint32_t version)
{
    if (version != plant->version || plant->current < 0)
        return;
    account(plant);
    uint32_t number = (uint32_t)plant->current;
    struct process *process = plant->processes[number];
    bool is_done = !process->items[process->item_head % RING].left;
    if (is_done)
        process->item_head++;
    if (!has_items(process))
        plant->current = -1;
    else if (plant->runlist_count && plant->slice_end <= plant->now) {
        plant->runlist[plant->runlist_count++] = number;
        plant->current = -1;
    }
    if (is_done)
        hook_item_done(plant, number);
    plan(plant);
}

void engine_forget(struct plant *plant, uint32_t number)
{
    account(plant);
    struct process *process = plant->processes[number];
    process->item_head = process->item_tail;
    if (plant->current == (int)number)
        plant->current = -1;
    uint32_t kept = 0;
    for (uint32_t place = 0; place < plant->runlist_count; place++)
        if (plant->runlist[place] != number)
            plant->runlist[kept++] = plant->runlist[place];
    plant->runlist_count = kept;
    plan(plant);
}
