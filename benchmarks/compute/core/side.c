/* The device with contexts side by side, as under MPS: all run at once, and each neighbor slows
 * the others by a factor of its own. The ends of items move whenever the number of running items
 * changes. */
#include "plant.h"

static uint32_t running(const struct plant *plant)
{
    uint32_t count = 0;
    for (uint32_t number = 0; number < plant->process_count; number++)
        count += plant->processes[number]->item_head != plant->processes[number]->item_tail;
    return count;
}

static uint64_t slower(const struct plant *plant, uint32_t count)
{
    return 1000 + (plant->settings.side_by_side - 1) * (count ? count - 1 : 0);
}

static void account(struct plant *plant, uint32_t count)
{
    uint64_t elapsed = plant->now - plant->run_from, thousandths = slower(plant, count);
    for (uint32_t number = 0; elapsed && number < plant->process_count; number++) {
        struct process *process = plant->processes[number];
        if (process->item_head == process->item_tail)
            continue;
        struct item *item = &process->items[process->item_head % RING];
        uint64_t done = elapsed * 1000 / thousandths;
        item->left -= done < item->left ? done : item->left;
        engine_used(process, plant->run_from, done);
    }
    plant->run_from = plant->now;
}

void side_settle(struct plant *plant) { account(plant, running(plant)); }

static void plan(struct plant *plant)
{
    uint64_t thousandths = slower(plant, running(plant)), least = NEVER;
    plant->version++;
    for (uint32_t number = 0; number < plant->process_count; number++) {
        struct process *process = plant->processes[number];
        if (process->item_head == process->item_tail)
            continue;
        hook_started(process, plant->now);
        const struct item *item = &process->items[process->item_head % RING];
        uint64_t at = plant->now + (item->left * thousandths + 999) / 1000;
        at = at > item->host_until ? at : item->host_until;
        least = at < least ? at : least;
    }
    if (least != NEVER)
        event_add(plant, least, EV_DEVICE, 0, plant->version);
}

void side_submit(struct plant *plant, uint32_t number)
{
    struct process *process = plant->processes[number];
    if (process->item_tail - process->item_head > 1)
        return;
    account(plant, running(plant) - 1);
    plan(plant);
}

void side_event(struct plant *plant, uint32_t version)
{
    if (version != plant->version)
        return;
    account(plant, running(plant));
    plant->version++; /* the end of these starts new items, which are planned here */
    for (uint32_t number = 0; number < plant->process_count; number++) {
        struct process *process = plant->processes[number];
        const struct item *item = &process->items[process->item_head % RING];
        if (process->item_head == process->item_tail || item->left || item->host_until > plant->now)
            continue;
        process->item_head++;
        hook_item_done(plant, number);
    }
    plan(plant);
}

void side_forget(struct plant *plant, uint32_t number)
{
    account(plant, running(plant));
    plant->processes[number]->item_head = plant->processes[number]->item_tail;
    plan(plant);
}
