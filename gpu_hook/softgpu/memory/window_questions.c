/* Questions about addresses: which allocation lies there, and which device has access. */
#include "memory/mappings.h"
#include "memory/window_state.h"

int window_find(uint64_t address, struct allocation *found)
{
    int failed = -1;
    window_lock();
    struct allocation *allocation = window_look_up(address);
    if (allocation && allocation->kind == ALLOCATION_RESERVED) {
        failed = mappings_find(address, found);
    } else if (allocation) {
        *found = *allocation;
        failed = 0;
    }
    window_unlock();
    return failed;
}

/* Under the mutex, for what `found` says of the address. */
static int allows(const struct allocation *found, uint64_t address, uint64_t bytes, unsigned device, enum rights rights)
{
    if (found && found->kind == ALLOCATION_RESERVED)
        return mappings_allow(address, bytes, device, rights);
    return found && bytes <= found->bytes - (address - found->start);
}

int window_allows(uint64_t address, uint64_t bytes, unsigned device, enum rights rights)
{
    window_lock();
    int allowed = allows(window_look_up(address), address, bytes, device, rights);
    window_unlock();
    return allowed;
}

int window_backs(uint64_t address, uint64_t bytes, unsigned device, enum rights rights)
{
    window_lock();
    const struct allocation *found = window_look_up_whole(address);
    int allowed = !(found && found->is_absent) && allows(found, address, bytes, device, rights);
    window_unlock();
    return allowed;
}
